#include "cli/memory_plan.h"

#include <gtest/gtest.h>

#include "cli/plan_text.h"

namespace artery::cli {
namespace {

constexpr std::int64_t kMiB = std::int64_t{1} << 20;
constexpr std::int64_t kPage = 16 * 23040;  // of the KV below

model::KvGroup group(model::KvKind kind, int layers, int window) {
  model::KvGroup group;
  group.kind = kind;
  group.geometry = {.layers = layers, .kv_heads = 3, .head_dim = 64, .type = tensor::KvType::kF16};
  group.entry_bytes = group.geometry.page_bytes() / kPageTokens;
  group.window_tokens = window;
  return group;
}

// SmolLM2-135M: 30 layers of 3 heads of 64.
model::MemoryNeeds needs() {
  model::MemoryNeeds needs;
  needs.weights = {
      {tensor::DType::kQ4_1, 134 * kMiB, 90 * kMiB}, {tensor::DType::kF32, 35 * 1024, kMiB}
  };
  needs.resident_weight_bytes = 91 * kMiB;
  needs.kv.groups = {group(model::KvKind::kGlobal, 30, 0)};
  needs.table_bytes_per_position = 512;
  needs.row_bytes = 20 << 10;
  needs.logit_row_bytes = 400 << 10;
  needs.thread_bytes = kMiB;
  needs.partial_bytes_per_position = 45;
  return needs;
}

PlanWish wish() {
  return {
      .model_context = 8192,
      .sequences = 64,
      .batch = 512,
      .threads = 2,
      .process_bytes = 20 * kMiB,
      .usable_bytes = 4096 * kMiB
  };
}

TEST(MemoryPlan, TheModelsOwnContextWhenItFits) {
  const auto plan = plan_memory(needs(), wish());
  ASSERT_TRUE(plan.has_value()) << plan.error().message;
  EXPECT_EQ(plan->context, 8192);
  EXPECT_EQ(plan->text(), "context 8192 of 8192; 0.18 GiB KV");
  EXPECT_EQ(plan->pool_bytes, std::int64_t{4} * 8192 * 23040);
  EXPECT_EQ(plan->global_bytes_per_token, 23040);
  EXPECT_EQ(plan->window_bytes_per_sequence, 0);
  EXPECT_EQ(plan->weight_bytes, 91 * kMiB);
  EXPECT_EQ(plan->table_bytes, 4 * kMiB);
  EXPECT_EQ(plan->logit_bytes, 128 * (400 << 10));
}

TEST(MemoryPlan, TheTotalIsTheSumOfItsLines) {
  const auto plan = plan_memory(needs(), wish());
  ASSERT_TRUE(plan.has_value());
  EXPECT_EQ(
      plan->total_bytes(),
      plan->weight_bytes + plan->pool_bytes + plan->activation_bytes + plan->logit_bytes +
          plan->table_bytes + plan->process_bytes + plan->engine_bytes
  );
  EXPECT_LT(plan->total_bytes() + plan->headroom_bytes, plan->limit_bytes);
  EXPECT_EQ(plan->limit_bytes, 4116 * kMiB);
  // A step's rows, two threads, and partial results of the pool's positions.
  EXPECT_EQ(plan->activation_bytes, 512 * (20 << 10) + 2 * kMiB + plan->pool_bytes / 23040 * 45);
}

TEST(MemoryPlan, FewerRowsOfLogitsThanAStepHas) {
  PlanWish small = wish();
  small.batch = 32;
  EXPECT_EQ(plan_memory(needs(), small)->logit_bytes, 32 * (400 << 10));
}

TEST(MemoryPlan, ThePoolIsAtMostAQuarterButHoldsOneContext) {
  PlanWish small = wish();
  small.usable_bytes = 480 * kMiB;
  const auto plan = plan_memory(needs(), small);
  ASSERT_TRUE(plan.has_value()) << plan.error().message;
  EXPECT_EQ(plan->context, 8192);
  EXPECT_EQ(plan->pool_bytes, 8192 * 23040);
}

TEST(MemoryPlan, ElseTheLargestWholePagesThatFit) {
  PlanWish small = wish();
  small.usable_bytes = 330 * kMiB;
  const auto plan = plan_memory(needs(), small);
  ASSERT_TRUE(plan.has_value()) << plan.error().message;
  EXPECT_LT(plan->context, plan->model_context);
  EXPECT_GT(plan->context, 1024);
  EXPECT_EQ(plan->context % 16, 0);
  const std::int64_t held = plan->total_bytes() - plan->process_bytes + plan->headroom_bytes;
  EXPECT_LE(held, small.usable_bytes);
  EXPECT_GT(held + 2 * kPage, small.usable_bytes) << "one more page would have fitted";
}

TEST(MemoryPlan, WhatWasAskedForIsGivenOrRefused) {
  PlanWish asked = wish();
  asked.context_asked = 100;  // not whole pages: the pool rounds up, the context does not change
  EXPECT_EQ(plan_memory(needs(), asked)->context, 100);
  EXPECT_EQ(plan_memory(needs(), asked)->pool_bytes, std::int64_t{4} * 112 * 23040);
  asked.context_asked = 8193;
  EXPECT_EQ(plan_memory(needs(), asked).error().code, Code::kInvalidArgument);
  EXPECT_EQ(plan_memory(needs(), asked).error().field, "--max-model-len");
  asked.context_asked = 8192;
  asked.usable_bytes = 330 * kMiB;
  const auto refused = plan_memory(needs(), asked);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, Code::kOutOfMemory);
  // The number it names is the one that is taken without the flag.
  asked.context_asked = 0;
  const std::int64_t most = plan_memory(needs(), asked)->context;
  const std::string flag = fmt::format("--max-model-len {} or lower", most);
  EXPECT_NE(refused.error().message.find(flag), std::string::npos) << refused.error().message;
}

TEST(MemoryPlan, SaysWhichPartIsTooLarge) {
  PlanWish small = wish();
  small.usable_bytes = 80 * kMiB;
  EXPECT_NE(
      plan_memory(needs(), small).error().message.find("the weights need 91.00 MiB"),
      std::string::npos
  );
  small.usable_bytes = 200 * kMiB;  // enough but for a step's rows and logits
  const auto refused = plan_memory(needs(), small);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, Code::kOutOfMemory);
  EXPECT_NE(refused.error().message.find("--max-num-seqs"), std::string::npos);
  small.batch = 64;
  small.sequences = 4;
  EXPECT_TRUE(plan_memory(needs(), small).has_value());
}

