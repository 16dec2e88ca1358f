#include "kvstore/raw_read.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <new>
#include <system_error>
#include <vector>

#include "kvstore/io_queue.h"

namespace artery::kvstore {
namespace {

constexpr std::int64_t kBlock = 4096;

struct Freed {
  void operator()(std::byte* bytes) const { ::operator delete(bytes, std::align_val_t{kBlock}); }
};
using Memory = std::unique_ptr<std::byte, Freed>;

Memory blocks(std::size_t bytes) {
  auto* at = static_cast<std::byte*>(::operator new(bytes, std::align_val_t{kBlock}));
  std::fill_n(at, bytes, std::byte{0});  // the pages are there before the clock runs
  return Memory(at);
}

std::unique_ptr<IoQueue> any_queue(int depth, std::span<std::byte> memory) {
  auto ring = make_uring_queue(depth, memory);
  return ring ? std::move(*ring) : make_thread_queue(depth, std::min(depth, 8));
}

// Keeps `depth` requests under way; request k uses buffer k % depth.
class Reader {
 public:
  Reader(BlockFile& file, const RawReadPlan& plan, std::int64_t end)
      : file_(file), plan_(plan), end_(end), next_(plan.offset) {
    const auto bytes = static_cast<std::size_t>(plan.request_bytes * plan.depth);
    memory_ = blocks(bytes);
    queue_ = any_queue(plan.depth, {memory_.get(), bytes});
    for (int i = plan.depth; i > 0; --i) free_.push_back(static_cast<std::uint64_t>(i - 1));
  }

  Result<std::int64_t> run() {
    std::int64_t got = 0;
    std::vector<IoResult> ended;
    while (next_ < end_ || queue_->in_flight() > 0) {
      while (next_ < end_ && !free_.empty()) submit();
      ended.clear();
      queue_->wait(ended, -1);
      for (const IoResult& result : ended) {
        if (result.error != 0) {
          return fail(
              Code::kIo, "{}", std::error_code(result.error, std::generic_category()).message()
          );
        }
        got += result.bytes;
        free_.push_back(result.tag);
      }
    }
    return got;
  }
  std::string io() const { return std::string(queue_->name()); }

 private:
  void submit() {
    const std::uint64_t slot = free_.back();
    free_.pop_back();
    const std::int64_t bytes = std::min(plan_.request_bytes, end_ - next_);
    std::byte* at = memory_.get() + static_cast<std::int64_t>(slot) * plan_.request_bytes;
    queue_->submit(
        {IoRequest::Kind::kRead, &file_, next_, {at, static_cast<std::size_t>(bytes)}, slot}
    );
    next_ += bytes;
  }

  BlockFile& file_;
  const RawReadPlan& plan_;
  const std::int64_t end_;
  std::int64_t next_;
  Memory memory_;
  std::vector<std::uint64_t> free_;
  std::unique_ptr<IoQueue> queue_;  // last: its end waits for reads into the memory
};

}  // namespace

Result<RawRead> raw_read(FileSystem& files, const std::string& path, const RawReadPlan& plan) {
  if (plan.offset < 0 || plan.offset % kBlock != 0 || plan.bytes < 0 || plan.request_bytes <= 0 ||
      plan.request_bytes % kBlock != 0 || plan.depth < 1 || plan.depth > 4096) {
    return fail(
        Code::kInvalidArgument,
        "a raw read of {} bytes at {}, {} each, {} at once",
        plan.bytes,
        plan.offset,
        plan.request_bytes,
        plan.depth
    );
  }
  const std::unique_ptr<BlockFile> file = TRY(files.open_blocks(path, OpenMode::kRead));
  const std::int64_t size = (TRY(file->size()) + kBlock - 1) / kBlock * kBlock;
  const std::int64_t asked = plan.bytes == 0 ? size : plan.offset + plan.bytes;
  Reader reader(*file, plan, std::min(asked, size));
  const auto begin = std::chrono::steady_clock::now();
  Result<std::int64_t> bytes = reader.run();
  if (!bytes) return fail(Code::kIo, "{}: {}", path, bytes.error().message);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  return RawRead{*bytes, took.count(), reader.io()};
}

}  // namespace artery::kvstore
