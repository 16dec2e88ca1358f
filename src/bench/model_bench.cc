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

struct Test {
  int prompt = 0, generate = 0, batch = 1, depth = 0;
  int length() const { return depth + prompt + generate; }
  std::string name() const {
    std::string text;
    if (prompt > 0) text += fmt::format("prefill {}", prompt);
    if (generate > 0)
      text += fmt::format("{}decode {} x {}", prompt > 0 ? " + " : "", generate, batch);
    if (depth > 0) text += fmt::format(" @ {}", depth);
    return text;
  }
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

// The sequences of one test in KV memory. Every run starts at the test's depth again and writes
// over what the last one left.
class Run {
 public:
  Run(model::Model& model, KvMemory& memory, const Test& test, int chunk_tokens)
      : model_(model), memory_(memory), test_(test), chunk_tokens_(chunk_tokens) {
    for (int b = 0; b < test.batch; ++b) {
      Lane lane;
      lane.tokens = some_tokens(
          static_cast<std::size_t>(test.length()),
          model.info().vocab_size,
          static_cast<std::uint64_t>(b)
      );
      for (int at = 0; at < test.length(); at += kPageTokens) lane.pages.push_back(memory.take());
      lanes_.push_back(std::move(lane));
    }
    for (const Lane& lane : lanes_) prefill(lane, 0, test.depth);
  }
  ~Run() {
    for (const Lane& lane : lanes_)
      for (const PageId page : lane.pages) memory_.release(page);
  }
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  // At most so many tokens of each part.
  void go(int prompt, int generate) {
    for (const Lane& lane : lanes_) prefill(lane, test_.depth, prompt);
    const int first = test_.depth + test_.prompt;
    std::vector<Slice> slices(lanes_.size());
    for (int at = first; at < first + generate; ++at) {
      for (std::size_t b = 0; b < lanes_.size(); ++b) {
        slices[b] = slice_of(lanes_[b], at, 1);
        slices[b].logit_rows = {0};
      }
      run_forward(model_, memory_, slices, logits_);
    }
  }

 private:
  // The last row's logits are wanted, as in serving.
  void prefill(const Lane& lane, int first, int tokens) {
    for (int at = 0; at < tokens; at += chunk_tokens_) {
      const int count = std::min(chunk_tokens_, tokens - at);
      Slice slice = slice_of(lane, first + at, count);
      if (at + count == tokens) slice.logit_rows = {count - 1};
      run_forward(model_, memory_, std::span(&slice, 1), logits_);
    }
  }
  static Slice slice_of(const Lane& lane, int at, int count) {
    const auto tokens = std::span(lane.tokens)
                            .subspan(static_cast<std::size_t>(at), static_cast<std::size_t>(count));
    return {tokens, static_cast<Position>(at), lane.pages, {}};
  }

  model::Model& model_;
  KvMemory& memory_;
  const Test& test_;
  int chunk_tokens_;
  std::vector<Lane> lanes_;
  std::vector<float> logits_;
};

// What one run has to read: all weights once a step, and the KV entries before the step's tokens
// once a sequence (a chunk of a prompt reads them once for all its rows).
double bytes_read(const Test& test, const model::Model& model, int chunk_tokens) {
  double entries = 0, steps = 0;
  for (int at = 0; at < test.prompt; at += chunk_tokens) {
    entries += static_cast<double>(test.batch) * (test.depth + at);
    steps += test.batch;
  }
  const double before = test.depth + test.prompt;
  entries += static_cast<double>(test.batch) * test.generate * (before + (test.generate - 1) / 2.0);
  steps += test.generate;
  return steps * static_cast<double>(model.info().read_bytes_per_token) +
         entries * static_cast<double>(model.kv_layout().bytes_per_token());
}

// Multiply-adds x 2 of the matrices in one run. The output matrix is used for the last token of a
// prompt only, for each decoded one.
double operations(const Test& test, const model::ModelInfo& info) {
  const double output = 2.0 * static_cast<double>(info.vocab_size * info.embedding_length);
  const double tokens = test.prompt + test.generate;
  const double outputs = (test.prompt > 0 ? 1 : 0) + test.generate;
  return test.batch *
         (tokens * (static_cast<double>(info.ops_per_token) - output) + outputs * output);
}

double between(const Spread& before, const Spread& after) {
  return (before.median + after.median) / 2;
}

class Bench {
 public:
  Bench(
      model::Model& model,
      tensor::Backend& backend,
      KvMemory& memory,
      const ModelBenchConfig& config,
      const Clock& clock,
      PeakKind kind
  )
      : model_(model),
        memory_(memory),
        config_(config),
        clock_(clock),
        read_(backend.pool(), config.probe_bytes, clock),
        peak_(backend.pool(), backend.isa(), kind, clock) {}

  ReadProbe& read_probe() { return read_; }

