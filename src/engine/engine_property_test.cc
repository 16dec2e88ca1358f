// Random loads on Core with a model whose every bit depends on the KV it reads back. Each answer
// must equal the same request's answer alone and in turn, whatever ran beside it and however the
// parts of its steps were interleaved; pages are counted after every part. Single-threaded, so a
// failing seed (printed by rapidcheck, RC_PARAMS="seed=...") repeats.

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "engine/core_rig_testing.h"

namespace artery::engine {
namespace {

RC_GTEST_PROP(EngineProperty, AnswersDoNotDependOnWhatRunsBeside, (std::uint64_t seed)) {
  SeqRandom random(seed);
  run_load(random_load(random), random, *rc::gen::inRange(1, 20), 0.0);
}

RC_GTEST_PROP(EngineProperty, CancelledOnesDisturbNobody, (std::uint64_t seed)) {
  SeqRandom random(seed);
  run_load(random_load(random), random, *rc::gen::inRange(1, 20), 0.15);
}

TEST(EngineCancel, TenThousandAtRandomMomentsLeaveNoPage) {
  SeqRandom random(2026);
  Load load;
  load.pages = 60;
  load.config.max_num_seqs = 8;
  load.config.max_num_batched_tokens = 64;
  load.interleave = 2026;
  CoreRig rig(load);
  int cancelled = 0;
  for (int i = 0; i < 10'000; ++i) {
    rig.add(random_request(random, 180));
    const RequestId id = rig.last_id();
    for (std::int64_t steps = random.between(0, 6); steps > 0; --steps) rig.step();
    const std::int64_t aborted = rig.status().aborted;
    rig.core().cancel(id);
    cancelled += static_cast<int>(rig.status().aborted - aborted);
  }
  while (!rig.core().idle()) rig.step();
  rig.core().check_integrity();
  EXPECT_GT(cancelled, 5000);
  EXPECT_EQ(rig.status().aborted, cancelled);
  EXPECT_EQ(rig.status().pages_in_use, 0);
  rig.core().check_integrity();
  EXPECT_TRUE(rig.core().reset_prefix_cache());
  EXPECT_EQ(rig.status().pages_cached, 0);
}

TEST(EnginePreemption, HappensAndIsCounted) {
  Load load;
  load.pages = 8;
  load.config.max_num_seqs = 6;
  load.config.enable_prefix_caching = false;
  CoreRig rig(load);
  SeqRandom random(4);
  std::vector<Request> requests;
  std::vector<std::shared_ptr<EventStream>> events;
  for (int i = 0; i < 5; ++i) {
    Request request;
    request.prompt = {1, 2, 3, static_cast<TokenId>(i)};
    request.max_tokens = 60;
    request.sampling.seed = random.next();
    requests.push_back(request);
    events.push_back(rig.add(request));
  }
  while (!rig.core().idle()) rig.step();
  EXPECT_GT(rig.status().preemptions, 0);
  std::int64_t preemptions = 0;
  for (std::size_t i = 0; i < events.size(); ++i) {
    Answer answer = collect(*events[i], 1, 0);
    preemptions += answer.choices[0].finish->usage.preemptions;
    EXPECT_EQ(answer.choices[0].tokens, alone(requests[i]).choices[0].tokens);
  }
  EXPECT_EQ(preemptions, rig.status().preemptions);
}

// Two waiting requests hold the same cached pages; the one before them needs those. Neither alone
// gives anything back, and both would take them again before the next plan.
TEST(EnginePreemption, PagesSharedByWaitingOnesComeFree) {
  Load load;
  load.pages = 12;
  CoreRig rig(load);
  Request cached;
  cached.prompt.assign(170, 4);
  cached.max_tokens = 2;
  rig.add(cached);
  while (!rig.core().idle()) rig.step();
  ASSERT_GE(rig.status().pages_cached, 10);
  Request first;
  first.prompt.assign(170, 5);
  first.max_tokens = 2;
  const auto events = rig.add(first);
  rig.add(cached);
  rig.add(cached);
  for (int steps = 0; !rig.core().idle(); ++steps) {
    ASSERT_LT(steps, 20);
    rig.step();
  }
  EXPECT_EQ(collect(*events, 1, 0).choices[0].tokens, alone(first).choices[0].tokens);
}

TEST(EngineFork, ChoicesShareThePromptsPages) {
  for (const bool cache : {false, true}) {
    Load load;
    load.config.enable_prefix_caching = cache;
    CoreRig rig(load);
    Request request;
    request.prompt.assign(100, 5);
    request.n = 4;
    request.max_tokens = 10;
    const auto events = rig.add(request);
    rig.step();  // choice 0 computes the prompt
    rig.step();  // all four run
    // 6 whole pages once, and a tail page for each.
    EXPECT_EQ(rig.status().pages_in_use, 6 + 4);
    EXPECT_EQ(rig.status().running, 4);
    while (!rig.core().idle()) rig.step();
    Answer answer = collect(*events, 4, 0);
    EXPECT_NE(answer.choices[0].tokens, answer.choices[1].tokens);
  }
}

TEST(EngineFork, TheNextChoiceTakesOverWhenTheFirstEnds) {
  Load load;
  load.config.prefill_chunk_max = 16;
  CoreRig rig(load);
  Request request;
  request.prompt.assign(100, 5);
  request.n = 3;
  request.max_tokens = 5;
  const auto events = rig.add(request);
  rig.step();
  rig.core().finish_choice(rig.last_id(), 0);
  while (!rig.core().idle()) rig.step();
  Answer answer = collect(*events, 3, 0);
  EXPECT_TRUE(answer.choices[0].tokens.empty());
  EXPECT_EQ(answer.choices[0].finish->reason, FinishReason::kStop);
  const Answer wanted = alone(request);
  EXPECT_EQ(answer.choices[1].tokens, wanted.choices.at(1).tokens);
  EXPECT_EQ(answer.choices[2].tokens, wanted.choices.at(2).tokens);
}

TEST(EngineResume, ContinuesWithTheSameTokens) {
  Request request;
  request.prompt.assign(37, 11);
  request.max_tokens = 40;
  request.sampling.seed = 5;
  request.sampling.repetition_penalty = 1.2;
  const std::vector<TokenId> whole = alone(request).choices[0].tokens;
  for (const std::size_t cut : {1u, 16u, 27u, 39u}) {
    Request rest = request;
    rest.resume_tokens.assign(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(cut));
    Load load;
    CoreRig rig(load);
    const auto events = rig.add(rest);
    while (!rig.core().idle()) rig.step();
    Answer answer = collect(*events, 1, 0);
    EXPECT_EQ(
        answer.choices[0].tokens,
        std::vector<TokenId>(whole.begin() + static_cast<std::ptrdiff_t>(cut), whole.end())
    );
    EXPECT_EQ(answer.choices[0].finish->usage.generated_tokens, 40);
  }
}

TEST(EngineDeadline, EndsRunningAndWaiting) {
  Load load;
  load.config.max_num_seqs = 1;
  CoreRig rig(load);
  Request request;
  request.prompt = {1, 2, 3};
  request.max_tokens = 500;
  request.deadline_ns = rig.clock().monotonic_ns() + 105'000'000;  // ten steps and a half
  const auto running = rig.add(request);
  const auto waiting = rig.add(request);
  while (!rig.core().idle()) rig.step();
  Answer first = collect(*running, 1, 0);
  Answer second = collect(*waiting, 1, 0);
  EXPECT_EQ(first.choices[0].finish->reason, FinishReason::kDeadline);
  EXPECT_EQ(first.choices[0].tokens.size(), 11u);
  EXPECT_EQ(second.choices[0].finish->reason, FinishReason::kDeadline);
  EXPECT_TRUE(second.choices[0].tokens.empty());
  EXPECT_NEAR(second.choices[0].finish->usage.timings.queue_s, 0.11, 1e-6);
  EXPECT_NEAR(first.choices[0].finish->usage.timings.decode_s, 0.11, 1e-6);
}

TEST(EnginePriority, BetterOnesOvertake) {
  Load load;
  load.config.max_num_seqs = 1;
  CoreRig rig(load);
  Request request;
  request.prompt = {1, 2, 3};
  request.max_tokens = 20;
  request.priority = 5;
  rig.add(request);
  rig.step();
  request.priority = 1;
  const auto urgent = rig.add(request);
  for (int i = 0; i < 20; ++i) rig.step();
  EXPECT_EQ(collect(*urgent, 1, 0).choices[0].tokens.size(), 20u);
  EXPECT_EQ(rig.status().preemptions, 1);
  while (!rig.core().idle()) rig.step();
}

}  // namespace
}  // namespace artery::engine
