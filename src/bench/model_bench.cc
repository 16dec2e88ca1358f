#include "bench/model_bench.h"

#include <algorithm>

#include "base/chain_key.h"
#include "bench/forward_driver.h"

namespace artery::bench {
namespace {

struct Lane {
  std::vector<TokenId> tokens;
  std::vector<PageId> pages;
};

// Token ids that spread over the vocabulary; the same every run.
std::vector<TokenId> some_tokens(std::size_t count, std::int64_t vocab_size, std::uint64_t seed) {
  std::vector<TokenId> tokens(count);
  std::uint64_t state = 0x9e3779b97f4a7c15u + seed;
  for (TokenId& token : tokens) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    token = static_cast<TokenId>((state >> 33) % static_cast<std::uint64_t>(vocab_size));
  }
  return tokens;
}

class Bench {
 public:
  Bench(model::Model& model, KvMemory& memory, const ModelBenchConfig& config, const Clock& clock)
      : model_(model), memory_(memory), config_(config), clock_(clock) {}

  // Seconds of one prompt of `tokens`, the last row's logits wanted as in serving.
  double prefill_once(int tokens) {
    Lane lane = make_lane(tokens, 0);
    const std::int64_t start = clock_.monotonic_ns();
    for (int at = 0; at < tokens; at += config_.chunk_tokens) {
      const int count = std::min(config_.chunk_tokens, tokens - at);
      Slice slice = slice_of(lane, at, count);
      if (at + count == tokens) slice.logit_rows = {count - 1};
      run_forward(model_, memory_, std::span(&slice, 1), logits_);
    }
    const double seconds = since(start);
    give_back(lane);
    return seconds;
  }

  // Seconds of `tokens` decode steps of `batch` sequences at once, from an empty context.
  double decode_once(int tokens, int batch) {
    std::vector<Lane> lanes;
    for (int b = 0; b < batch; ++b)
      lanes.push_back(make_lane(tokens, static_cast<std::uint64_t>(b)));
    const std::int64_t start = clock_.monotonic_ns();
    std::vector<Slice> slices(lanes.size());
    for (int at = 0; at < tokens; ++at) {
      for (std::size_t b = 0; b < lanes.size(); ++b) {
        slices[b] = slice_of(lanes[b], at, 1);
        slices[b].logit_rows = {0};
      }
      run_forward(model_, memory_, slices, logits_);
    }
    const double seconds = since(start);
    for (Lane& lane : lanes) give_back(lane);
    return seconds;
  }

 private:
  Lane make_lane(int tokens, std::uint64_t seed) {
    Lane lane;
    lane.tokens = some_tokens(static_cast<std::size_t>(tokens), model_.info().vocab_size, seed);
    for (int at = 0; at < tokens; at += kPageTokens) lane.pages.push_back(memory_.take());
    return lane;
  }
  void give_back(const Lane& lane) {
    for (const PageId page : lane.pages) memory_.release(page);
  }
  static Slice slice_of(const Lane& lane, int at, int count) {
    const auto tokens = std::span(lane.tokens)
                            .subspan(static_cast<std::size_t>(at), static_cast<std::size_t>(count));
    return {tokens, static_cast<Position>(at), lane.pages, {}};
  }
  double since(std::int64_t start) const {
    return static_cast<double>(clock_.monotonic_ns() - start) * 1e-9;
  }

