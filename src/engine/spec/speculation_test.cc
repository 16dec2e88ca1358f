#include "engine/spec/speculation.h"

#include <gtest/gtest.h>

namespace artery::engine {
namespace {

// Steps of `step` seconds plus `row` seconds a row, learnt.
StepCost learnt(double step, double row) {
  StepCost cost;
  for (int i = 0; i < 200; ++i) {
    const std::int64_t rows = 1 + i % 8;
    cost.observe(rows, 100 * rows, step + row * static_cast<double>(rows));
  }
  return cost;
}

TEST(SpeculationTest, ExpectedTokens) {
  EXPECT_DOUBLE_EQ(expected_tokens(0.5, 0), 1);
  EXPECT_DOUBLE_EQ(expected_tokens(0.5, 3), 1.875);
  EXPECT_DOUBLE_EQ(expected_tokens(1, 4), 5);
}

TEST(SpeculationTest, CheapRowsPayDearOnesDoNot) {
  const DraftWish wish[] = {{4, 0.8}};
  const StepCost cheap = learnt(10e-3, 0.1e-3);
  EXPECT_EQ(draft_length_that_pays(wish, {&cheap, 1, 100}, 4), 4);
  const StepCost dear = learnt(0.1e-3, 10e-3);
  EXPECT_EQ(draft_length_that_pays(wish, {&dear, 1, 100}, 4), 0);
}

TEST(SpeculationTest, DraftsThatSeldomComeTrueDoNotPay) {
  const StepCost cost = learnt(10e-3, 1e-3);
  const DraftWish good[] = {{4, 0.9}};
  const DraftWish bad[] = {{4, 0.05}};
  EXPECT_GT(draft_length_that_pays(good, {&cost, 1, 100}, 4), 0);
  EXPECT_EQ(draft_length_that_pays(bad, {&cost, 1, 100}, 4), 0);
}

TEST(SpeculationTest, MeasuredStepsOutweighThePrediction) {
  const StepCost cost = learnt(10e-3, 0.1e-3);
  const DraftWish wish[] = {{4, 0.8}};
  EXPECT_EQ(draft_length_that_pays(wish, {&cost, 1, 100, 5.0}, 4), 0);
}

// One text that repeats among eight that do not: the others wait for its rows.
TEST(SpeculationTest, BatchMatesCount) {
  const StepCost cost = learnt(1e-3, 1e-3);
  const DraftWish alone[] = {{4, 0.3}};
  const DraftWish sure[] = {{4, 0.99}};
  EXPECT_EQ(draft_length_that_pays(alone, {&cost, 8, 800}, 4), 0);
  EXPECT_GT(draft_length_that_pays(sure, {&cost, 1, 100}, 4), 0);
}

TEST(SpeculationTest, AcceptanceFollowsWhatHappens) {
  Drafter drafter({.mode = SpeculationMode::kAlways});
  const double at_first = drafter.acceptance();
  for (int i = 0; i < 20; ++i) drafter.observe(4, 0);
  const double after_bad = drafter.acceptance();
  EXPECT_LT(after_bad, 0.1);
  for (int i = 0; i < 100; ++i) drafter.pass();
  EXPECT_GT(drafter.acceptance(), 0.5 * at_first);
  for (int i = 0; i < 20; ++i) drafter.observe(4, 4);
  EXPECT_GT(drafter.acceptance(), 0.9);
}

}  // namespace
}  // namespace artery::engine
