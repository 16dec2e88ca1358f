#include "sim/lru_twin.h"

namespace artery::sim {

using kvstore::kNil;
using kvstore::Slot;

std::int64_t LruTwin::find(std::span<const kvstore::Key16> keys, std::int64_t now_s) const {
  std::size_t i = 0;
  for (; i < keys.size(); ++i) {
    const Slot slot = index_.find(keys[i]);
    if (slot == kNil || now_s - links_[slot].last_use > ttl_s_) break;
  }
  return static_cast<std::int64_t>(i);
}

std::int64_t LruTwin::use(std::span<const kvstore::Key16> keys, std::int64_t now_s) {
  std::int64_t added = 0;
  for (std::size_t i = keys.size(); i-- > 0;) {
    Slot slot = index_.find(keys[i]);
    if (slot != kNil) {
      take_out(slot);
      if (now_s - links_[slot].last_use > ttl_s_) ++added;
    } else {
      ++added;
      if (index_.nodes() >= records_max_) {
        if (oldest_ == kNil) return added;
        const Slot out = oldest_;
        take_out(out);
        index_.erase(out);
        ++evicted_;
      }
      slot = index_.insert(keys[i]);
      if (slot == kNil) return added;
      if (links_.size() <= slot) links_.resize(slot + 1);
    }
    links_[slot].last_use = now_s;
    put_newest(slot);
  }
  return added;
}

void LruTwin::take_out(Slot slot) {
  const Link& link = links_[slot];
  (link.newer == kNil ? newest_ : links_[link.newer].older) = link.older;
  (link.older == kNil ? oldest_ : links_[link.older].newer) = link.newer;
}

void LruTwin::put_newest(Slot slot) {
  links_[slot].newer = kNil;
  links_[slot].older = newest_;
  (newest_ == kNil ? oldest_ : links_[newest_].newer) = slot;
  newest_ = slot;
}

}  // namespace artery::sim
