#include "engine/window_cache.h"

#include <limits>
#include <utility>

#include "base/check.h"

namespace artery::engine {

using kvstore::MissReason;

namespace {

// A window that lives for ever: half of the range, so that sums with any time fit.
constexpr std::int64_t kForever = std::numeric_limits<std::int64_t>::max() / 2;

std::int64_t nanoseconds(double seconds) {
  const double ns = seconds * 1e9;
  return ns < static_cast<double>(kForever) ? static_cast<std::int64_t>(ns) : kForever;
}

}  // namespace

WindowCache::WindowCache(KvPool& pool, double ttl_s)
    : pool_(pool),
      ttl_ns_(nanoseconds(ttl_s)),
      references_(static_cast<std::size_t>(pool.pages_total())) {}

void WindowCache::use(Window& window, std::int64_t now_ns) {
  order_.splice(order_.end(), order_, window.place);
  window.last_use_ns = now_ns;
}

void WindowCache::save(const ChainKey& key, std::vector<PageRef> pages, std::int64_t now_ns) {
  if (const auto it = windows_.find(key); it != windows_.end()) return use(it->second, now_ns);
  for (const PageRef& page : pages) ++references_[static_cast<std::size_t>(page.page())];
  order_.push_back(key);
  windows_.emplace(key, Window{std::move(pages), std::prev(order_.end()), now_ns});
  ++generation_;
}

std::vector<PageRef> WindowCache::restore(const ChainKey& key, std::int64_t now_ns) {
  const auto it = windows_.find(key);
  CHECK(it != windows_.end(), "a window was to be restored that is not saved");
  use(it->second, now_ns);
  std::vector<PageRef> out;
  out.reserve(it->second.pages.size());
  for (const PageRef& page : it->second.pages) out.push_back(page.share());
  return out;
}

void WindowCache::drop(Windows::iterator it, kvstore::MissReason why) {
  for (const PageRef& page : it->second.pages) --references_[static_cast<std::size_t>(page.page())];
  if (gone_.insert_or_assign(it->first, why).second) gone_order_.push_back(it->first);
  if (gone_order_.size() > kGoneMax) {
    gone_.erase(gone_order_.front());
    gone_order_.pop_front();
  }
  order_.erase(it->second.place);
  windows_.erase(it);
  ++generation_;
}

void WindowCache::erase(const ChainKey& key) {
  if (const auto it = windows_.find(key); it != windows_.end()) drop(it, MissReason::kEvicted);
}

MissReason WindowCache::why_gone(const ChainKey& key) const {
  const auto it = gone_.find(key);
  return it == gone_.end() ? MissReason::kNone : it->second;
}

void WindowCache::clear() {
  while (!windows_.empty()) drop(windows_.begin(), MissReason::kEvicted);
}

std::int64_t WindowCache::expire(std::int64_t now_ns) {
  std::int64_t count = 0;
  while (!order_.empty()) {
    const auto it = windows_.find(order_.front());
    if (now_ns - it->second.last_use_ns < ttl_ns_) break;
    drop(it, MissReason::kExpired);
    ++count;
  }
  return count;
}

void WindowCache::reclaim(std::int64_t free) {
  while (pool_.pages_free() < free && !order_.empty()) {
    drop(windows_.find(order_.front()), MissReason::kEvicted);
  }
}

std::int64_t WindowCache::pages_idle() const {
  std::int64_t count = 0;
  for (std::size_t page = 0; page < references_.size(); ++page) {
    const std::int32_t mine = references_[page];
    if (mine > 0 && pool_.references(static_cast<PageId>(page)) == mine) ++count;
  }
  return count;
}

void WindowCache::check_integrity() const {
  CHECK(order_.size() == windows_.size());
  std::vector<std::int32_t> counted(references_.size());
  std::int64_t last = std::numeric_limits<std::int64_t>::min();
  for (const ChainKey& key : order_) {
    const auto it = windows_.find(key);
    CHECK(it != windows_.end() && *it->second.place == key);
    CHECK(it->second.last_use_ns >= last, "windows out of order of their last use");
    last = it->second.last_use_ns;
    for (const PageRef& page : it->second.pages) ++counted[static_cast<std::size_t>(page.page())];
  }
  for (std::size_t page = 0; page < counted.size(); ++page) {
    CHECK(counted[page] == references_[page], "page {} is counted wrongly", page);
    CHECK(counted[page] <= pool_.references(static_cast<PageId>(page)));
  }
}

}  // namespace artery::engine