TEST(MemoryPlan, AnAskedPoolIsTakenAsItIs) {
  PlanWish asked = wish();
  asked.pool_bytes_asked = 64 * kMiB;
  const auto plan = plan_memory(needs(), asked);
  ASSERT_TRUE(plan.has_value());
  EXPECT_EQ(plan->pool_bytes, 64 * kMiB);
  EXPECT_EQ(plan->context, 64 * kMiB / 23040 / 16 * 16);
  asked.context_asked = 8192;
  EXPECT_EQ(plan_memory(needs(), asked).error().code, Code::kOutOfMemory);
  asked.context_asked = 0;
  asked.pool_bytes_asked = 4096 * kMiB;
  EXPECT_EQ(plan_memory(needs(), asked).error().code, Code::kOutOfMemory);
}

TEST(MemoryPlan, UnknownMemoryRefusesNothing) {
  PlanWish unknown = wish();
  unknown.usable_bytes = -1;
  EXPECT_EQ(plan_memory(needs(), unknown)->context, 8192);
}

TEST(MemoryPlan, TheTableSaysHowManySequencesFit) {
  const auto plan = plan_memory(needs(), wish());
  ASSERT_TRUE(plan.has_value());
  ASSERT_EQ(plan->fits.size(), 3u);
  const std::int64_t contexts[] = {1024, 4096, 8192};
  for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(plan->fits[i].context, contexts[i]);
  EXPECT_GT(plan->fits[0].sequences, 3 * plan->fits[1].sequences);
  // Holds exactly: one more of the longest does not fit.
  const std::int64_t n = plan->fits[2].sequences;
  const std::int64_t each = 512 * kPage;
  const std::int64_t rest = plan->total_bytes() - plan->pool_bytes + plan->headroom_bytes;
  EXPECT_LE(rest + n * each, plan->limit_bytes + 16 * kMiB);
  EXPECT_GT(rest + (n + 1) * each, plan->limit_bytes - 16 * kMiB);
  EXPECT_EQ(fit_lines(*plan).size(), 4u);
}

