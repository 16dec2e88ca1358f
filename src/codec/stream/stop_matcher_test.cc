#include "codec/stream/stop_matcher.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <string>
#include <vector>

namespace artery::codec {
namespace {

struct Outcome {
  std::string text;
  std::string matched;
  bool operator==(const Outcome&) const = default;
};

// The definition, by brute force: the stop that is complete first, of those the longest.
Outcome expected(const std::string& text, const std::vector<std::string>& stops, bool include) {
  for (std::size_t end = 1; end <= text.size(); ++end) {
    const std::string seen = text.substr(0, end);
    const std::string* best = nullptr;
    for (const std::string& stop : stops)
      if (!stop.empty() && seen.ends_with(stop) && (best == nullptr || stop.size() > best->size()))
        best = &stop;
    if (best != nullptr) return {include ? seen : seen.substr(0, end - best->size()), *best};
  }
  return {text, ""};
}

Outcome run(StopMatcher& matcher, const std::vector<std::string>& deltas) {
  Outcome out;
  for (const std::string& delta : deltas) out.text += matcher.push(delta);
  out.text += matcher.finish();
  if (matcher.stopped()) out.matched = matcher.matched();
  return out;
}

TEST(StopMatcher, FindsAcrossDeltasAndHoldsBack) {
  StopMatcher matcher({"ed to pl"});
  EXPECT_EQ(matcher.push(" lov"), " lov");
  EXPECT_EQ(matcher.push("ed"), "");
  EXPECT_EQ(matcher.push(" to"), "");
  EXPECT_EQ(matcher.push(" play"), "");
  ASSERT_TRUE(matcher.stopped());
  EXPECT_EQ(matcher.matched(), "ed to pl");
  EXPECT_EQ(matcher.push(" more"), "");
  EXPECT_EQ(matcher.finish(), "");
}

TEST(StopMatcher, ReleasesWhatNeverBecomesAStop) {
  StopMatcher matcher({"named Bob"});
  EXPECT_EQ(matcher.push("girl named "), "girl ");
  EXPECT_EQ(matcher.push("Lily"), "named Lily");
  EXPECT_EQ(matcher.push(" nam"), " ");
  EXPECT_EQ(matcher.finish(), "nam");
  EXPECT_FALSE(matcher.stopped());
}

TEST(StopMatcher, RepeatsInsideAStop) {
  StopMatcher matcher({"aab"});
  EXPECT_EQ(matcher.push("aaa"), "a");
  EXPECT_EQ(matcher.push("ab"), "a");
  EXPECT_TRUE(matcher.stopped());
}

TEST(StopMatcher, EmptyStopsAreIgnored) {
  StopMatcher matcher({"", ""});
  EXPECT_EQ(matcher.push("text"), "text");
  EXPECT_FALSE(matcher.stopped());
}

TEST(StopMatcher, ShowsTheStopWhenAsked) {
  StopMatcher matcher({"."}, true);
  EXPECT_EQ(matcher.push("End. More"), "End.");
  EXPECT_EQ(matcher.matched(), ".");
}

// Few letters, so that stops occur, overlap and nest.
rc::Gen<std::string> short_text() {
  return rc::gen::container<std::string>(rc::gen::element('a', 'b', 'c'));
}

TEST(StopMatcher, EverySplitGivesTheDefinition) {
  EXPECT_TRUE(rc::check("stops in random texts cut at random", [] {
    const auto stops = *rc::gen::container<std::vector<std::string>>(short_text());
    const auto deltas = *rc::gen::container<std::vector<std::string>>(short_text());
    const bool include = *rc::gen::arbitrary<bool>();
    std::string text;
    for (const std::string& delta : deltas) text += delta;
    const Outcome want = expected(text, stops, include);

    StopMatcher cut(stops, include);
    RC_ASSERT(run(cut, deltas) == want);
    StopMatcher whole(stops, include);
    RC_ASSERT(run(whole, {text}) == want);
  }));
}

TEST(StopMatcher, NoDeltaHoldsPartOfTheStopThatComes) {
  EXPECT_TRUE(rc::check("shown text never reaches into the stop", [] {
    const auto stops = *rc::gen::container<std::vector<std::string>>(short_text());
    const auto text = *short_text();
    const Outcome want = expected(text, stops, false);
    StopMatcher matcher(stops);
    std::string shown;
    for (char c : text) {
      shown += matcher.push(std::string(1, c));
      RC_ASSERT(want.text.starts_with(shown));
    }
    // Nothing is held that could not still become a stop.
    if (!matcher.stopped()) {
      const std::string held = text.substr(shown.size());
      const bool begins_a_stop = std::any_of(stops.begin(), stops.end(), [&](const auto& stop) {
        return stop.starts_with(held);
      });
      RC_ASSERT(held.empty() || begins_a_stop);
    }
  }));
}

}  // namespace
}  // namespace artery::codec
