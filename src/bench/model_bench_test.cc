#include "bench/model_bench.h"

#include <gtest/gtest.h>

#include <cstring>

#include "base/chain_key.h"
#include "bench/forward_driver.h"

namespace artery::bench {
namespace {

// Counts what it is asked for; each token costs one virtual microsecond.
class CountingModel final : public model::Model {
 public:
  CountingModel(std::int64_t context, std::int64_t* clock_ns) : clock_ns_(clock_ns) {
    info_.vocab_size = 10;
    info_.context_length = context;
    info_.read_bytes_per_token = 1000;
    info_.ops_per_token = 2000;
  }
  const model::ModelInfo& info() const override { return info_; }
  model::KvLayout kv_layout() const override {
    model::KvLayout layout;
    layout.groups.push_back({});
    layout.groups[0].geometry = {1, 1, 8, tensor::KvType::kF32};
    layout.groups[0].entry_bytes = 64;
    return layout;
  }
  void forward(const model::ForwardBatch& batch, std::span<float> logits) override {
    ++steps;
    tokens += static_cast<std::int64_t>(batch.tokens.size());
    ASSERT_EQ(logits.size(), batch.logit_rows.size() * 10);
    for (std::int64_t s = 0; s < batch.sequences(); ++s) {
      const auto last =
          static_cast<std::size_t>(batch.offsets[static_cast<std::size_t>(s) + 1] - 1);
      const auto page = s * batch.page_tables[0].pages_max + batch.positions[last] / kPageTokens;
      ASSERT_NE(batch.page_tables[0].pages[static_cast<std::size_t>(page)], kNoPage);
    }
    *clock_ns_ += 1000 * static_cast<std::int64_t>(batch.tokens.size());
  }
  std::int64_t steps = 0, tokens = 0;

