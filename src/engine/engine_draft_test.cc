// Speculation in Core: fewer steps, the same answers. Random loads with drafts are in
// engine_property_test and engine_window_test.

#include "engine/core_rig_testing.h"

namespace artery::engine {
namespace {

Load with_drafts(SpeculationMode mode) {
  Load load;
  load.config.speculation = {.mode = mode, .tokens = 4, .match_min = 2, .match_max = 8};
  return load;
}

// Says one token for ever.
Request repeating() {
  Request request;
  request.prompt = {1, 2, 3, 4, 5};
  request.max_tokens = 50;
  request.sampling.logit_bias = {{7, 1000.0F}};
  request.sampling.logprobs = 2;
  return request;
}

struct Ran {
  Answer answer;
  Status status;
};

Ran run(const Load& load, const Request& request) {
  CoreRig rig(load);
  const auto events = rig.add(request);
  while (!rig.core().idle()) rig.step();
  return {collect(*events, request.n, 0), rig.status()};
}

void expect_equal(const ChoiceAnswer& a, const ChoiceAnswer& b) {
  EXPECT_EQ(a.tokens, b.tokens);
  EXPECT_TRUE(a.in_order);
  EXPECT_TRUE(equal(a.logprobs, b.logprobs));
  EXPECT_EQ(a.finish->reason, b.finish->reason);
  EXPECT_EQ(a.finish->stop_token, b.finish->stop_token);
}

TEST(Drafts, RepetitionTakesFewerSteps) {
  const Request request = repeating();
  Ran plain = run(with_drafts(SpeculationMode::kOff), request);
  for (const std::uint64_t interleave : {0u, 99u}) {
    Load load = with_drafts(SpeculationMode::kAlways);
    load.interleave = interleave;
    Ran drafted = run(load, request);
    expect_equal(drafted.answer.choices[0], plain.answer.choices[0]);
    EXPECT_EQ(plain.status.steps, 50);
    EXPECT_LE(drafted.status.steps, 16);
    // All come true: what was accepted is what the steps saved.
    EXPECT_EQ(drafted.status.accepted_tokens, drafted.status.draft_tokens);
    EXPECT_EQ(drafted.status.accepted_tokens, 50 - drafted.status.steps);
    EXPECT_EQ(drafted.status.accepted_at[0], drafted.status.drafts);
    EXPECT_EQ(drafted.status.generated_tokens, 50);
  }
}

TEST(Drafts, AStopTokenInsideADraftEnds) {
  Request request = repeating();
  request.sampling.stop_ids = {7};
  request.sampling.min_tokens = 9;
  request.sampling.logit_bias.push_back({8, 500.0F});  // what is said until then
  Ran plain = run(with_drafts(SpeculationMode::kOff), request);
  Ran drafted = run(with_drafts(SpeculationMode::kAlways), request);
  expect_equal(drafted.answer.choices[0], plain.answer.choices[0]);
  EXPECT_EQ(drafted.answer.choices[0].tokens, std::vector<TokenId>(9, 8));
  EXPECT_EQ(drafted.answer.choices[0].finish->stop_token, 7);
  EXPECT_LT(drafted.status.accepted_tokens, drafted.status.draft_tokens);
}

TEST(Drafts, NeverBeyondMaxTokens) {
  for (std::int64_t most = 1; most <= 12; ++most) {
    Request request = repeating();
    request.max_tokens = most;
    Ran drafted = run(with_drafts(SpeculationMode::kAlways), request);
    EXPECT_EQ(std::ssize(drafted.answer.choices[0].tokens), most);
  }
}

// A context that the text fills to the last position.
TEST(Drafts, NeverBeyondTheContext) {
  Request request = repeating();
  request.prompt.assign(150, 7);
  request.max_tokens = -1;
  Ran plain = run(with_drafts(SpeculationMode::kOff), request);
  Ran drafted = run(with_drafts(SpeculationMode::kAlways), request);
  expect_equal(drafted.answer.choices[0], plain.answer.choices[0]);
  EXPECT_GT(drafted.status.accepted_tokens, 0);
}

TEST(Drafts, PenaltiesAndGrammarsGoWithout) {
  Request request = repeating();
  request.sampling.repetition_penalty = 1.1;
  EXPECT_EQ(run(with_drafts(SpeculationMode::kAlways), request).status.drafts, 0);
  request = repeating();
  request.make_matcher = random_grammar(3);
  EXPECT_EQ(run(with_drafts(SpeculationMode::kAlways), request).status.drafts, 0);
}

// A batch mate that never repeats, and choices of one prompt.
TEST(Drafts, BatchMatesKeepTheirTokens) {
  Request mate;
  mate.prompt.assign(40, 11);
  mate.max_tokens = 60;
  mate.n = 3;
  mate.sampling.temperature = 1.5;
  for (const std::uint64_t interleave : {0u, 5u}) {
    Load load = with_drafts(SpeculationMode::kAlways);
    load.interleave = interleave;
    CoreRig rig(load);
    const auto one = rig.add(repeating());
    const auto two = rig.add(mate);
    while (!rig.core().idle()) rig.step();
    Answer first = collect(*one, 1, 0), second = collect(*two, 3, 0);
    Answer first_alone = alone(repeating()), second_alone = alone(mate);
    expect_equal(first.choices[0], first_alone.choices[0]);
    for (int choice = 0; choice < 3; ++choice)
      expect_equal(second.choices[choice], second_alone.choices[choice]);
    EXPECT_GT(rig.status().accepted_tokens, 0);
  }
}

// What was drafted, and written into pages, is no prefix: the cache holds only what was said.
TEST(Drafts, TheCacheHoldsOnlyWhatWasSaid) {
  Load load = with_drafts(SpeculationMode::kAlways);
  CoreRig rig(load);
  Request request = repeating();
  request.prompt.assign(33, 7);
  request.prompt.push_back(1);
  request.sampling.logit_bias = {{7, 100.0F}, {1, 100.0F}};
  request.sampling.temperature = 1;
  const auto events = rig.add(request);
  while (!rig.core().idle()) rig.step();
  Request next = request;
  const Answer said = collect(*events, 1, 0);
  const std::vector<TokenId>& tokens = said.choices.at(0).tokens;
  next.prompt.insert(next.prompt.end(), tokens.begin(), tokens.end());
  const auto again = rig.add(next);
  while (!rig.core().idle()) rig.step();
  Answer got = collect(*again, 1, 0);
  EXPECT_GE(got.choices[0].finish->usage.cached_tokens, 64);
  Answer wanted = alone(next);
  expect_equal(got.choices[0], wanted.choices[0]);
}

}  // namespace
}  // namespace artery::engine
