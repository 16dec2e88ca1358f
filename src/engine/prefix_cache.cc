#include "engine/prefix_cache.h"

#include <algorithm>

#include "base/check.h"

namespace artery::engine {

PrefixCache::~PrefixCache() {
  for (auto& [key, node] : nodes_) {
    pool_.set_cached(node.page, false);
    pool_.drop_reference(node.page);
  }
}

void PrefixCache::touch(const ChainKey& key, Node& node) {
  if (node.children == 0) {
    leaves_.erase({node.last_use, key});
    leaves_.insert({tick_, key});
  }
  node.last_use = tick_;
}

PageStore::Match PrefixCache::match(
    std::span<const ChainKey> keys, std::span<const TokenId> tokens
) {
  Match found;
  ++tick_;
  const std::size_t pages = std::min(keys.size(), tokens.size() / kPageTokens);
  for (std::size_t i = 0; i < pages; ++i) {
    const auto it = nodes_.find(keys[i]);
    if (it == nodes_.end()) break;
    Node& node = it->second;
    const auto ids = tokens.subspan(i * kPageTokens, kPageTokens);
    if (!std::equal(ids.begin(), ids.end(), node.ids.begin())) break;
    touch(it->first, node);
    pool_.add_reference(node.page);
    found.pages.push_back(node.page);
  }
  return found;
}

void PrefixCache::load(
    std::span<const ChainKey> /*keys*/, std::function<void(std::vector<PageId>)> done
) {
  done({});
}

PageId PrefixCache::offer(
    const ChainKey& key, const ChainKey& parent, std::span<const TokenId> ids, PageId page
) {
  CHECK(ids.size() == kPageTokens);
  ++tick_;
  if (const auto it = nodes_.find(key); it != nodes_.end()) {
    Node& node = it->second;
    if (!std::equal(ids.begin(), ids.end(), node.ids.begin())) return page;
    touch(key, node);
    if (node.page == page) return page;
    pool_.add_reference(node.page);
    pool_.drop_reference(page);
    return node.page;
  }
  if (pool_.cached(page)) return page;  // already stands for another key; never expected
  if (const auto up = nodes_.find(parent); up != nodes_.end()) {
    if (up->second.children++ == 0) leaves_.erase({up->second.last_use, parent});
    up->second.last_use = tick_;
  }
  Node node{parent, page, 0, tick_, {}};
  std::copy(ids.begin(), ids.end(), node.ids.begin());
  pool_.add_reference(page);
  pool_.set_cached(page, true);
  nodes_.emplace(key, node);
  leaves_.insert({tick_, key});
  return page;
}

void PrefixCache::erase_leaf(const ChainKey& key) {
  const auto it = nodes_.find(key);
  const Node& node = it->second;
  leaves_.erase({node.last_use, key});
  if (const auto up = nodes_.find(node.parent); up != nodes_.end()) {
    if (--up->second.children == 0) leaves_.insert({up->second.last_use, node.parent});
  }
  pool_.set_cached(node.page, false);
  pool_.drop_reference(node.page);
  if (on_evict_) on_evict_(key);
  if (evicted_.insert(key).second) evicted_order_.push_back(key);
  if (evicted_order_.size() > kEvictedMax) {
    evicted_.erase(evicted_order_.front());
    evicted_order_.pop_front();
  }
  nodes_.erase(it);
}

// A sequence holds all pages before one it holds, so an idle page has only idle pages below it and
// taking leaves from the oldest reaches every idle page. Leaves that sequences hold are stepped
// over: there are at most as many as running sequences.
std::int64_t PrefixCache::reclaim(std::int64_t count) {
  std::int64_t freed = 0;
  auto it = leaves_.begin();
  while (freed < count && it != leaves_.end()) {
    const Leaf leaf = *it;
    if (pool_.references(nodes_.at(leaf.second).page) > 1) {
      ++it;
      continue;
    }
    erase_leaf(leaf.second);
    ++freed;
    // The parent may be a leaf now, and it may be older than the next one.
    it = leaves_.begin();
  }
  return freed;
}

MissReason PrefixCache::why_missed(std::span<const ChainKey> keys, std::size_t matched) const {
  if (matched >= keys.size()) return MissReason::kNone;
  if (evicted_.contains(keys[matched])) return MissReason::kEvicted;
  if (matched == 0) return MissReason::kCold;
  const auto it = nodes_.find(keys[matched - 1]);
  const bool other_text = it != nodes_.end() && it->second.children > 0;
  return other_text ? MissReason::kDiverged : MissReason::kNone;
}

void PrefixCache::check_integrity() const {
  std::unordered_map<ChainKey, int, ChainKeyHash> children;
  for (const auto& [key, node] : nodes_) {
    CHECK(pool_.references(node.page) > 0 && pool_.cached(node.page));
    if (nodes_.contains(node.parent)) ++children[node.parent];
  }
  std::size_t leaf_count = 0;
  for (const auto& [key, node] : nodes_) {
    const auto it = children.find(key);
    CHECK(node.children == (it == children.end() ? 0 : it->second));
    if (node.children == 0) {
      ++leaf_count;
      CHECK(leaves_.contains({node.last_use, key}));
    }
  }
  CHECK(leaf_count == leaves_.size());
}

}  // namespace artery::engine
