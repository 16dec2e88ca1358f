#pragma once
// Saved windows: the window pages before a page boundary, kept by reference under the chain key of
// the boundary's last page, so that a prefix hit there goes on at once. Only a hint: a window that
// is gone is rebuilt. Given back when its time since the last use has passed, and least recently
// used first whenever a running sequence needs pages; a sequence that goes on from one has
// references of its own. Engine thread only; never writes a page.

#include <cstdint>
#include <deque>
#include <list>
#include <unordered_map>
#include <vector>

#include "base/chain_key.h"
#include "engine/kv_pool.h"
#include "kvstore/types.h"

namespace artery::engine {

class WindowCache {
 public:
  // `pool`: the window space; outlives the cache. `ttl_s`: seconds that a window lives unused.
  WindowCache(KvPool& pool, double ttl_s);

  // Times are Clock::monotonic_ns and never go back.
  //
  // `pages`: references of the cache's own, first page first. A window that is known stays and
  // counts as used now.
  void save(const ChainKey& key, std::vector<PageRef> pages, std::int64_t now_ns);
  bool contains(const ChainKey& key) const { return windows_.contains(key); }
  // kExpired or kEvicted, where that is still known; kNone: never saved, or long ago.
  kvstore::MissReason why_gone(const ChainKey& key) const;
  // The pages of a known window, shared; it counts as used now.
  std::vector<PageRef> restore(const ChainKey& key, std::int64_t now_ns);
  // Unknown keys are ignored.
  void erase(const ChainKey& key);
  void clear();
  // Drops those whose time has passed; returns how many. Costs what it drops.
  std::int64_t expire(std::int64_t now_ns);
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
    std::int64_t last_use_ns = 0;
  };
  using Windows = std::unordered_map<ChainKey, Window, ChainKeyHash>;

  static constexpr std::size_t kGoneMax = 4096;

  void use(Window& window, std::int64_t now_ns);
  void drop(Windows::iterator it, kvstore::MissReason why);

  KvPool& pool_;
  const std::int64_t ttl_ns_;
  Windows windows_;
  std::list<ChainKey> order_;  // least recently used first
  std::vector<std::int32_t> references_;
  std::uint64_t generation_ = 1;
  std::deque<ChainKey> gone_order_;
  std::unordered_map<ChainKey, kvstore::MissReason, ChainKeyHash> gone_;
};

}  // namespace artery::engine
