#include "engine/window_cache.h"

#include <gtest/gtest.h>

#include <limits>

#include "engine/sequence_kv.h"
#include "testing/hash_model.h"
#include "testing/window_model.h"

namespace artery::engine {
namespace {

ChainKey key(std::uint8_t name) {
  ChainKey out{};
  out[0] = name;
  return out;
}

class WindowCacheTest : public ::testing::Test {
 protected:
  void save(std::uint8_t name, const std::vector<PageRef>& pages) {
    std::vector<PageRef> shared;
    for (const PageRef& page : pages) shared.push_back(page.share());
    cache_.save(key(name), std::move(shared), now_ns_);
    cache_.check_integrity();
  }
  std::vector<PageRef> take(int count) {
    std::vector<PageRef> out;
    for (int i = 0; i < count; ++i) out.push_back(pool_->allocate());
    return out;
  }

  std::unique_ptr<KvPool> pool_ =
      std::move(*KvPool::make(testing::kv_entry_layout("test").groups, 8));
  WindowCache cache_{*pool_, 180};
  std::int64_t now_ns_ = 5'000'000'000;
};

TEST_F(WindowCacheTest, KeepsPagesOfASequenceThatEnded) {
  auto mine = take(3);
  const PageId first = mine[0].page();
  save(1, mine);
  EXPECT_EQ(cache_.pages_idle(), 0);
  mine.clear();
  EXPECT_EQ(cache_.pages_idle(), 3);
  EXPECT_EQ(pool_->pages_free(), 5);
  const auto restored = cache_.restore(key(1), now_ns_);
  ASSERT_EQ(restored.size(), 3u);
  EXPECT_EQ(restored[0].page(), first);
  EXPECT_EQ(pool_->references(first), 2);
  EXPECT_EQ(cache_.pages_idle(), 0);
}

TEST_F(WindowCacheTest, GivesTheLeastRecentlyUsedBackFirst) {
  save(1, take(2));
  save(2, take(2));
  save(3, take(2));
  EXPECT_EQ(cache_.restore(key(1), now_ns_).size(), 2u);  // used now
  const std::uint64_t before = cache_.generation();
  cache_.reclaim(4);
  EXPECT_NE(cache_.generation(), before);
  EXPECT_TRUE(cache_.contains(key(1)));
  EXPECT_FALSE(cache_.contains(key(2)));
  EXPECT_TRUE(cache_.contains(key(3)));
  cache_.reclaim(4);  // there are
  EXPECT_EQ(cache_.windows(), 2);
  cache_.reclaim(8);
  EXPECT_EQ(cache_.windows(), 0);
  EXPECT_EQ(pool_->pages_free(), 8);
}

TEST_F(WindowCacheTest, WindowsShareTheirPages) {
  auto pages = take(4);
  std::vector<PageRef> early;
  std::vector<PageRef> late;
  for (std::size_t i = 0; i < 3; ++i) early.push_back(pages[i].share());
  for (std::size_t i = 1; i < 4; ++i) late.push_back(pages[i].share());
  save(1, early);
  save(2, late);
  pages.clear();
  early.clear();
  late.clear();
  EXPECT_EQ(cache_.pages_idle(), 4);
  cache_.erase(key(1));
  EXPECT_EQ(cache_.pages_idle(), 3);
  cache_.check_integrity();
  cache_.clear();
  EXPECT_EQ(pool_->pages_free(), 8);
}

TEST_F(WindowCacheTest, AKnownWindowStays) {
  auto first = take(1);
  save(1, first);
  const std::uint64_t before = cache_.generation();
  save(1, take(1));
  EXPECT_EQ(cache_.generation(), before);
  EXPECT_EQ(cache_.restore(key(1), now_ns_)[0].page(), first[0].page());
  EXPECT_EQ(pool_->pages_free(), 7);
}

TEST_F(WindowCacheTest, TimeRunsFromTheLastUse) {
  constexpr std::int64_t kSecond = 1'000'000'000;
  save(1, take(2));
  save(2, take(2));
  now_ns_ += 100 * kSecond;
  const auto used = cache_.restore(key(1), now_ns_);
  now_ns_ += 80 * kSecond - 1;
  const std::uint64_t before = cache_.generation();
  EXPECT_EQ(cache_.expire(now_ns_), 0);
  EXPECT_EQ(cache_.generation(), before);
  now_ns_ += 1;
  EXPECT_EQ(cache_.expire(now_ns_), 1);
  EXPECT_NE(cache_.generation(), before);
  EXPECT_FALSE(cache_.contains(key(2)));
  EXPECT_TRUE(cache_.contains(key(1)));
  EXPECT_EQ(pool_->pages_free(), 6);
  save(1, take(2));  // known: used now
  now_ns_ += 179 * kSecond;
  EXPECT_EQ(cache_.expire(now_ns_), 0);
  now_ns_ += kSecond;
  EXPECT_EQ(cache_.expire(now_ns_), 1);
  // Whoever goes on from it holds its pages.
  EXPECT_EQ(pool_->pages_free(), 6);
  EXPECT_EQ(pool_->references(used[0].page()), 1);
  cache_.check_integrity();
}

TEST_F(WindowCacheTest, WithoutATimeNothingExpires) {
  WindowCache cache(*pool_, std::numeric_limits<double>::infinity());
  cache.save(key(1), take(1), now_ns_);
  EXPECT_EQ(cache.expire(now_ns_ + (std::int64_t{1} << 61)), 0);  // 73 years
}

TEST_F(WindowCacheTest, ReclaimStopsWhereSequencesHoldThePages) {
  auto mine = take(5);
  save(1, mine);
  cache_.reclaim(8);
  EXPECT_EQ(cache_.windows(), 0);
  EXPECT_EQ(pool_->pages_free(), 3);
}

TEST(WindowShape, CountsWhatARowDependsOn) {
  const testing::WindowModel model(8, 512, "wgww", 20);
  const WindowShape shape = WindowShape::of(model.kv_layout());
  EXPECT_EQ(shape.tokens, 20);
  EXPECT_EQ(shape.reach, 3 * 19);
  EXPECT_EQ(shape.pages(), 2);
  EXPECT_EQ(shape.first_page(31), 0);
  EXPECT_EQ(shape.first_page(64), 2);
  EXPECT_EQ(shape.rebuild_from(48), 0);
  EXPECT_EQ(shape.rebuild_from(80), 16);  // 23, down to a page
  WindowShape replay = shape;
  replay.replay = 20;
  EXPECT_EQ(replay.rebuild_from(80), 48);  // 60, down to a page
  EXPECT_EQ(replay.rebuild_from(16), 0);
  EXPECT_EQ(replay.exact_from(80), 16);
  EXPECT_FALSE(WindowShape::of(testing::kv_entry_layout("test")));
}

class SequenceWindowTest : public ::testing::Test {
 protected:
  // As a running sequence does, page by page.
  void grow(std::int64_t tokens) {
    while (kv_.page_count() * kPageTokens < tokens) kv_.append(spaces_->global().allocate());
    while (kv_.window_end() * kPageTokens < tokens) {
      kv_.append_window(spaces_->window().allocate());
    }
    kv_.set_computed(tokens);
    kv_.release_behind();
  }

