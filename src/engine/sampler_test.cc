#include "engine/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "engine/noise.h"
#include "engine/philox.h"
#include "tensor/math.h"
#include "testing/fake_token_matcher.h"
#include "testing/seq_random.h"

namespace artery::engine {
namespace {

using testing::FakeTokenMatcher;
using testing::SeqRandom;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

SampleContext at(const SamplingParams& params, Position position, int choice = 0) {
  return {params, choice, position, 0, nullptr, nullptr};
}

TokenId draw(std::span<const float> logits, const SampleContext& context) {
  Sampler sampler;
  const auto sampled = sampler.sample(logits, context);
  EXPECT_TRUE(sampled) << (sampled ? "" : sampled.error().message);
  return sampled ? sampled->token : -1;
}

// Filters by sorting everything and draws by computing every noise.
TokenId brute_force(std::span<const float> logits, const SampleContext& context) {
  const SamplingParams& params = context.params;
  std::vector<TokenId> order;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    if (logits[i] > -kInf) order.push_back(static_cast<TokenId>(i));
  }
  const auto logit = [&](TokenId t) { return logits[static_cast<std::size_t>(t)]; };
  std::sort(order.begin(), order.end(), [&](TokenId a, TokenId b) {
    return logit(a) > logit(b) || (logit(a) == logit(b) && a < b);
  });
  if (params.top_k > 0 && static_cast<std::size_t>(params.top_k) < order.size()) {
    order.resize(static_cast<std::size_t>(params.top_k));
  }
  const auto mass = [&](TokenId t) {
    return std::exp((static_cast<double>(logit(t)) - logit(order[0])) / params.temperature);
  };
  double whole = 0;
  for (const TokenId t : order) whole += mass(t);
  if (params.top_p < 1) {
    double sum = 0;
    std::size_t kept = 0;
    while (kept < order.size() && sum < params.top_p * whole) sum += mass(order[kept++]);
    order.resize(kept);
  }
  std::erase_if(order, [&](TokenId t) { return params.min_p > 0 && mass(t) < params.min_p; });
  TokenId winner = -1;
  double best = -std::numeric_limits<double>::infinity();
  std::sort(order.begin(), order.end());
  for (const TokenId t : order) {
    const double score =
        static_cast<double>(logit(t)) / params.temperature +
        noise_gumbel(params.seed, static_cast<std::uint32_t>(context.choice), context.position, t);
    if (score > best) {
      best = score;
      winner = t;
    }
  }
  return winner;
}

TEST(Philox, KnownAnswers) {
  // Random123's kat_vectors for philox4x32, 10 rounds.
  EXPECT_EQ(
      philox4x32_10({0, 0, 0, 0}, {0, 0}),
      (PhiloxBlock{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8})
  );
  EXPECT_EQ(
      philox4x32_10({~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}),
      (PhiloxBlock{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd})
  );
  EXPECT_EQ(
      philox4x32_10({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
      (PhiloxBlock{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1})
  );
}

TEST(Noise, DependsOnEachOfItsArguments) {
  const double base = noise_uniform(1, 2, 3, 4);
  EXPECT_EQ(base, noise_uniform(1, 2, 3, 4));
  EXPECT_NE(base, noise_uniform(1ull << 32 | 1, 2, 3, 4));
  EXPECT_NE(base, noise_uniform(2, 2, 3, 4));
  EXPECT_NE(base, noise_uniform(1, 3, 3, 4));
  EXPECT_NE(base, noise_uniform(1, 2, 4, 4));
  EXPECT_NE(base, noise_uniform(1, 2, 3, 5));
}

TEST(Noise, EndsOfTheRangeAreFinite) {
  EXPECT_GT(uniform_of(0), 0.0);
  EXPECT_LT(uniform_of(~0ull), 1.0);
  EXPECT_GE(gumbel_of(uniform_of(0)), kGumbelMin);
  EXPECT_LE(gumbel_of(uniform_of(~0ull)), kGumbelMax);
}

TEST(Noise, IsStandardGumbel) {
  // Mean is Euler's constant, variance pi^2 / 6.
  double sum = 0;
  double squares = 0;
  constexpr int kDraws = 200'000;
  for (int i = 0; i < kDraws; ++i) {
    const double g = noise_gumbel(7, 0, i / 1000, i % 1000);
    sum += g;
    squares += g * g;
  }
  const double mean = sum / kDraws;
  EXPECT_NEAR(mean, 0.57722, 0.012);
  EXPECT_NEAR(squares / kDraws - mean * mean, 1.64493, 0.04);
}

TEST(Sampler, GreedyTakesTheLowestOfEqualsAndNeverNan) {
  SamplingParams params;
  params.temperature = 0;
  EXPECT_EQ(draw(std::vector<float>{kNan, 1, 3, kNan, 3, 2}, at(params, 0)), 2);
  EXPECT_EQ(draw(std::vector<float>{kNan, -kInf, -5, kNan}, at(params, 0)), 2);
  EXPECT_EQ(draw(std::vector<float>{1, kInf, kInf}, at(params, 0)), 1);
}

TEST(Sampler, NanAndInfinityNeverWinADraw) {
  SamplingParams params;
  for (const double top_p : {1.0, 0.9}) {
    params.top_p = top_p;
    for (Position position = 0; position < 300; ++position) {
      const TokenId token =
          draw(std::vector<float>{kNan, 1, -kInf, 1.5, kNan, 0.5}, at(params, position));
      EXPECT_TRUE(token == 1 || token == 3 || token == 5) << token;
      EXPECT_EQ(draw(std::vector<float>{3, kInf, kNan}, at(params, position)), 1);
    }
  }
}

TEST(Sampler, NothingLeftIsAnError) {
  Sampler sampler;
  SamplingParams params;
  for (const double temperature : {0.0, 1.0}) {
    params.temperature = temperature;
    const auto none = sampler.sample(std::vector<float>{kNan, -kInf}, at(params, 12));
    ASSERT_FALSE(none);
    EXPECT_NE(none.error().message.find("position 12"), std::string::npos);
  }
}

TEST(Sampler, EqualsBruteForce) {
  SeqRandom random(11);
  Sampler sampler;
  for (int round = 0; round < 3000; ++round) {
    std::vector<float> logits(static_cast<std::size_t>(random.between(1, 700)));
    const double spread = static_cast<double>(random.between(1, 200)) / 10;
    for (float& logit : logits) {
      logit = static_cast<float>((random.unit() + random.unit() - 1) * spread);
      if (random.chance(0.3)) logit = static_cast<float>(std::floor(logit));  // ties
      if (random.chance(0.05)) logit = random.chance(0.5) ? -kInf : kNan;
    }
    logits[0] = 0.5f;
    SamplingParams params;
    params.seed = random.next();
    params.temperature = random.chance(0.2) ? 0.05 : 0.2 + random.unit() * 2;
    if (random.chance(0.5)) params.top_k = static_cast<int>(random.between(1, 300));
    if (random.chance(0.5)) params.top_p = 0.05 + random.unit() * 0.94;
    if (random.chance(0.3)) params.min_p = random.unit() * 0.5;
    const SampleContext context =
        at(params,
           static_cast<Position>(random.between(0, 1000)),
           static_cast<int>(random.between(0, 3)));
    const auto sampled = sampler.sample(logits, context);
    ASSERT_TRUE(sampled);
    ASSERT_EQ(sampled->token, brute_force(logits, context)) << "round " << round;
  }
}

TEST(Sampler, LargeVocabularyEqualsBruteForce) {
  SeqRandom random(5);
  Sampler sampler;
  std::vector<float> logits(50'000);
  for (int round = 0; round < 12; ++round) {
    for (float& logit : logits) {
      logit = static_cast<float>((random.unit() + random.unit() + random.unit()) * 8);
    }
    SamplingParams params;
    params.seed = random.next();
    params.top_p = round % 2 == 0 ? 1.0 : 0.97;
    const SampleContext context = at(params, round);
    ASSERT_EQ(sampler.sample(logits, context)->token, brute_force(logits, context));
  }
}

TEST(Sampler, DrawsFollowTheDistribution) {
  const std::vector<float> logits = {0.0f, 1.0f, -1.0f, 2.0f, 0.5f, -kInf, 1.5f};
  SamplingParams params;
  params.temperature = 0.8;
  params.seed = 99;
  std::vector<double> expected;
  for (const float logit : logits) expected.push_back(std::exp(logit / params.temperature));
  const double whole = std::accumulate(expected.begin(), expected.end(), 0.0);
  constexpr int kDraws = 60'000;
  std::vector<int> seen(logits.size());
  Sampler sampler;
  for (int i = 0; i < kDraws; ++i) {
    ++seen[static_cast<std::size_t>(sampler.sample(logits, at(params, i))->token)];
  }
  double chi = 0;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    const double wanted = expected[i] / whole * kDraws;
    if (wanted == 0) {
      EXPECT_EQ(seen[i], 0);
    } else {
      chi += (seen[i] - wanted) * (seen[i] - wanted) / wanted;
    }
  }
  EXPECT_LT(chi, 20.5);  // 5 degrees of freedom, p = 0.001
}

TEST(Sampler, TopKKeepsExactlyKAndLowerIdsOnTies) {
  SamplingParams params;
  params.top_k = 3;
  const std::vector<float> logits = {1, 1, 1, 1, 1, 1};
  std::vector<int> seen(logits.size());
  for (int i = 0; i < 400; ++i) ++seen[static_cast<std::size_t>(draw(logits, at(params, i)))];
  EXPECT_GT(std::min({seen[0], seen[1], seen[2]}), 80);
  EXPECT_EQ(seen[3] + seen[4] + seen[5], 0);
}

TEST(Sampler, TopPOfNearlyNothingIsGreedy) {
  SamplingParams params;
  params.top_p = 1e-9;
  for (int i = 0; i < 50; ++i) {
    EXPECT_EQ(draw(std::vector<float>{0, 2, 1, 2}, at(params, i)), 1);
  }
}

TEST(Sampler, BiasAndPenaltiesChangeTheChoice) {
  SamplingParams params;
  params.temperature = 0;
  const std::vector<float> logits = {1, 2, -1, 1.9f};
  params.logit_bias = {{2, 100}};
  EXPECT_EQ(draw(logits, at(params, 0)), 2);
  params.logit_bias = {{1, -100}};
  EXPECT_EQ(draw(logits, at(params, 0)), 3);
  params.logit_bias.clear();

  TokenHistory history;
  const std::vector<TokenId> prompt = {1};
  history.add_prompt(prompt);
  const auto with = [&] { return SampleContext{params, 0, 0, 0, &history, nullptr}; };
  params.presence_penalty = 1;  // the prompt does not count
  EXPECT_EQ(draw(logits, with()), 1);
  params.presence_penalty = 0;
  params.repetition_penalty = 2;  // it does here: 2 / 2 = 1
  EXPECT_EQ(draw(logits, with()), 3);
  history.add_generated(3);  // 1.9 / 2 = 0.95
  EXPECT_EQ(draw(logits, with()), 0);
  params.repetition_penalty = 1;
  params.frequency_penalty = 0.04;
  history.add_generated(1);
  EXPECT_EQ(draw(logits, with()), 1);  // 1.96 against 1.86
  history.add_generated(1);
  history.add_generated(1);
  history.add_generated(1);
  EXPECT_EQ(draw(logits, with()), 3);  // 1.84 against 1.86
}

TEST(Sampler, RepetitionMultipliesWhatIsNegative) {
  SamplingParams params;
  params.temperature = 0;
  params.repetition_penalty = 2;
  TokenHistory history;
  history.add_generated(0);
  // -1 becomes -2 and loses against -1.5.
  EXPECT_EQ(
      draw(std::vector<float>{-1, -1.5f}, SampleContext{params, 0, 0, 0, &history, nullptr}), 1
  );
}

TEST(Sampler, StopIdsWaitForTheMinimum) {
  SamplingParams params;
  params.temperature = 0;
  params.stop_ids = {1};
  params.min_tokens = 2;
  const std::vector<float> logits = {0, 9, 1};
  EXPECT_EQ(draw(logits, SampleContext{params, 0, 0, 0, nullptr, nullptr}), 2);
  EXPECT_EQ(draw(logits, SampleContext{params, 0, 0, 1, nullptr, nullptr}), 2);
  EXPECT_EQ(draw(logits, SampleContext{params, 0, 0, 2, nullptr, nullptr}), 1);
}

TEST(Sampler, GrammarMaskHolds) {
  SamplingParams params;
  FakeTokenMatcher matcher({{2, 40}}, 0);
  std::vector<std::uint32_t> mask(2);
  matcher.fill_mask(mask);
  std::vector<float> logits(60, 1.0f);
  for (int i = 0; i < 100; ++i) {
    const TokenId token = draw(logits, SampleContext{params, 0, i, 0, nullptr, &mask});
    EXPECT_TRUE(token == 2 || token == 40);
  }
}

TEST(Sampler, LogprobsAreThoseOfTheModel) {
  SamplingParams params;
  params.temperature = 0.3;
  params.top_k = 1;
  params.logprobs = 3;
  params.logit_bias = {{3, 50}};
  const std::vector<float> logits = {0.5f, 2.0f, -kInf, 1.0f, 2.0f};
  Sampler sampler;
  const auto sampled = sampler.sample(logits, at(params, 0));
  ASSERT_TRUE(sampled);
  EXPECT_EQ(sampled->token, 3);
  double whole = 0;
  for (const float logit : logits) whole += std::exp(static_cast<double>(logit));
  const PositionLogprobs& out = sampled->logprobs;
  EXPECT_EQ(out.chosen.token, 3);
  EXPECT_NEAR(out.chosen.logprob, 1.0 - std::log(whole), 1e-6);
  EXPECT_EQ(out.rank, 3);
  ASSERT_EQ(out.top.size(), 3u);
  EXPECT_EQ(out.top[0].token, 1);
  EXPECT_EQ(out.top[1].token, 4);
  EXPECT_EQ(out.top[2].token, 3);
  EXPECT_EQ(out.top[2].logprob, out.chosen.logprob);
  const PositionLogprobs never = sampler.logprobs(logits, 2, 5);
  EXPECT_EQ(never.chosen.logprob, -kInf);
  EXPECT_EQ(never.rank, 5);
  EXPECT_EQ(never.top.size(), 4u);
}

}  // namespace
}  // namespace artery::engine
