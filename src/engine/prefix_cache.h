#pragma once
// The RAM prefix cache, first tier of PageStore: which whole pages are known, by chain key. Holds
// one reference to each page it knows, compares token ids on every match, and gives pages back
// least recently used leaf first, so that the path from a root to every page is always whole.
// Pages are shared by running sequences too: a page is offered as soon as its 16 positions are
// computed. Engine thread only; never writes a page.

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <set>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/chain_key.h"
#include "engine/engine.h"
#include "engine/kv_pool.h"
#include "engine/page_store.h"

namespace artery::engine {

class PrefixCache final : public PageStore {
 public:
  explicit PrefixCache(KvPool& pool) : pool_(pool) {}
  ~PrefixCache() override;
  PrefixCache(const PrefixCache&) = delete;
  PrefixCache& operator=(const PrefixCache&) = delete;

  // At most min(keys.size(), tokens.size() / 16) pages; marks them as used now.
  Match match(std::span<const ChainKey> keys, std::span<const TokenId> tokens) override;
  void load(std::span<const ChainKey> keys, std::function<void(std::vector<PageId>)> done) override;
  // `parent` is the previous page's key, or the root for the first page. The page is not kept when
  // an entry with the same key has other tokens.
  PageId offer(
      const ChainKey& key, const ChainKey& parent, std::span<const TokenId> ids, PageId page
  ) override;
  std::int64_t reclaim(std::int64_t count) override;

  // Called with the key of every page that is given back.
  void set_on_evict(std::function<void(const ChainKey&)> hook) { on_evict_ = std::move(hook); }

  // Whether `key` names a page of this cache.
  bool contains(const ChainKey& key) const { return nodes_.contains(key); }
  // Why the page after `matched` pages was not found. kNone: the prompt goes on where the known
  // text ends.
  MissReason why_missed(std::span<const ChainKey> keys, std::size_t matched) const;
  std::int64_t pages() const { return static_cast<std::int64_t>(nodes_.size()); }
  void check_integrity() const;

 private:
  struct Node {
    ChainKey parent{};
    PageId page = kNoPage;
    int children = 0;
    std::uint64_t last_use = 0;
    std::array<TokenId, kPageTokens> ids{};
  };
  using Leaf = std::pair<std::uint64_t, ChainKey>;  // last use, key

  void touch(const ChainKey& key, Node& node);
  void erase_leaf(const ChainKey& key);

  static constexpr std::size_t kEvictedMax = 8192;  // keys remembered to tell evicted from cold

  KvPool& pool_;
  std::function<void(const ChainKey&)> on_evict_;
  std::unordered_map<ChainKey, Node, ChainKeyHash> nodes_;
  std::set<Leaf> leaves_;  // nodes without children
  std::uint64_t tick_ = 0;
  std::deque<ChainKey> evicted_order_;
  std::unordered_set<ChainKey, ChainKeyHash> evicted_;
};

}  // namespace artery::engine
