// The two ways to schedule give the same answers: planned ahead on two threads, and in turn on one.

#include <gtest/gtest.h>

#include <algorithm>
#include <new>
#include <thread>

#include "engine/engine_harness.h"
#include "testing/fake_token_matcher.h"
#include "testing/hash_model.h"
#include "testing/seq_random.h"

namespace artery::engine {
namespace {

using testing::FakeTokenMatcher;
using testing::HashModel;
using testing::SeqRandom;

constexpr std::int64_t kVocab = 83;

struct Ask {
  Request request;
  int cancel_after = -1;   // polls; -1: never
  bool stop_only = false;  // ends choice 0 instead of the request
};

std::vector<TokenId> random_tokens(SeqRandom& random, std::int64_t count) {
  std::vector<TokenId> tokens;
  for (; count > 0; --count) tokens.push_back(static_cast<TokenId>(random.between(0, kVocab - 1)));
  return tokens;
}

Ask random_ask(SeqRandom& random) {
  Ask ask;
  Request& request = ask.request;
  SeqRandom family(static_cast<std::uint64_t>(random.between(1, 4)));
  request.prompt = random_tokens(family, random.between(1, 150));
  request.max_tokens = random.between(1, 40);
  request.priority = static_cast<int>(random.between(0, 2));
  request.n = random.chance(0.3) ? 3 : 1;
  SamplingParams& params = request.sampling;
  params.seed = random.next();
  params.temperature = random.chance(0.4) ? 0 : 1.1;
  if (random.chance(0.3)) params.top_p = 0.8;
  if (random.chance(0.3)) params.frequency_penalty = 0.4;
  if (random.chance(0.4)) params.logprobs = 3;
  if (random.chance(0.4)) params.stop_ids = {4, 9, 30};
  if (random.chance(0.3)) {
    const std::uint64_t seed = random.next();
    request.make_matcher = [seed](int choice) {
      SeqRandom sets(seed + static_cast<std::uint64_t>(choice));
      std::vector<std::vector<TokenId>> allowed;
      for (int i = 0; i < 12; ++i) allowed.push_back(random_tokens(sets, 6));
      return std::make_unique<FakeTokenMatcher>(std::move(allowed), 4);
    };
  }
  if (random.chance(0.15)) request.prompt_logprobs = 1;
  if (random.chance(0.2)) ask.cancel_after = static_cast<int>(random.between(0, 20));
  ask.stop_only = random.chance(0.5);
  // Whoever leads when the prompt is done tells these.
  if (ask.cancel_after >= 0) request.prompt_logprobs = -1;
  return ask;
}

std::vector<Answer> run(const std::vector<Ask>& asks, bool async, std::int64_t& preemptions) {
  Config config;
  config.max_model_len = 256;
  config.kv_pool_bytes = 40 * HashModel::page_bytes();  // too few for all
  config.max_num_seqs = 6;
  config.max_num_batched_tokens = 64;
  config.inbox_max = 1000;
  config.async_scheduling = async;
  auto made = make_engine(std::make_unique<HashModel>(kVocab, 1024), config);
  EXPECT_TRUE(made);
  Engine& engine = **made;
  std::vector<std::shared_ptr<EventStream>> events;
  std::vector<RequestId> ids;
  for (const Ask& ask : asks) {
    Request request = ask.request;
    if (ask.cancel_after == 7) request.deadline_ns = system_clock().monotonic_ns() + 2'000'000;
    events.push_back(std::make_shared<EventStream>());
    const auto id = engine.submit(std::move(request), events.back());
    EXPECT_TRUE(id) << (id ? "" : id.error().message);
    ids.push_back(*id);
    if (ask.cancel_after < 0) continue;
    for (int i = 0; i < ask.cancel_after; ++i) std::this_thread::yield();
    if (ask.stop_only) {
      engine.finish_choice(*id, 0);
    } else if (ask.cancel_after != 7) {
      engine.cancel(*id);
    }
  }
  std::vector<Answer> answers;
  for (std::size_t i = 0; i < asks.size(); ++i) {
    answers.push_back(collect(*events[i], asks[i].request.n));
  }
  EXPECT_TRUE(engine.drain(30));
  EXPECT_EQ(engine.status().pages_in_use, 0);
  preemptions += engine.status().preemptions;
  return answers;
}

void expect_equal(const std::vector<PositionLogprobs>& a, const std::vector<PositionLogprobs>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i].chosen.token, b[i].chosen.token);
    EXPECT_EQ(a[i].chosen.logprob, b[i].chosen.logprob);
    EXPECT_EQ(a[i].rank, b[i].rank);
    ASSERT_EQ(a[i].top.size(), b[i].top.size());
    for (std::size_t k = 0; k < a[i].top.size(); ++k) {
      EXPECT_EQ(a[i].top[k].token, b[i].top[k].token);
      EXPECT_EQ(a[i].top[k].logprob, b[i].top[k].logprob);
    }
  }
}