TEST(MemoryPlan, WindowsDoNotGrowWithTheContext) {
  model::MemoryNeeds windowed = needs();
  windowed.kv.groups = {
      group(model::KvKind::kGlobal, 5, 0), group(model::KvKind::kWindow, 25, 512)
  };
  const auto plan = plan_memory(windowed, wish());
  ASSERT_TRUE(plan.has_value()) << plan.error().message;
  EXPECT_EQ(plan->global_bytes_per_token, 23040 / 6);
  // The window and the pages at its ends, of 25 of the 30 layers.
  EXPECT_GE(plan->window_bytes_per_sequence, 512 * 23040 / 6 * 5);
  EXPECT_LE(plan->window_bytes_per_sequence, (512 + 64) * 23040 / 6 * 5);
  EXPECT_LT(plan->context_bytes, 8192 * 23040 / 2);
}

TEST(MemoryPlan, LinesNameThePartsAndJsonHasThem) {
  const auto plan = plan_memory(needs(), wish());
  ASSERT_TRUE(plan.has_value());
  std::string all;
  for (const std::string& line : plan_lines(*plan)) all += line + "\n";
  for (const char* part : {"Q4_1 90.00 MiB", "context 8192 of 8192", "512 rows", "64 sequences"})
    EXPECT_NE(all.find(part), std::string::npos) << part << "\n" << all;
  const auto json = plan_json(*plan);
  EXPECT_EQ(json.at("kv_bytes_per_token").as_int64(), 23040);
  EXPECT_EQ(json.at("total_bytes").as_int64(), plan->total_bytes());
  EXPECT_EQ(json.at("weights_by_type").as_array().size(), 2u);
}

TEST(AnonymousBytes, GrowsWithMemoryThatIsTouched) {
  const std::int64_t before = anonymous_bytes();
  if (before == 0) GTEST_SKIP() << "this kernel does not tell";
  const std::vector<char> touched(64 << 20, 1);
  const std::int64_t grown = anonymous_bytes() - before;
  EXPECT_GE(grown, 60 * kMiB) << touched.back();
}

TEST(MemoryPlan, TheStoreTakesItsShare) {
  const auto without = plan_memory(needs(), wish());
  PlanWish with_store = wish();
  with_store.store_bytes = 64 * kMiB;
  const auto with = plan_memory(needs(), with_store);
  ASSERT_TRUE(without && with);
  EXPECT_EQ(with->store_bytes, 64 * kMiB);
  EXPECT_EQ(
      with->total_bytes() - with->pool_bytes,
      without->total_bytes() - without->pool_bytes + 64 * kMiB
  );
  const auto says_store = [](const MemoryPlan& plan) {
    for (const std::string& line : plan_lines(plan))
      if (line.find("KV store") != std::string::npos) return true;
    return false;
  };
  EXPECT_TRUE(says_store(*with));
  EXPECT_FALSE(says_store(*without));
  with_store.usable_bytes = 330 * kMiB;
  with_store.context_asked = 8192;
  const auto refused = plan_memory(needs(), with_store);
  ASSERT_FALSE(refused.has_value());
  EXPECT_NE(refused.error().message.find("--kv-dir none"), std::string::npos)
      << refused.error().message;
}

}  // namespace
}  // namespace artery::cli
