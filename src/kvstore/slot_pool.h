#pragma once
// The memory of reads and writes under way: slots of one size in one allocation aligned to a block,
// so that io_uring can register it. Half of the slots is for writes, half for reads; neither
// starves the other. Any thread.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/mutex.h"

namespace artery::kvstore {

// Memory aligned to a block, zeros at first.
class AlignedBytes {
 public:
  AlignedBytes() = default;
  explicit AlignedBytes(std::int64_t bytes);
  std::span<std::byte> span() const { return {bytes_.get(), size_}; }
  std::span<std::byte> first(std::int64_t bytes) const {
    return span().first(static_cast<std::size_t>(bytes));
  }

 private:
  struct Free {
    void operator()(std::byte* bytes) const;
  };
  std::unique_ptr<std::byte, Free> bytes_;
  std::size_t size_ = 0;
};

class SlotPool {
 public:
  enum class Use : std::uint8_t { kRead, kWrite };
  // As many slots as `bytes` hold, at least kSlotsMin.
  SlotPool(std::int64_t bytes, std::int64_t slot_bytes);

  int take(Use use);  // -1: all of that half are in use
  void give(Use use, int slot);
  std::span<std::byte> slot(int slot) const;
  std::span<std::byte> memory() const { return memory_.span(); }
  std::int64_t slot_bytes() const { return slot_bytes_; }
  int capacity(Use use) const { return use == Use::kRead ? reads_max_ : writes_max_; }
  int used(Use use) const;

 private:
  static constexpr int kSlotsMin = 8;
  const std::int64_t slot_bytes_;
  const int slots_;
  const int writes_max_;
  const int reads_max_;
  const AlignedBytes memory_;
  mutable Mutex mu_;
  std::vector<int> free_ GUARDED_BY(mu_);
  int used_[2] GUARDED_BY(mu_) = {0, 0};
};

}  // namespace artery::kvstore