  const testing::WindowModel model_{8, 512, "wgw", 20};  // 2 pages, reach 38
  std::unique_ptr<KvSpaces> spaces_ = std::move(*KvSpaces::make(model_.kv_layout(), 32, 32));
  SequenceKv kv_{*spaces_};
};

TEST_F(SequenceWindowTest, HoldsWhatTheNextRowsAndTheLastBoundaryRead) {
  grow(15);
  EXPECT_EQ(kv_.window_begin(), 0);
  grow(70);
  EXPECT_EQ(kv_.window_begin(), 2);
  EXPECT_EQ(kv_.window_count(), 3);
  EXPECT_TRUE(kv_.window_exact(64));
  EXPECT_FALSE(kv_.window_exact(48));
  EXPECT_FALSE(kv_.window_exact(80));
  EXPECT_EQ(kv_.share_window(64).size(), 2u);
  EXPECT_EQ(spaces_->window().pages_in_use(), 3);
}

TEST_F(SequenceWindowTest, ARebuiltWindowIsExactWhereTheHitEnds) {
  grow(96);
  kv_.drop_windows();
  kv_.start_at(48, false);
  EXPECT_EQ(kv_.computed(), 48);
  EXPECT_EQ(kv_.ready(), 96);
  grow(80);
  EXPECT_FALSE(kv_.window_exact(80));
  grow(100);
  EXPECT_TRUE(kv_.window_exact(96));
  EXPECT_EQ(kv_.hit_end(), 96);
}

TEST_F(SequenceWindowTest, TruncateKeepsTheWindowWhereItCan) {
  grow(100);
  kv_.truncate(97);
  EXPECT_EQ(kv_.computed(), 97);
  EXPECT_EQ(kv_.window_end(), 7);
  auto saved = kv_.share_window(96);
  kv_.truncate(90);  // inside a page that a saved window shares; the one before needs page 3
  EXPECT_EQ(kv_.computed(), 32);  // 80 - 38, down to a page
  EXPECT_EQ(kv_.ready(), 80);
  EXPECT_EQ(kv_.page_count(), 5);
  EXPECT_EQ(kv_.window_count(), 0);
  kv_.truncate(0);
  saved.clear();
  EXPECT_EQ(spaces_->window().pages_in_use(), 0);
  EXPECT_EQ(spaces_->global().pages_in_use(), 0);
}

}  // namespace
}  // namespace artery::engine
