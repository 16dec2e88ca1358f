// Window groups in the engine: random loads as in engine_property_test, and each way to begin at a
// prefix hit by itself. The model's bits depend on every entry that its layers may read
// (testing/window_model.h), and pages that nobody holds are full of garbage.

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>

#include "engine/core_rig_testing.h"
#include "engine/kv_namespace.h"

namespace artery::engine {
namespace {

// Few saved windows, so that they are evicted and rebuilt.
Load random_window_load(SeqRandom& random) {
  Load load = random_load(random);
  constexpr const char* kLayers[] = {"wg", "gw", "wgw", "wwgw", "w", "ww", "gwwwg"};
  constexpr int kWindows[] = {1, 2, 5, 16, 17, 18, 33, 50, 120, 1000};
  load.layers = kLayers[random.between(0, 6)];
  load.window = kWindows[random.between(0, 9)];
  load.empty_global = random.chance(0.5);
  load.saved_pages = random.chance(0.5) ? random.between(0, 20) : 300;
  return load;
}

RC_GTEST_PROP(EngineWindows, AnswersDoNotDependOnWhatRunsBeside, (std::uint64_t seed)) {
  SeqRandom random(seed);
  const Load load = random_window_load(random);
  run_load(load, random, *rc::gen::inRange(1, 20), 0.0);
}

RC_GTEST_PROP(EngineWindows, CancelledOnesDisturbNobody, (std::uint64_t seed)) {
  SeqRandom random(seed);
  const Load load = random_window_load(random);
  run_load(load, random, *rc::gen::inRange(1, 20), 0.15);
}

constexpr int kWindow = 20;  // 2 pages before a boundary

Load small_load() {
  Load load;
  load.layers = "wgw";  // a row depends on 2 * 19 rows before it
  load.window = kWindow;
  load.saved_pages = 100;
  return load;
}

Request prompt_of(std::int64_t tokens, std::int64_t max_tokens) {
  Request request;
  SeqRandom text(7);
  while (static_cast<std::int64_t>(request.prompt.size()) < tokens) {
    request.prompt.push_back(static_cast<TokenId>(text.between(0, kVocab - 1)));
  }
  request.max_tokens = max_tokens;
  request.sampling.temperature = 0;
  request.sampling.logprobs = 2;
  return request;
}

// Runs it to its end and compares it with the same request alone.
Usage ask_alone_and_here(CoreRig& rig, const Load& load, const Request& request) {
  const auto events = rig.add(request);
  while (!rig.core().idle()) rig.step();
  Answer got = collect(*events, request.n, 0);
  const Answer wanted = alone(request, load);
  for (const auto& [choice, answer] : wanted.choices) {
    EXPECT_EQ(got.choices[choice].tokens, answer.tokens);
    EXPECT_TRUE(equal(got.choices[choice].logprobs, answer.logprobs));
  }
  return got.choices[0].finish->usage;
}

TEST(EngineWindow, AnEqualPromptGoesOnFromTheSavedWindow) {
  const Load load = small_load();
  CoreRig rig(load);
  const Request request = prompt_of(100, 8);
  EXPECT_EQ(ask_alone_and_here(rig, load, request).cached_tokens, 0);
  const Usage usage = ask_alone_and_here(rig, load, request);
  EXPECT_EQ(usage.cached_tokens, 96);
  EXPECT_EQ(usage.miss, MissReason::kNone);
  EXPECT_EQ(rig.status().windows_restored, 1);
  EXPECT_EQ(rig.status().windows_rebuilt, 0);
  EXPECT_EQ(rig.status().window_rows, 0);
}

TEST(EngineWindow, AConversationGoesOnFromTheOutputsEnd) {
  const Load load = small_load();
  CoreRig rig(load);
  Request request = prompt_of(50, 40);
  const auto events = rig.add(request);
  while (!rig.core().idle()) rig.step();
  Answer first = collect(*events, 1, 0);
  for (const TokenId token : first.choices[0].tokens) request.prompt.push_back(token);
  for (TokenId token = 0; token < 20; ++token) request.prompt.push_back(token);
  // 89 of the 90 tokens were computed.
  EXPECT_EQ(ask_alone_and_here(rig, load, request).cached_tokens, 80);
  EXPECT_EQ(rig.status().window_rows, 0);
}

// The last of the cached pages has no window: the rows it depends on run again, 38 of them from a
// page boundary on, and what they reach is saved for the next one.
TEST(EngineWindow, ABranchIsRebuiltOnceAndThenSaved) {
  const Load load = small_load();
  CoreRig rig(load);
  const Request whole = prompt_of(150, 4);
  ask_alone_and_here(rig, load, whole);
  Request branch = whole;
  branch.prompt.resize(100);
  branch.prompt.push_back(whole.prompt[100] == 1 ? 2 : 1);
  EXPECT_EQ(ask_alone_and_here(rig, load, branch).cached_tokens, 48);  // 96 - 38, down to a page
  EXPECT_EQ(rig.status().windows_rebuilt, 1);
  EXPECT_EQ(rig.status().window_rows, 48);
  branch.prompt.back() = (branch.prompt.back() + 3) % kVocab;
  EXPECT_EQ(ask_alone_and_here(rig, load, branch).cached_tokens, 96);
  EXPECT_EQ(rig.status().windows_restored, 1);
  EXPECT_EQ(rig.status().window_rows, 48);
}

// The model is one that finds a rebuild of too few rows out: row 96 sees rows 58 .. 96 through two
// windows of 20, each of them.
TEST(EngineWindow, EveryRowOfTheReachMatters) {
  Load load;
  load.layers = "ww";
  load.window = kWindow;
  const Request request = prompt_of(97, 1);
  const auto answer_of = [&](int changed) {
    Request other = request;
    if (changed >= 0) other.prompt[static_cast<std::size_t>(changed)] ^= 1;
    return alone(other, load).choices[0].logprobs[0].chosen.logprob;
  };
  const float same = answer_of(-1);
  EXPECT_EQ(answer_of(57), same);
  EXPECT_NE(answer_of(58), same);
  EXPECT_NE(answer_of(59), same);
}

// A request that ends while its window is being rebuilt leaves none: what it has is not exact.
TEST(EngineWindow, NothingInexactIsSaved) {
  Load load = small_load();
  load.config.prefill_chunk_max = 16;
  CoreRig rig(load);
  const Request whole = prompt_of(150, 4);
  ask_alone_and_here(rig, load, whole);
  Request branch = whole;
  branch.prompt.resize(120);
  branch.prompt.push_back(whole.prompt[120] == 1 ? 2 : 1);
  rig.add(branch);
  rig.step();  // rows 64 .. 111 rebuild
  rig.step();
  rig.core().cancel(rig.last_id());
  EXPECT_EQ(rig.status().window_rows, 48);
  branch.prompt.resize(108);  // 6 pages
  EXPECT_EQ(ask_alone_and_here(rig, load, branch).cached_tokens, 48);
  EXPECT_EQ(rig.status().windows_restored, 0);
}

TEST(EngineWindow, WithoutRoomWindowsAreRebuilt) {
  Load load = small_load();
  load.saved_pages = 0;
  load.config.max_num_seqs = 1;
  load.config.max_num_batched_tokens = 16;
  CoreRig rig(load);
  const Request request = prompt_of(150, 4);
  EXPECT_EQ(ask_alone_and_here(rig, load, request).cached_tokens, 0);
  for (const TokenId token : {3, 4, 5}) {
    Request other = request;
    other.prompt.assign(150, token);
    ask_alone_and_here(rig, load, other);
  }
  EXPECT_EQ(ask_alone_and_here(rig, load, request).cached_tokens, 96);  // 144 - 38, down to a page
  const Status status = rig.status();
  EXPECT_EQ(status.window_pages_in_use, 0);
  EXPECT_EQ(status.windows_rebuilt, 1);
  EXPECT_EQ(status.window_rows, 48);
}

// 180 s after the last use a window is gone; the pages of the prefix cache are not.
TEST(EngineWindow, ASavedWindowLivesForItsTime) {
  const Load load = small_load();
  CoreRig rig(load);
  const Request request = prompt_of(100, 8);
  ask_alone_and_here(rig, load, request);
  rig.clock().advance(170);
  EXPECT_EQ(ask_alone_and_here(rig, load, request).cached_tokens, 96);  // used: 180 s more
  rig.clock().advance(170);
  EXPECT_EQ(ask_alone_and_here(rig, load, request).cached_tokens, 96);
  rig.clock().advance(181);
  EXPECT_EQ(ask_alone_and_here(rig, load, request).cached_tokens, 48);  // 96 - 38, down to a page
  const Status status = rig.status();
  EXPECT_EQ(status.windows_restored, 2);
  EXPECT_EQ(status.windows_rebuilt, 1);
  EXPECT_GE(status.windows_expired, 1);
  EXPECT_EQ(ask_alone_and_here(rig, load, request).cached_tokens, 96);
}

// Its time passes while the sequence that went on from it runs: the pages are the sequence's too.
TEST(EngineWindow, AWindowThatExpiresInUseIsSafe) {
  const Load load = small_load();
  CoreRig rig(load);
  const Request request = prompt_of(100, 30);
  ask_alone_and_here(rig, load, request);
  const auto events = rig.add(request);
  for (int i = 0; i < 5; ++i) rig.step();
  EXPECT_EQ(rig.status().windows_restored, 1);
  rig.clock().advance(200);
  while (!rig.core().idle()) rig.step();  // free pages are garbage
  EXPECT_GE(rig.status().windows_expired, 1);
  const Answer got = collect(*events, 1, 0);
  const Answer wanted = alone(request, load);
  EXPECT_EQ(got.choices.at(0).tokens, wanted.choices.at(0).tokens);
  EXPECT_TRUE(equal(got.choices.at(0).logprobs, wanted.choices.at(0).logprobs));
}

// Fewer rows than make it exact, and the model notices.
TEST(EngineWindow, AReplayIsCheapAndOther) {
  Load load = small_load();
  load.config.swa_replay = 20;
  CoreRig rig(load);
  const Request request = prompt_of(100, 8);
  const auto ask_here = [&] {
    const auto events = rig.add(request);
    while (!rig.core().idle()) rig.step();
    return collect(*events, 1, 0).choices.at(0);
  };
  const ChoiceAnswer cold = ask_here();
  const ChoiceAnswer saved = ask_here();
  EXPECT_TRUE(equal(cold.logprobs, saved.logprobs));
  EXPECT_EQ(saved.finish->usage.cached_tokens, 96);
  rig.clock().advance(200);
  const ChoiceAnswer replayed = ask_here();
  EXPECT_EQ(replayed.finish->usage.cached_tokens, 64);  // 96 - 20, down to a page
  EXPECT_FALSE(equal(cold.logprobs, replayed.logprobs));
  const Status status = rig.status();
  EXPECT_EQ(status.windows_replayed, 1);
  EXPECT_EQ(status.windows_rebuilt, 0);
  EXPECT_EQ(status.window_rows, 32);
  EXPECT_EQ(status.window_rows_spared, 16);  // an exact rebuild begins at 48
}

RC_GTEST_PROP(EngineWindows, ReplaysKeepTheBooks, (std::uint64_t seed)) {
  SeqRandom random(seed);
  Load load = random_window_load(random);
  load.config.swa_replay = static_cast<int>(random.between(1, 60));
  run_load(load, random, *rc::gen::inRange(1, 20), 0.1);
}

std::string numerics_with(std::unique_ptr<model::Model> model, int replay) {
  Config config;
  config.max_model_len = 256;
  config.max_num_seqs = 4;
  config.swa_replay = replay;
  const auto engine = make_engine(std::move(model), config);
  return engine ? (*engine)->numerics_id() : engine.error().message;
}

TEST(EngineWindow, AReplayIsANumericsClassOfItsOwn) {
  const auto windowed = [] {
    return std::make_unique<testing::WindowModel>(kVocab, 1024, "wgw", kWindow);
  };
  const std::string exact = numerics_with(windowed(), -1);
  EXPECT_EQ(numerics_with(windowed(), 20), exact + "+replay-20");
  EXPECT_EQ(numerics_with(windowed(), 38), exact);  // all of the rows that matter
  const std::string plain = numerics_with(std::make_unique<HashModel>(kVocab, 1024), -1);
  EXPECT_EQ(numerics_with(std::make_unique<HashModel>(kVocab, 1024), 20), plain);
  EXPECT_NE(numerics_with(windowed(), 0).find("--swa-replay"), std::string::npos);
  const testing::WindowModel model(kVocab, 1024, "wgw", kWindow);
  EXPECT_NE(
      kv_namespace(model.info(), model.kv_layout(), -1),
      kv_namespace(model.info(), model.kv_layout(), 20)
  );
  EXPECT_NE(
      kv_namespace(model.info(), model.kv_layout(), 21),
      kv_namespace(model.info(), model.kv_layout(), 20)
  );
}

TEST(EngineWindow, PagesBehindTheWindowAreGivenBack) {
  Load load = small_load();
  load.config.enable_prefix_caching = false;
  load.config.prefill_chunk_max = 16;
  CoreRig rig(load);
  rig.add(prompt_of(150, 20));
  std::int64_t most = 0;
  while (!rig.core().idle()) {
    rig.step();
    most = std::max(most, rig.status().window_pages_in_use);
  }
  EXPECT_LE(most, 4);
  EXPECT_GE(most, 2);
  EXPECT_EQ(rig.status().window_pages_in_use, 0);
}

// The leader's window at the prompt's end serves the other choices, with the cache or without it.
TEST(EngineWindow, ChoicesBeginAtThePromptsEnd) {
  for (const bool cache : {false, true}) {
    Load load = small_load();
    load.config.enable_prefix_caching = cache;
    CoreRig rig(load);
    Request request = prompt_of(100, 10);
    request.n = 4;
    request.sampling.temperature = 1;
    const auto events = rig.add(request);
    while (!rig.core().idle()) rig.step();
    EXPECT_EQ(rig.status().windows_restored, 3);
    EXPECT_EQ(rig.status().window_rows, 0);
    EXPECT_EQ(rig.status().windows_saved > 0, cache);
    Answer answer = collect(*events, 4, 0);
    // Each choice by itself: the ones before it end before the prompt is computed.
    for (int choice = 1; choice < 4; ++choice) {
      load.config.prefill_chunk_max = 16;
      load.config.enable_prefix_caching = false;
      CoreRig single(load);
      const auto only = single.add(request);
      single.step();
      for (int other = 0; other < 4; ++other) {
        if (other != choice) single.core().finish_choice(single.last_id(), other);
      }
      while (!single.core().idle()) single.step();
      EXPECT_EQ(single.status().windows_restored, 0);
      EXPECT_EQ(collect(*only, 4, 0).choices[choice].tokens, answer.choices[choice].tokens);
    }
  }
}

// Two slots, 9 window pages: two sequences hold 3 each, or 4 where one enters a page, and the saved
// window of the next one 2. It may not begin with that while the last row of another is on its way.
TEST(EngineWindow, OneThatEndsKeepsItsSlotUntilItsLastRowLanded) {
  for (int more = 0; more < 16; ++more) {
    Load load = small_load();
    load.window = 33;
    load.saved_pages = 0;
    load.config.max_num_seqs = 2;
    load.config.max_num_batched_tokens = 2;
    CoreRig rig(load);
    const Request next = prompt_of(49, 2);
    ask_alone_and_here(rig, load, next);
    Request ends = prompt_of(20, 40 + more);
    std::reverse(ends.prompt.begin(), ends.prompt.end());
    Request goes_on = prompt_of(20, 100);
    std::rotate(goes_on.prompt.begin(), goes_on.prompt.begin() + 5, goes_on.prompt.end());
    ends.use_prefix_cache = goes_on.use_prefix_cache = false;  // they save nothing
    for (const Request& request : {ends, goes_on, next}) rig.add(request);
    Core& core = rig.core();
    std::unique_ptr<StepWork> now = core.prepare();
    while (now != nullptr) {
      core.arm(*now);
      std::unique_ptr<StepWork> ahead = core.prepare();
      core.runner().forward(*now);
      core.runner().sample(*now);
      core.complete(std::move(now));
      core.check_integrity();
      now = ahead != nullptr ? std::move(ahead) : core.prepare();
    }
    EXPECT_TRUE(core.idle());
    EXPECT_EQ(rig.status().windows_restored, 1) << more;
  }
}

TEST(EngineWindow, ResetDropsThem) {
  const Load load = small_load();
  CoreRig rig(load);
  ask_alone_and_here(rig, load, prompt_of(100, 4));
  EXPECT_GT(rig.status().windows_saved, 0);
  EXPECT_GT(rig.status().window_pages_saved, 0);
  EXPECT_TRUE(rig.core().reset_prefix_cache());
  EXPECT_EQ(rig.status().windows_saved, 0);
  EXPECT_EQ(rig.status().window_pages_saved, 0);
  EXPECT_EQ(ask_alone_and_here(rig, load, prompt_of(100, 4)).cached_tokens, 0);
}

TEST(EngineWindow, TheEngineSaysHowManyPagesThereAre) {
  Config config;
  config.max_model_len = 256;
  config.max_num_seqs = 4;
  auto engine =
      make_engine(std::make_unique<testing::WindowModel>(kVocab, 1024, "wgw", kWindow), config);
  ASSERT_TRUE(engine);
  const Request request = prompt_of(100, 4);
  const Answer first = ask(**engine, request);
  const Answer second = ask(**engine, request);
  EXPECT_EQ(first.choices.at(0).tokens, second.choices.at(0).tokens);
  EXPECT_EQ(second.choices.at(0).finish->usage.cached_tokens, 96);
  EXPECT_TRUE((*engine)->drain(10));
  const Status status = (*engine)->status();
  EXPECT_GT(status.window_pages_total, 0);
  EXPECT_EQ(status.window_pages_in_use, 0);
  EXPECT_EQ(status.windows_restored, 1);
}

}  // namespace
}  // namespace artery::engine
