#pragma once
// Loads: for each an ordered list of records, read side by side, verified as they come, handed to
// the engine thread in order. A load ends at its last record, at the first that is missing or does
// not verify, at its deadline, or when the tier goes out of service; reads still under way then are
// nobody's, and their slots come free when they end.
//
// The store thread's.

#include <cstdint>
#include <map>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "kvstore/budget.h"
#include "kvstore/store_core.h"

namespace artery::kvstore {

class Reader {
 public:
  explicit Reader(StoreCore& core);

  void start(LoadJob job);
  void cancel(LoadId id);
  // Ends what is past its time, sends reads as far as slots, depth and budget allow.
  void pump();
  void end_all(MissReason why);
  // Of the next deadline or the next token, or -1.
  std::int64_t next_event_ns();
  void publish();  // gauges
  // There is something new for poll() since the last call.
  bool take_news() { return std::exchange(has_news_, false); }

 private:
  static constexpr int kReadsMax = 32;

  struct Part {
    int slot = -1;
    bool is_read = false;
    std::span<const std::byte> payload;
  };
  struct Load {
    LoadJob job;
    std::vector<Part> parts;  // of job.wanted
    std::size_t sent = 0, given = 0;
    int slots = 0;         // held by parts that are read or under way
    std::size_t stop = 0;  // the first record that does not come
    MissReason why = MissReason::kNone;
  };
  struct Read {  // one under way
    LoadId load = 0;
    std::size_t index = 0;
    int slot = -1;
    ChainKey key{};
    Entry entry;  // knows only the first half of the key
  };

  bool send_next(Load& load);
  bool send(Load& load, const Entry& entry, std::shared_ptr<BlockFile> file, int slot);
  void ended(const Read& read, const IoEnd& end);
  void measure(const IoEnd& end);
  MissReason failed(const Read& read, int error);
  MissReason came_short(const Read& read);
  MissReason verify(const Read& read, const Wanted& wanted, std::span<const std::byte>& payload);
  MissReason reject(const Read& read, MissReason why, const std::string& text);
  void stop(Load& load, std::size_t index, MissReason why);
  void give(Load& load);  // may end it
  void finish(Load& load);
  void push(const ReadyPiece& piece);
  void free_slot(int slot) { core_.state->slots.give(SlotPool::Use::kRead, slot); }

  StoreCore& core_;
  TokenBucket budget_;
  SpeedMeter speed_;
  std::map<LoadId, Load> loads_;
  std::unordered_map<ChainKey, int, ChainKeyHash> failures_;  // EIO, of keys still there
  int reads_ = 0;                                             // under way
  std::int64_t token_wait_ns_ = 0;
  bool has_news_ = false;
};

}  // namespace artery::kvstore
