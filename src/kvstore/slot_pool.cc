#include "kvstore/slot_pool.h"

#include <algorithm>
#include <cstring>
#include <new>

#include "base/check.h"
#include "kvstore/catalog.h"

namespace artery::kvstore {

void AlignedBytes::Free::operator()(std::byte* bytes) const {
  ::operator delete[](bytes, std::align_val_t{kBlock});
}

AlignedBytes::AlignedBytes(std::int64_t bytes)
    : bytes_(static_cast<std::byte*>(
          ::operator new[](static_cast<std::size_t>(bytes), std::align_val_t{kBlock})
      )),
      size_(static_cast<std::size_t>(bytes)) {
  std::memset(bytes_.get(), 0, size_);
}

SlotPool::SlotPool(std::int64_t bytes, std::int64_t slot_bytes)
    : slot_bytes_(slot_bytes),
      slots_(std::max(kSlotsMin, static_cast<int>(bytes / slot_bytes))),
      writes_max_(slots_ / 2),
      reads_max_(slots_ - slots_ / 2),
      memory_(slot_bytes_ * slots_) {
  CHECK(slot_bytes_ > 0 && slot_bytes_ % kBlock == 0);
  const MutexLock lock(mu_);
  for (int i = slots_ - 1; i >= 0; --i) free_.push_back(i);
}

int SlotPool::take(Use use) {
  const MutexLock lock(mu_);
  int& used = used_[static_cast<int>(use)];
  if (used >= capacity(use)) return -1;
  ++used;
  const int slot = free_.back();
  free_.pop_back();
  return slot;
}

void SlotPool::give(Use use, int slot) {
  const MutexLock lock(mu_);
  --used_[static_cast<int>(use)];
  free_.push_back(slot);
}

std::span<std::byte> SlotPool::slot(int slot) const {
  return memory_.span().subspan(
      static_cast<std::size_t>(slot * slot_bytes_), static_cast<std::size_t>(slot_bytes_)
  );
}

int SlotPool::used(Use use) const {
  const MutexLock lock(mu_);
  return used_[static_cast<int>(use)];
}

}  // namespace artery::kvstore