  ModelBenchRow measure(const Test& test, const ModelBenchEvents& events) {
    ModelBenchRow row;
    row.name = test.name();
    row.prompt = test.prompt;
    row.generate = test.generate;
    row.batch = test.batch;
    row.depth = test.depth;
    events.on_progress(row.name, 0, config_.repetitions);
    Run run(model_, memory_, test, config_.chunk_tokens);
    // Touches what a run touches and wakes the pool.
    run.go(std::min(test.prompt, config_.chunk_tokens), std::min(test.generate, kWarmUpSteps));
    const double bytes = bytes_read(test, model_, config_.chunk_tokens) * 1e-9;
    const double tokens = static_cast<double>(test.prompt + test.generate) * test.batch;
    const double ops = operations(test, model_.info()) * 1e-9;
    std::vector<double> speeds, of_read, of_peak;
    Probes probes;
    probe(probes);
    for (int r = 0; r < config_.repetitions; ++r) {
      const std::int64_t start = clock_.monotonic_ns();
      run.go(test.prompt, test.generate);
      const double seconds =
          std::max(static_cast<double>(clock_.monotonic_ns() - start) * 1e-9, 1e-9);
      const Spread read_before = probes.read.back(), peak_before = probes.peak.back();
      probe(probes);
      speeds.push_back(tokens / seconds);
      const double read = between(read_before, probes.read.back());
      const double peak = between(peak_before, probes.peak.back());
      if (read > 0) of_read.push_back(bytes / seconds / read);
      if (peak > 0) of_peak.push_back(ops / seconds / peak);
      events.on_progress(row.name, r + 1, config_.repetitions);
    }
    row.tokens_per_s = spread_of(std::move(speeds));
    row.read_gb_s = medians(probes.read);
    row.peak_gop_s = medians(probes.peak);
    row.gb_per_s = bytes * row.tokens_per_s.median / tokens;
    row.gop_per_s = ops * row.tokens_per_s.median / tokens;
    row.share_of_read = spread_of(std::move(of_read)).median;
    row.share_of_peak = spread_of(std::move(of_peak)).median;
    return row;
  }

 private:
  static constexpr int kWarmUpSteps = 4;
  struct Probes {
    std::vector<Spread> read, peak;
  };
  void probe(Probes& probes) {
    constexpr int kTries = 3;
    probes.read.push_back(read_.measure(kTries));
    probes.peak.push_back(peak_.measure(kTries));
  }
  static Spread medians(const std::vector<Spread>& spreads) {
    std::vector<double> values;
    for (const Spread& spread : spreads) values.push_back(spread.median);
    return spread_of(std::move(values));
  }

  model::Model& model_;
  KvMemory& memory_;
  const ModelBenchConfig& config_;
  const Clock& clock_;
  ReadProbe read_;
  PeakProbe peak_;
};

std::vector<Test> tests_of(const ModelBenchConfig& config) {
  std::vector<Test> tests;
  for (const int depth : config.depth) {
    for (const int prompt : config.prompt_tokens)
      if (prompt > 0) tests.push_back({prompt, 0, 1, depth});
    for (const int batch : config.batch)
      for (const int generate : config.generate_tokens)
        if (generate > 0) tests.push_back({0, generate, batch, depth});
    for (const auto& [prompt, generate] : config.combined)
      for (const int batch : config.batch) tests.push_back({prompt, generate, batch, depth});
  }
  return tests;
}

Result<std::int64_t> pages_needed(const std::vector<Test>& tests, const model::ModelInfo& info) {
  std::int64_t need = 1;
  for (const Test& test : tests) {
    if (test.length() > info.context_length)
      return fail_field(
          test.depth > 0    ? "--depth"
          : test.prompt > 0 ? "-p"
                            : "-n",
          "{}: {} tokens exceed the model's context of {}",
          test.name(),
          test.length(),
          info.context_length
      );
    const std::int64_t pages = (test.length() + kPageTokens - 1) / kPageTokens;
    need = std::max(need, pages * test.batch);
  }
  return need;
}

// The faster of the two that bfloat16 weights can be multiplied with: which one it is differs
// between makers of CPUs.
PeakKind kind_for(WeightClass weights, const MachineLimits& limits) {
  if (weights == WeightClass::kQuantized) return PeakKind::kInt8Dot;
  const bool bf16 =
      weights == WeightClass::kBf16 && limits.bf16_dot_gop_s.median > limits.fp32_fma_gop_s.median;
  return bf16 ? PeakKind::kBf16Dot : PeakKind::kFp32Fma;
}

}  // namespace

Result<ModelBenchReport> bench_model(
    model::Model& model,
    tensor::Backend& backend,
    const ModelBenchConfig& config,
    const Clock& clock,
    const ModelBenchEvents& events
) {
  constexpr int kTries = 5;
  const std::vector<Test> tests = tests_of(config);
  const std::int64_t pages = TRY(pages_needed(tests, model.info()));
  KvMemory memory = TRY(KvMemory::make(model.kv_layout(), pages));
  ModelBenchReport report;
  MachineLimits& limits = report.limits;
  const auto peak = [&](PeakKind kind) {
    return PeakProbe(backend.pool(), backend.isa(), kind, clock).measure(kTries);
  };
  limits.int8_dot_gop_s = peak(PeakKind::kInt8Dot);
  limits.bf16_dot_gop_s = peak(PeakKind::kBf16Dot);
  limits.fp32_fma_gop_s = peak(PeakKind::kFp32Fma);
  report.peak_kind = kind_for(config.weights, limits);
  Bench bench(model, backend, memory, config, clock, report.peak_kind);
  limits.read_gb_s = bench.read_probe().measure(kTries);
  limits.huge_pages = bench.read_probe().huge_pages();
  for (const Test& test : tests) {
    ModelBenchRow row = bench.measure(test, events);
    events.on_row(row);
    report.rows.push_back(std::move(row));
  }
  return report;
}

}  // namespace artery::bench
