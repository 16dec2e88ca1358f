#include "engine/engine.h"

#include <gtest/gtest.h>

#include <thread>

#include "engine/engine_harness.h"
#include "testing/fake_token_matcher.h"
#include "testing/hash_model.h"
#include "testing/scripted_model.h"
#include "testing/seq_random.h"
#include "testing/sim_clock.h"

namespace artery::engine {
namespace {

using testing::FakeTokenMatcher;
using testing::HashModel;
using testing::ScriptedModel;
using testing::SeqRandom;
using testing::SimClock;

constexpr std::int64_t kVocab = 97;

std::vector<TokenId> prompt_of(std::uint64_t seed, int length) {
  SeqRandom random(seed);
  std::vector<TokenId> tokens;
  for (int i = 0; i < length; ++i) {
    tokens.push_back(static_cast<TokenId>(random.between(0, kVocab - 1)));
  }
  return tokens;
}

Request greedy(std::vector<TokenId> prompt, std::int64_t max_tokens) {
  Request request;
  request.prompt = std::move(prompt);
  request.max_tokens = max_tokens;
  request.sampling.temperature = 0;
  return request;
}

Config small_config(std::int64_t pages = 64) {
  Config config;
  config.max_model_len = 512;
  config.kv_pool_bytes = pages * HashModel::page_bytes();
  if (pages * kPageTokens < config.max_model_len) config.max_model_len = pages * kPageTokens;
  config.cache_secret = "test";
  return config;
}

std::unique_ptr<Engine> hash_engine(Config config, const Clock& clock = system_clock()) {
  auto engine = make_engine(std::make_unique<HashModel>(kVocab, 1024), config, clock);
  EXPECT_TRUE(engine) << (engine ? "" : engine.error().message);
  return std::move(*engine);
}

TEST(Engine, SaysTheScript) {
  testing::ScriptedModelConfig script;
  script.vocab_size = 32;
  script.end_token = 2;
  script.script = {5, 6, 7, 5, 6, 8};
  auto model = std::make_unique<ScriptedModel>(script);
  model->add({20, 21}, {9, 10});
  auto engine = make_engine(std::move(model), Config{});
  ASSERT_TRUE(engine) << engine.error().message;
  Request request = greedy({3, 4, 3}, 20);
  request.sampling.stop_ids = {2};
  Answer answer = ask(**engine, request);
  EXPECT_EQ(answer.choices[0].tokens, script.script);
  EXPECT_EQ(answer.choices[0].finish->reason, FinishReason::kStop);
  EXPECT_EQ(answer.choices[0].finish->stop_token, 2);
  request.prompt = {3, 20, 21, 3};
  answer = ask(**engine, request);
  EXPECT_EQ(answer.choices[0].tokens, (std::vector<TokenId>{9, 10}));
}

TEST(Engine, GreedyAnswersRepeat) {
  auto engine = hash_engine(small_config());
  const Answer first = ask(*engine, greedy(prompt_of(1, 40), 30));
  ASSERT_EQ(first.choices.at(0).tokens.size(), 30u);
  EXPECT_EQ(first.choices.at(0).finish->reason, FinishReason::kLength);
  EXPECT_EQ(first.choices.at(0).finish->usage.cached_tokens, 0);
  EXPECT_EQ(first.choices.at(0).finish->usage.miss, MissReason::kCold);
  const Answer again = ask(*engine, greedy(prompt_of(1, 40), 30));
  EXPECT_EQ(again.choices.at(0).tokens, first.choices.at(0).tokens);
  EXPECT_EQ(again.choices.at(0).finish->usage.cached_tokens, 32);
  EXPECT_EQ(again.choices.at(0).finish->usage.miss, MissReason::kNone);
}

}  // namespace
}  // namespace artery::engine
