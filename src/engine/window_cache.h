#pragma once
// Saved windows: the window pages before a page boundary, kept by reference under the chain key of
// the boundary's last page, so that a prefix hit there goes on at once. Only a hint: a window that
// is gone is rebuilt. Given back least recently used first, whenever a running sequence needs
// pages. Engine thread only; never writes a page.

#include <cstdint>
#include <list>
#include <unordered_map>
#include <vector>

#include "base/chain_key.h"
#include "engine/kv_pool.h"

namespace artery::engine {

class WindowCache {
 public:
  // `pool`: the window space; outlives the cache.
  explicit WindowCache(KvPool& pool);

  // `pages`: references of the cache's own, first page first. A window that is known stays and
  // counts as used now.
  void save(const ChainKey& key, std::vector<PageRef> pages);
  bool contains(const ChainKey& key) const { return windows_.contains(key); }
  // The pages of a known window, shared; it counts as used now.
  std::vector<PageRef> restore(const ChainKey& key);
  // Unknown keys are ignored.
  void erase(const ChainKey& key);
  void clear();
  // Drops windows until `free` pages of the pool are free, or no window is left.
  void reclaim(std::int64_t free);

  // Changes whenever contains() may answer differently.
  std::uint64_t generation() const { return generation_; }
  std::int64_t windows() const { return static_cast<std::int64_t>(windows_.size()); }
  // References of windows to `page`.
  int references(PageId page) const { return references_[static_cast<std::size_t>(page)]; }
  // Pages that only saved windows hold.
  std::int64_t pages_idle() const;
  void check_integrity() const;

 private:
  struct Window {
    std::vector<PageRef> pages;
    std::list<ChainKey>::iterator place;  // in order_
  };
  using Windows = std::unordered_map<ChainKey, Window, ChainKeyHash>;

  void drop(Windows::iterator it);

  KvPool& pool_;
  Windows windows_;
  std::list<ChainKey> order_;  // least recently used first
  std::vector<std::int32_t> references_;
  std::uint64_t generation_ = 1;
};

}  // namespace artery::engine
