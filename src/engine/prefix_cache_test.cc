#include "engine/prefix_cache.h"

#include <gtest/gtest.h>

#include "engine/sequence_kv.h"
#include "testing/hash_model.h"
#include "testing/seq_random.h"

namespace artery::engine {
namespace {

std::vector<TokenId> text_of(std::uint64_t seed, int pages) {
  testing::SeqRandom random(seed);
  std::vector<TokenId> tokens;
  for (int i = 0; i < pages * kPageTokens; ++i) {
    tokens.push_back(static_cast<TokenId>(random.between(0, 99)));
  }
  return tokens;
}

class PrefixCacheTest : public ::testing::Test {
 protected:
  // Computes and offers all pages of `tokens`, as the engine does; gives back the page ids kept.
  std::vector<PageId> store(std::span<const TokenId> tokens) {
    std::vector<PageRef> held = hold(tokens);
    std::vector<PageId> pages;
    for (const PageRef& page : held) pages.push_back(page.page());
    return pages;
  }
  std::vector<PageRef> hold(std::span<const TokenId> tokens) {
    const std::vector<ChainKey> keys = chain_keys(root_, tokens);
    std::vector<PageRef> held;
    for (std::size_t i = 0; i < keys.size(); ++i) {
      PageRef page = pool_->allocate();
      EXPECT_TRUE(page);
      const ChainKey& parent = i == 0 ? root_ : keys[i - 1];
      const auto ids = tokens.subspan(i * kPageTokens, kPageTokens);
      const PageId mine = page.release();
      held.push_back(PageRef::adopt(*pool_, cache_.offer(keys[i], parent, ids, mine)));
    }
    return held;
  }
  std::vector<PageRef> match(std::span<const TokenId> tokens) {
    const auto found = cache_.match(chain_keys(root_, tokens), tokens);
    std::vector<PageRef> held;
    for (const PageId page : found.pages) held.push_back(PageRef::adopt(*pool_, page));
    return held;
  }
  void check() const {
    pool_->check_integrity();
    cache_.check_integrity();
  }

  const ChainKey root_ = chain_root("secret", "space");
  std::unique_ptr<KvSpaces> spaces_ =
      std::move(*KvSpaces::make(testing::kv_entry_layout("test"), 12));
  KvPool* pool_ = &spaces_->global();
  PrefixCache cache_{*pool_};
};

TEST_F(PrefixCacheTest, FindsTheLongestPrefix) {
  const auto text = text_of(1, 4);
  const std::vector<PageId> stored = store(text);
  EXPECT_EQ(pool_->pages_in_use(), 0);
  EXPECT_EQ(pool_->pages_idle(), 4);
  auto longer = text;
  longer[2 * kPageTokens] ^= 1;  // differs in page 2
  const auto found = match(longer);
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].page(), stored[0]);
  EXPECT_EQ(found[1].page(), stored[1]);
  EXPECT_EQ(pool_->pages_in_use(), 2);
  check();
}

TEST_F(PrefixCacheTest, ComparesTokensNotOnlyKeys) {
  const auto text = text_of(1, 2);
  store(text);
  auto other = text;
  other[3] ^= 1;
  // A forged key array: the other text under the first text's keys.
  EXPECT_TRUE(cache_.match(chain_keys(root_, text), other).pages.empty());
  EXPECT_EQ(cache_.match(chain_keys(root_, text), text).pages.size(), 2u);
  for (const PageId page : {0, 1}) pool_->drop_reference(page);
}

TEST_F(PrefixCacheTest, RootsKeepTenantsApart) {
  const auto text = text_of(1, 2);
  store(text);
  const ChainKey other = chain_root("secret", "other tenant");
  EXPECT_TRUE(cache_.match(chain_keys(other, text), text).pages.empty());
}

TEST_F(PrefixCacheTest, EqualPagesBecomeOne) {
  const auto text = text_of(1, 3);
  const auto first = hold(text);
  const auto second = hold(text);
  for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(first[i].page(), second[i].page());
  EXPECT_EQ(pool_->pages_free(), 9);
  EXPECT_EQ(pool_->references(first[0].page()), 3);
  check();
}

TEST_F(PrefixCacheTest, ReclaimsOldestLeavesFirst) {
  const auto old_text = text_of(1, 3);
  const auto new_text = text_of(2, 3);
  store(old_text);
  store(new_text);
  EXPECT_EQ(cache_.reclaim(2), 2);
  EXPECT_EQ(match(old_text).size(), 1u);
  EXPECT_EQ(match(new_text).size(), 3u);
  EXPECT_EQ(cache_.reclaim(100), 4);
  EXPECT_EQ(pool_->pages_free(), 12);
  check();
}

