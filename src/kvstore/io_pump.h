#pragma once
// The store thread's way to its IoQueue: requests with what to do when they have ended, reads
// before writes, short counts continued, files and buffers kept alive until then. Remembers
// when each request began, so that one that hangs is noticed, and can be left behind at the end.
//
// Owned and called by the store thread only, but for wake().

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "base/file_system.h"
#include "kvstore/io_queue.h"

namespace artery::kvstore {

// A request that takes longer hangs: the disk is sick.
constexpr std::int64_t kLateNs = 5'000'000'000;
// The most that counts between two looks. A machine that slept, a process that was stopped or
// starved, a store thread that was held up itself: the clock has gone on without anybody waiting,
// and says nothing about the disk.
constexpr std::int64_t kWatchNs = 250'000'000;

// How a request ended. bytes: moved altogether, fewer than asked at the end of a file.
struct IoEnd {
  IoRequest::Kind kind = IoRequest::Kind::kRead;
  int error = 0;  // errno; 0: none
  std::int64_t bytes = 0;
  std::int64_t took_ns = 0;  // see watched_ns()
  bool is_late = false;      // it has been reported as hanging before
};

class IoPump {
 public:
  using Done = std::function<void(const IoEnd&)>;
  struct Call {
    IoRequest::Kind kind = IoRequest::Kind::kRead;
    std::shared_ptr<BlockFile> file;
    std::int64_t offset = 0;
    std::span<std::byte> buffer{};
    std::shared_ptr<const void> keep{};  // what the buffer lies in
    Done done;                           // on the store thread, from run()
  };

  IoPump(std::unique_ptr<IoQueue> queue, int depth, const Clock& clock);
  ~IoPump();

  void submit(Call call);
  // Sends what waits, then handles what has ended; waits up to `timeout_ms` when nothing has.
  void run(int timeout_ms);
  void wake() { queue_->wake(); }

  // A look, once in every turn. Requests that have been under way for longer than kLateNs and were
  // not counted yet.
  int newly_late();
  // The clock as far as somebody looked: what requests took is measured by it.
  std::int64_t watched_ns() const;
  // Every request's end passes here before its own `done`.
  void set_watch(Done watch) { watch_ = std::move(watch); }
  int under_way() const { return static_cast<int>(pending_.size()); }  // and waiting
  std::uint64_t ended() const { return ended_; }
  std::string_view name() const { return queue_->name(); }

  // Nobody waits for what hangs: a thread of its own keeps the pump until it has ended, `done` of
  // nothing is called any more.
  static void abandon(std::unique_ptr<IoPump> pump);

 private:
  struct Pending {
    Call call;
    std::int64_t begun_ns = -1;  // watched; -1: waits to be submitted
    std::int64_t moved = 0;
    int shorts = 0;
    bool is_late = false;
  };
  static constexpr std::size_t kEndsAtOnce = 4;
  static constexpr int kShortsMax = 8;
  void send();
  bool send_one(std::uint64_t tag);
  void end(const IoResult& result);

  const Clock& clock_;
  const int depth_;
  Done watch_;
  std::uint64_t next_tag_ = 1;
  std::uint64_t ended_ = 0;
  std::int64_t looked_ns_, watched_ns_ = 0;  // at the last look
  std::unordered_map<std::uint64_t, Pending> pending_;
  std::deque<std::uint64_t> reads_, writes_;  // wait to be submitted
  std::vector<IoResult> results_;
  std::unique_ptr<IoQueue> queue_;  // last: its end waits for requests whose buffers are above
};

}  // namespace artery::kvstore
