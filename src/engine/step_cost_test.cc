#include "engine/step_cost.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "testing/seq_random.h"

namespace artery::engine {
namespace {

TEST(StepCost, LearnsALinearCost) {
  StepCost cost;
  testing::SeqRandom random(3);
  for (int i = 0; i < 300; ++i) {
    const std::int64_t tokens = random.chance(0.5) ? random.between(1, 8) : random.between(64, 512);
    const std::int64_t context = tokens * random.between(0, 2000);
    const double noise = 0.95 + 0.1 * random.unit();
    const double seconds =
        0.004 + 2e-4 * static_cast<double>(tokens) + 3e-8 * static_cast<double>(context);
    cost.observe(tokens, context, seconds * noise);
  }
  for (const std::int64_t tokens : {1, 32, 256, 512}) {
    for (const std::int64_t context : {0, 100'000, 500'000}) {
      const double truth =
          0.004 + 2e-4 * static_cast<double>(tokens) + 3e-8 * static_cast<double>(context);
      EXPECT_NEAR(cost.predict(tokens, context) / truth, 1.0, 0.1) << tokens << " " << context;
    }
  }
  const std::int64_t within = cost.tokens_within(0.1, 0);
  EXPECT_LE(cost.predict(within, 0), 0.1);
  EXPECT_GT(cost.predict(within + 1, 0), 0.1);
}

TEST(StepCost, OneSlowStepChangesLittle) {
  StepCost cost;
  for (int i = 0; i < 100; ++i) cost.observe(1 + i % 64, 0, 0.002 + 1e-4 * (1 + i % 64));
  const double before = cost.predict(64, 0);
  cost.observe(64, 0, 30.0);
  EXPECT_LT(cost.predict(64, 0), 1.6 * before);
}

TEST(StepCost, NeverNegativeAndFollowsAChange) {
  StepCost cost;
  // More tokens for less time: no coefficient may turn negative.
  for (int i = 0; i < 50; ++i) cost.observe(1 + i, 0, 1.0 / (1 + i));
  EXPECT_GE(cost.predict(0, 0), 0);
  EXPECT_GE(cost.predict(1, 0), cost.predict(0, 0));
  EXPECT_GE(cost.predict(1, 1000), cost.predict(1, 0));
  for (int i = 0; i < 400; ++i) cost.observe(1 + i % 50, 0, 0.01 + 0.001 * (1 + i % 50));
  EXPECT_NEAR(cost.predict(50, 0), 0.06, 0.006);
}

// A long prompt on a model that is faster or slower than guessed: chunks soon fill the budget, and
// no step is much longer than it.
TEST(StepCost, ChunksFindTheirSizeInAFewSteps) {
  for (const double guess : {1e-4, 1e-3, 5e-3, 0.1}) {
    StepCost cost(guess);
    int steps = 0;
    for (std::int64_t left = 4000; left > 0; ++steps) {
      const std::int64_t rows = std::min({left, cost.tokens_within(0.2, 0), std::int64_t{512}});
      const double seconds = 0.005 + 4e-4 * static_cast<double>(rows);
      if (guess >= 4e-4) {
        EXPECT_LT(seconds, 0.25) << "guess " << guess << " step " << steps;
      }
      cost.observe(rows, 0, seconds);
      left -= rows;
    }
    EXPECT_LE(steps, 20) << "guess " << guess;  // 9 with the truth
  }
}

// Hours of decoding one sequence say little about chunks; what was known of them must not drift.
TEST(StepCost, DecodingAloneDoesNotForgetPrefill) {
  StepCost cost;
  testing::SeqRandom random(8);
  const auto truth = [](std::int64_t tokens, std::int64_t context) {
    return 0.005 + 4e-4 * static_cast<double>(tokens) + 2e-8 * static_cast<double>(context);
  };
  for (int i = 0; i < 60; ++i) {
    const std::int64_t tokens = random.between(1, 400);
    cost.observe(tokens, tokens * 300, truth(tokens, tokens * 300));
  }
  for (int i = 0; i < 5000; ++i) {
    const std::int64_t context = 100 + i % 900;
    cost.observe(1, context, truth(1, context) * (0.9 + 0.2 * random.unit()));
  }
  EXPECT_GT(cost.predict(256, 256 * 300), 0.5 * truth(256, 256 * 300));
  EXPECT_LT(cost.predict(256, 256 * 300), 2.0 * truth(256, 256 * 300));
}

TEST(StepCost, AtLeastOneToken) {
  StepCost cost;
  EXPECT_EQ(cost.tokens_within(0, 0), 1);
  EXPECT_GE(cost.tokens_within(0.2, 0), 64);
  cost.observe(0, 0, 1);
  cost.observe(4, 0, -1);
  EXPECT_NEAR(cost.predict(1, 0), 2e-3, 1e-12);
}

}  // namespace
}  // namespace artery::engine