TEST_F(PrefixCacheTest, AHitMakesAPathYoung) {
  store(text_of(1, 3));
  store(text_of(2, 3));
  match(text_of(1, 3));
  EXPECT_EQ(cache_.reclaim(3), 3);
  EXPECT_EQ(match(text_of(1, 3)).size(), 3u);
  EXPECT_TRUE(match(text_of(2, 3)).empty());
}

TEST_F(PrefixCacheTest, NeverReclaimsWhatASequenceHolds) {
  const auto text = text_of(1, 4);
  store(text);
  const auto held = match(std::span(text).first(2 * kPageTokens));
  EXPECT_EQ(cache_.reclaim(100), 2);
  EXPECT_EQ(match(text).size(), 2u);
  check();
}

TEST_F(PrefixCacheTest, ReclaimNeverLeavesAnOrphan) {
  testing::SeqRandom random(9);
  std::vector<std::vector<PageRef>> held;
  for (int round = 0; round < 2000; ++round) {
    auto text = text_of(static_cast<std::uint64_t>(random.between(1, 4)), 4);
    const auto pages = static_cast<std::size_t>(random.between(1, 4));
    if (random.chance(0.5)) text[static_cast<std::size_t>(random.between(0, 63))] ^= 1;
    const auto part = std::span(text).first(pages * kPageTokens);
    if (pool_->pages_free() < 4) cache_.reclaim(4 - pool_->pages_free());
    if (pool_->pages_free() >= 4) held.push_back(hold(part));
    if (held.size() > 2 || random.chance(0.3)) held.erase(held.begin());
    if (random.chance(0.1)) cache_.reclaim(random.between(1, 3));
    check();
  }
  held.clear();
  cache_.reclaim(100);
  EXPECT_EQ(pool_->pages_free(), 12);
}

TEST_F(PrefixCacheTest, SaysWhyItMissed) {
  const auto text = text_of(1, 3);
  const auto keys = chain_keys(root_, text);
  EXPECT_EQ(cache_.why_missed(keys, 0), MissReason::kCold);
  store(text);
  EXPECT_EQ(cache_.why_missed(keys, 3), MissReason::kNone);
  auto longer = text_of(1, 4);  // the same text goes on
  ASSERT_TRUE(std::equal(text.begin(), text.end(), longer.begin()));
  EXPECT_EQ(cache_.why_missed(chain_keys(root_, longer), 3), MissReason::kNone);
  auto other = text;
  other[kPageTokens + 2] ^= 1;
  EXPECT_EQ(cache_.why_missed(chain_keys(root_, other), 1), MissReason::kDiverged);
  cache_.reclaim(3);
  EXPECT_EQ(cache_.why_missed(keys, 0), MissReason::kEvicted);
}

TEST_F(PrefixCacheTest, LoadHasNothingToBring) {
  bool called = false;
  cache_.load({}, [&](const std::vector<PageId>& pages) { called = pages.empty(); });
  EXPECT_TRUE(called);
}

TEST_F(PrefixCacheTest, TruncateGivesBackASharedTail) {
  const auto text = text_of(1, 2);
  SequenceKv kv(*spaces_);
  for (PageRef& page : hold(text)) kv.append(std::move(page));
  kv.append(pool_->allocate());
  kv.set_computed(40);
  const SequenceSnapshot point = kv.snapshot();
  kv.append(pool_->allocate());
  kv.set_computed(50);
  kv.restore(point);
  EXPECT_EQ(kv.computed(), 40);  // the tail is the sequence's own
  EXPECT_EQ(kv.page_count(), 3);
  kv.truncate(20);  // inside a page that the cache knows: cannot be written again
  EXPECT_EQ(kv.computed(), 16);
  EXPECT_EQ(kv.page_count(), 1);
  kv.truncate(0);
  EXPECT_EQ(pool_->pages_in_use(), 0);
  check();
}

TEST(KvPool, CountsReferences) {
  auto pool = std::move(*KvPool::make(testing::kv_entry_layout("test").groups, 2));
  PageRef a = pool->allocate();
  PageRef b = pool->allocate();
  EXPECT_FALSE(pool->allocate());
  EXPECT_NE(a.page(), b.page());
  PageRef c = a.share();
  EXPECT_EQ(pool->references(a.page()), 2);
  EXPECT_FALSE(pool->exclusive(a.page()));
  a.reset();
  EXPECT_TRUE(pool->exclusive(c.page()));
  b = std::move(c);
  EXPECT_EQ(pool->pages_free(), 1);
  b.reset();
  EXPECT_EQ(pool->pages_free(), 2);
  pool->check_integrity();
}

}  // namespace
}  // namespace artery::engine