void expect_equal(const ChoiceAnswer& a, const ChoiceAnswer& b) {
  EXPECT_TRUE(a.in_order && b.in_order);
  EXPECT_EQ(a.tokens, b.tokens);
  EXPECT_EQ(a.finish->reason, b.finish->reason);
  EXPECT_EQ(a.finish->stop_token, b.finish->stop_token);
  EXPECT_EQ(a.finish->message, b.finish->message);
  expect_equal(a.logprobs, b.logprobs);
  expect_equal(a.prompt_logprobs, b.prompt_logprobs);
}

// An ended choice said the start of what the other way said, or the other way round.
void expect_same_start(const ChoiceAnswer& a, const ChoiceAnswer& b) {
  const std::size_t both = std::min(a.tokens.size(), b.tokens.size());
  EXPECT_TRUE(std::equal(
      a.tokens.begin(), a.tokens.begin() + static_cast<std::ptrdiff_t>(both), b.tokens.begin()
  ));
}

TEST(EngineTwin, AheadSaysWhatInTurnSays) {
  std::int64_t preemptions = 0;
  for (const std::uint64_t seed : {1u, 2u, 3u, 4u}) {
    SeqRandom random(seed);
    std::vector<Ask> asks;
    for (int i = 0; i < 60; ++i) asks.push_back(random_ask(random));
    const std::vector<Answer> ahead = run(asks, true, preemptions);
    const std::vector<Answer> in_turn = run(asks, false, preemptions);
    for (std::size_t i = 0; i < asks.size(); ++i) {
      SCOPED_TRACE(fmt::format("seed {} request {}", seed, i));
      ASSERT_FALSE(ahead[i].timed_out || in_turn[i].timed_out);
      for (int choice = 0; choice < asks[i].request.n; ++choice) {
        const ChoiceAnswer& a = ahead[i].choices.at(choice);
        const ChoiceAnswer& b = in_turn[i].choices.at(choice);
        const bool ended = asks[i].cancel_after >= 0 &&
                           (!asks[i].stop_only || choice == 0 || asks[i].cancel_after == 7);
        if (ended) {
          expect_same_start(a, b);
        } else {
          expect_equal(a, b);
        }
      }
    }
  }
  EXPECT_GT(preemptions, 0) << "the pool was to be too small";
}

// Runs out of memory where the third mask is made: a step then computes and waits for its mask.
class FailingMatcher final : public codec::TokenMatcher {
 public:
  bool accept(TokenId) override { return true; }
  void fill_mask(std::span<std::uint32_t> mask) override {
    if (++calls_ == 3) throw std::bad_alloc();
    std::fill(mask.begin(), mask.end(), ~0u);
  }
  void rollback(int) override {}

 private:
  int calls_ = 0;
};

TEST(EngineFailureDeathTest, EndsTheProcessWithAMessage) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  for (const bool async : {true, false}) {
    const auto ask_it = [async] {
      Config config;
      config.max_model_len = 256;
      config.kv_pool_bytes = 40 * HashModel::page_bytes();
      config.async_scheduling = async;
      auto engine = make_engine(std::make_unique<HashModel>(kVocab, 1024), config);
      Request request;
      request.prompt = {1, 2, 3};
      request.max_tokens = 50;
      request.make_matcher = [](int) { return std::make_unique<FailingMatcher>(); };
      ask(**engine, std::move(request));
    };
    EXPECT_DEATH(ask_it(), "the engine thread failed: std::bad_alloc");
  }
}

}  // namespace
}  // namespace artery::engine
