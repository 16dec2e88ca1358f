#include "cli/memory_plan.h"

#include <gtest/gtest.h>

namespace artery::cli {
namespace {

constexpr std::int64_t kMiB = std::int64_t{1} << 20;

ContextWish wish() {
  return {
      .model_context = 8192,
      .asked = 0,
      .bytes_per_token = 23040,
      .usable_bytes = 4096 * kMiB,
      .pool_bytes_asked = 0,
  };
}

TEST(MemoryPlan, TheModelsOwnContextWhenItFits) {
  const auto plan = plan_context(wish());
  ASSERT_TRUE(plan.has_value());
  EXPECT_EQ(plan->context, 8192);
  EXPECT_EQ(plan->text(), "context 8192 of 8192; 0.18 GiB KV");
  EXPECT_EQ(plan->pool_bytes, std::int64_t{4} * 8192 * 23040);
}

TEST(MemoryPlan, ThePoolIsAtMostAQuarterButHoldsOneContext) {
  ContextWish small = wish();
  small.usable_bytes = 400 * kMiB;
  const auto plan = plan_context(small);
  ASSERT_TRUE(plan.has_value());
  EXPECT_EQ(plan->context, 8192);
  EXPECT_EQ(plan->pool_bytes, 8192 * 23040);
}

TEST(MemoryPlan, ElseTheLargestWholePagesThatFit) {
  ContextWish small = wish();
  small.usable_bytes = 200 * kMiB;  // 128 are kept free
  const auto plan = plan_context(small);
  ASSERT_TRUE(plan.has_value());
  EXPECT_EQ(plan->context, 72 * kMiB / 23040 / 16 * 16);
  EXPECT_LT(plan->context, plan->model_context);
  EXPECT_LE(plan->pool_bytes, 72 * kMiB);
}

TEST(MemoryPlan, WhatWasAskedForIsGivenOrRefused) {
  ContextWish asked = wish();
  asked.asked = 100;  // not whole pages: the pool rounds up, the context does not change
  EXPECT_EQ(plan_context(asked)->context, 100);
  EXPECT_EQ(plan_context(asked)->pool_bytes, std::int64_t{4} * 112 * 23040);
  asked.asked = 8193;
  EXPECT_EQ(plan_context(asked).error().code, Code::kInvalidArgument);
  EXPECT_EQ(plan_context(asked).error().field, "--max-model-len");
  asked.asked = 8192;
  asked.usable_bytes = 200 * kMiB;
  EXPECT_EQ(plan_context(asked).error().code, Code::kOutOfMemory);
  asked.asked = 0;
  asked.usable_bytes = 100 * kMiB;
  EXPECT_EQ(plan_context(asked).error().code, Code::kOutOfMemory);
  asked.usable_bytes = -1;  // the weights alone do not fit
  EXPECT_EQ(plan_context(asked).error().code, Code::kOutOfMemory);
}

TEST(MemoryPlan, AnAskedPoolIsTakenAsItIs) {
  ContextWish asked = wish();
  asked.pool_bytes_asked = 64 * kMiB;
  const auto plan = plan_context(asked);
  ASSERT_TRUE(plan.has_value());
  EXPECT_EQ(plan->pool_bytes, 64 * kMiB);
  EXPECT_EQ(plan->context, 64 * kMiB / 23040 / 16 * 16);
}

}  // namespace
}  // namespace artery::cli