  model::Model& model_;
  KvMemory& memory_;
  const ModelBenchConfig& config_;
  const Clock& clock_;
  std::vector<float> logits_;
};

template <typename Once>
ModelBenchRow measure(const ModelBenchConfig& config, int tokens, int batch, const Once& once) {
  ModelBenchRow row;
  row.batch = batch;
  row.tokens = tokens;
  once();  // touches pages and wakes the pool
  std::vector<double> speeds;
  for (int r = 0; r < config.repetitions; ++r)
    speeds.push_back(static_cast<double>(tokens) * batch / once());
  row.tokens_per_s = spread_of(std::move(speeds));
  return row;
}

// Fills in what follows from the median. `steps_per_s` is how often all weights are read.
void derive(
    ModelBenchRow& row,
    const ModelBenchReport& report,
    const model::ModelInfo& info,
    double steps_per_s,
    double kv_bytes_per_s
) {
  const double read = report.limits.read_gb_s.median;
  const double peak = report.peak_name == "int8 dot" ? report.limits.int8_dot_gop_s.median
                                                     : report.limits.fp32_fma_gop_s.median;
  row.gb_per_s =
      (static_cast<double>(info.read_bytes_per_token) * steps_per_s + kv_bytes_per_s) * 1e-9;
  row.gop_per_s = static_cast<double>(info.ops_per_token) * row.tokens_per_s.median * 1e-9;
  row.share_of_read = read > 0 ? row.gb_per_s / read : 0;
  row.share_of_peak = peak > 0 ? row.gop_per_s / peak : 0;
}

Result<std::int64_t> pages_needed(const ModelBenchConfig& config, const model::ModelInfo& info) {
  const auto check = [&](int tokens, const char* flag) -> Result<> {
    if (tokens <= info.context_length) return {};
    return fail_field(
        flag, "{} tokens exceed the model's context of {}", tokens, info.context_length
    );
  };
  for (const int tokens : config.prompt_tokens) TRY(check(tokens, "-p"));
  TRY(check(config.generate_tokens, "-n"));
  const auto pages = [](int tokens) { return (tokens + kPageTokens - 1) / kPageTokens; };
  std::int64_t need = 1;
  for (const int tokens : config.prompt_tokens) need = std::max<std::int64_t>(need, pages(tokens));
  for (const int batch : config.batch)
    need = std::max<std::int64_t>(need, std::int64_t{batch} * pages(config.generate_tokens));
  return need;
}

}  // namespace

Result<ModelBenchReport> bench_model(
    model::Model& model,
    tensor::Backend& backend,
    const ModelBenchConfig& config,
    const Clock& clock,
    const std::function<void(const ModelBenchRow&)>& on_row
) {
  const std::int64_t pages = TRY(pages_needed(config, model.info()));
  const model::KvLayout layout = model.kv_layout();
  KvMemory memory = TRY(KvMemory::make(layout, pages));
  ModelBenchReport report;
  report.peak_name = config.quantized ? "int8 dot" : "fp32 fma";
  report.limits = measure_limits(backend.pool(), backend.isa(), clock, config.probe_bytes);
  Bench bench(model, memory, config, clock);
  // A step at position p reads p entries; over n steps that is (n - 1) / 2 a step on average.
  const auto kv_per_step = [&](int tokens) {
    return static_cast<double>(layout.bytes_per_token()) * (tokens - 1) / 2;
  };
  for (const int tokens : config.prompt_tokens) {
    if (tokens == 0) continue;
    ModelBenchRow row = measure(config, tokens, 1, [&] { return bench.prefill_once(tokens); });
    row.name = fmt::format("prefill {}", tokens);
    const int chunks = (tokens + config.chunk_tokens - 1) / config.chunk_tokens;
    derive(row, report, model.info(), chunks * row.tokens_per_s.median / tokens, 0);
    on_row(row);
    report.rows.push_back(std::move(row));
  }
  for (const int batch : config.batch) {
    if (config.generate_tokens == 0) continue;
    const int tokens = config.generate_tokens;
    ModelBenchRow row =
        measure(config, tokens, batch, [&] { return bench.decode_once(tokens, batch); });
    row.name = fmt::format("decode {} x {}", tokens, batch);
    const double kv = kv_per_step(tokens) * row.tokens_per_s.median;
    derive(row, report, model.info(), row.tokens_per_s.median / batch, kv);
    on_row(row);
    report.rows.push_back(std::move(row));
  }
  return report;
}

}  // namespace artery::bench