 private:
  model::ModelInfo info_;
  std::int64_t* clock_ns_;
};

class ModelClock final : public Clock {
 public:
  std::int64_t monotonic_ns() const override { return ns; }
  std::int64_t unix_ms() const override { return 0; }
  std::int64_t ns = 1;
};

// The machine's own limits need a real clock; the figures of the model must come from `ModelClock`.
class ModelBench : public testing::Test {
 protected:
  Result<ModelBenchReport> run(ModelBenchConfig config) {
    config.probe_bytes = 1 << 20;
    tensor::ComputePool pool(1);
    const auto backend = tensor::make_reference_backend(pool);
    return bench_model(
        model,
        *backend,
        config,
        clock,
        {[](const std::string&, int, int) {}, [this](const ModelBenchRow&) { ++rows; }}
    );
  }
  ModelClock clock;
  CountingModel model{600, &clock.ns};
  int rows = 0;
};

TEST_F(ModelBench, RunsEveryTokenOfEveryRepetition) {
  const auto report = run(
      {.prompt_tokens = {33, 512},
       .generate_tokens = {20},
       .batch = {1, 3},
       .repetitions = 2,
       .chunk_tokens = 100}
  );
  ASSERT_TRUE(report.has_value()) << report.error().message;
  EXPECT_EQ(rows, 4);
  // A warm-up of at most one chunk or four steps, then two repetitions.
  EXPECT_EQ(model.tokens, 33 + 100 + 4 + 3 * 4 + 2 * (33 + 512 + 20 + 3 * 20));
  EXPECT_EQ(model.steps, 1 + 1 + 4 + 4 + 2 * (1 + 6 + 20 + 20));
  for (const ModelBenchRow& row : report->rows) EXPECT_NEAR(row.tokens_per_s.median, 1e6, 1.0);
  // One million tokens a second in steps of three: 333,333 reads of all weights and their KV.
  const ModelBenchRow& batch3 = report->rows[3];
  EXPECT_EQ(batch3.name, "decode 20 x 3");
  EXPECT_NEAR(batch3.gb_per_s, 1000.0 / 3 * 1e-3 + 64 * 9.5 * 1e-3, 1e-6);
  EXPECT_NEAR(batch3.gop_per_s, 2.0, 1e-6);
}

TEST_F(ModelBench, DepthIsInTheContextButNotInTheTime) {
  const auto report = run(
      {.prompt_tokens = {0},
       .generate_tokens = {10},
       .combined = {{50, 10}},
       .depth = {200},
       .repetitions = 1,
       .chunk_tokens = 100}
  );
  ASSERT_TRUE(report.has_value()) << report.error().message;
  ASSERT_EQ(report->rows.size(), 2u);
  EXPECT_EQ(report->rows[0].name, "decode 10 x 1 @ 200");
  EXPECT_NEAR(report->rows[0].tokens_per_s.median, 1e6, 1.0);
  // 10 steps read 200 .. 209 entries of 64 bytes each, and the weights.
  EXPECT_NEAR(report->rows[0].gb_per_s, (1000 + 64 * 204.5) * 1e-3, 1e-6);
  EXPECT_EQ(report->rows[1].name, "prefill 50 + decode 10 x 1 @ 200");
  EXPECT_NEAR(report->rows[1].tokens_per_s.median, 1e6, 1.0);
  // 11 steps in 60 tokens; the prompt's chunk reads 200 entries, the steps 250 .. 259.
  EXPECT_NEAR(report->rows[1].gb_per_s, (11 * 1000 + 64 * (200 + 10 * 254.5)) / 60 * 1e-3, 1e-6);
  EXPECT_EQ(model.tokens, 200 + 4 + 10 + 200 + 50 + 4 + 60);
}

TEST_F(ModelBench, RefusesWhatTheContextCannotHold) {
  const auto report = run({.prompt_tokens = {601}});
  ASSERT_FALSE(report.has_value());
  EXPECT_EQ(report.error().code, Code::kInvalidArgument);
  EXPECT_EQ(report.error().field, "-p");
  const auto deep = run({.prompt_tokens = {100}, .depth = {512}});
  ASSERT_FALSE(deep.has_value());
  EXPECT_EQ(deep.error().field, "--depth");
  EXPECT_EQ(model.steps, 0);
}

TEST(KvMemory, SharedPagesComeBackWhenTheLastHolderLetsGo) {
  std::int64_t ns = 0;
  const CountingModel model(64, &ns);
  auto memory = KvMemory::make(model.kv_layout(), 2);
  ASSERT_TRUE(memory.has_value());
  const PageId a = memory->take();
  const PageId b = memory->take();
  EXPECT_NE(a, b);
  EXPECT_EQ(memory->take(), kNoPage);
  memory->hold(a);
  memory->release(a);
  EXPECT_EQ(memory->pages_free(), 0);
  memory->release(a);
  EXPECT_EQ(memory->pages_free(), 1);
  EXPECT_EQ(memory->take(), a);
}

TEST(Limits, ReadsMemoryAndCountsOperations) {
  tensor::ComputePool pool(1);
  const Spread read = measure_read_bandwidth(pool, 16u << 20, 3, system_clock());
  EXPECT_GT(read.min, 0.1);  // GB/s: slower than any machine of this century
  EXPECT_LE(read.min, read.max);
  if (tensor::supported(tensor::Isa::kAvx2)) {
    EXPECT_GT(measure_fp32_fma(pool, tensor::Isa::kAvx2, 1, system_clock()).median, 0.1);
    EXPECT_GT(measure_int8_dot(pool, tensor::Isa::kAvx2, 1, system_clock()).median, 0.1);
  }
  EXPECT_EQ(measure_int8_dot(pool, tensor::Isa::kScalar, 1, system_clock()).max, 0);
  const bool bf16 = has_peak(PeakKind::kBf16Dot, tensor::best_isa());
  PeakProbe probe(pool, tensor::best_isa(), PeakKind::kBf16Dot, system_clock());
  EXPECT_EQ(probe.measure(2).median > 0.1, bf16);
  ReadProbe none(pool, 0, system_clock());
  EXPECT_EQ(none.measure(3).max, 0);
}

TEST(Spread, IsOfAnyOrder) {
  const Spread s = spread_of({3, 1, 2});
  EXPECT_EQ(s.min, 1);
  EXPECT_EQ(s.median, 2);
  EXPECT_EQ(s.max, 3);
  EXPECT_EQ(spread_of({}).max, 0);
}

}  // namespace
}  // namespace artery::bench
