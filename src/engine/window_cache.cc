#include "engine/window_cache.h"

#include <utility>

#include "base/check.h"

namespace artery::engine {

WindowCache::WindowCache(KvPool& pool)
    : pool_(pool), references_(static_cast<std::size_t>(pool.pages_total())) {}

void WindowCache::save(const ChainKey& key, std::vector<PageRef> pages) {
  if (const auto it = windows_.find(key); it != windows_.end()) {
    order_.splice(order_.end(), order_, it->second.place);
    return;
  }
  for (const PageRef& page : pages) ++references_[static_cast<std::size_t>(page.page())];
  order_.push_back(key);
  windows_.emplace(key, Window{std::move(pages), std::prev(order_.end())});
  ++generation_;
}

std::vector<PageRef> WindowCache::restore(const ChainKey& key) {
  const auto it = windows_.find(key);
  CHECK(it != windows_.end(), "a window was to be restored that is not saved");
  order_.splice(order_.end(), order_, it->second.place);
  std::vector<PageRef> out;
  out.reserve(it->second.pages.size());
  for (const PageRef& page : it->second.pages) out.push_back(page.share());
  return out;
}

void WindowCache::drop(Windows::iterator it) {
  for (const PageRef& page : it->second.pages) --references_[static_cast<std::size_t>(page.page())];
  order_.erase(it->second.place);
  windows_.erase(it);
  ++generation_;
}

void WindowCache::erase(const ChainKey& key) {
  if (const auto it = windows_.find(key); it != windows_.end()) drop(it);
}

void WindowCache::clear() {
  while (!windows_.empty()) drop(windows_.begin());
}

void WindowCache::reclaim(std::int64_t free) {
  while (pool_.pages_free() < free && !order_.empty()) drop(windows_.find(order_.front()));
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
  for (const ChainKey& key : order_) {
    const auto it = windows_.find(key);
    CHECK(it != windows_.end() && *it->second.place == key);
    for (const PageRef& page : it->second.pages) ++counted[static_cast<std::size_t>(page.page())];
  }
  for (std::size_t page = 0; page < counted.size(); ++page) {
    CHECK(counted[page] == references_[page], "page {} is counted wrongly", page);
    CHECK(counted[page] <= pool_.references(static_cast<PageId>(page)));
  }
}

}  // namespace artery::engine
