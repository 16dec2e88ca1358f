#include "engine/spec/ngram.h"

#include <gtest/gtest.h>

#include <random>

namespace artery::engine {
namespace {

using Tokens = std::vector<TokenId>;

Tokens propose(NgramIndex& index, const Tokens& text, int count) {
  const auto found = index.propose(text, count);
  return Tokens(found.begin(), found.end());
}

// The rule of the header, by looking everywhere.
Tokens propose_plainly(const Tokens& text, int match_min, int match_max, int count) {
  int best = match_min - 1;
  std::size_t best_end = 0;
  for (std::size_t end = text.size(); end-- > 1;) {
    int length = 0;
    while (length < match_max && static_cast<std::size_t>(length) < end &&
           text[end - 1 - static_cast<std::size_t>(length)] ==
               text[text.size() - 1 - static_cast<std::size_t>(length)])
      ++length;
    if (length > best) {
      best = length;
      best_end = end;
    }
  }
  if (best_end == 0) return {};
  Tokens out;
  Tokens round(text.begin() + static_cast<std::ptrdiff_t>(best_end), text.end());
  for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i)
    out.push_back(round[i % round.size()]);
  return out;
}

TEST(NgramTest, ProposesWhatFollowedBefore) {
  NgramIndex index(2, 8);
  EXPECT_EQ(propose(index, {1, 2, 3, 4, 5, 9, 1, 2}, 3), (Tokens{3, 4, 5}));
}

TEST(NgramTest, NeedsEnoughEqualTokens) {
  NgramIndex index(3, 8);
  EXPECT_EQ(propose(index, {1, 2, 3, 4, 5, 9, 2, 3}, 3), Tokens{});
  EXPECT_EQ(propose(index, {1, 2, 3, 4, 5, 9, 2, 3, 4}, 3), (Tokens{5, 9, 2}));
}

TEST(NgramTest, TheLongestMatchWinsThenTheLatest) {
  NgramIndex index(1, 8);
  EXPECT_EQ(propose(index, {7, 1, 2, 50, 8, 1, 2, 60, 7, 1, 2}, 1), Tokens{50});
  NgramIndex again(1, 8);
  EXPECT_EQ(propose(again, {1, 2, 50, 1, 2, 60, 9, 2}, 1), Tokens{60});
}

TEST(NgramTest, ShortAndEmptyTexts) {
  NgramIndex index(2, 4);
  EXPECT_EQ(propose(index, {}, 4), Tokens{});
  EXPECT_EQ(propose(index, {1}, 4), Tokens{});
  EXPECT_EQ(propose(index, {1, 1}, 4), Tokens{});
  EXPECT_EQ(propose(index, {1, 1, 1}, 4), (Tokens{1, 1, 1, 1}));
  EXPECT_EQ(propose(index, {1, 1, 1, 1}, 0), Tokens{});
}

TEST(NgramTest, AgreesWithLookingEverywhere) {
  std::mt19937 random(5);
  for (int round = 0; round < 200; ++round) {
    const int match_min = 1 + static_cast<int>(random() % 3);
    const int match_max = match_min + static_cast<int>(random() % 5);
    NgramIndex index(match_min, match_max);
    Tokens text;
    // Fewer places than the index looks at.
    while (text.size() < 60) {
      const std::size_t more = 1 + random() % 7;
      for (std::size_t i = 0; i < more; ++i) text.push_back(static_cast<TokenId>(random() % 4));
      const int count = static_cast<int>(random() % 6);
      ASSERT_EQ(propose(index, text, count), propose_plainly(text, match_min, match_max, count))
          << "round " << round << ", " << text.size() << " tokens";
    }
  }
}

// One token for ever: each of 20,000 proposals looks at a bounded number of places.
TEST(NgramTest, RepetitionStaysCheap) {
  NgramIndex index(1, 1 << 20);
  Tokens text;
  std::size_t proposed = 0;
  for (int i = 0; i < 20'000; ++i) {
    text.push_back(1);
    if (i % 100 == 0) proposed += index.propose(text, 4).size();
  }
  EXPECT_GT(proposed, 100u);
}

}  // namespace
}  // namespace artery::engine
