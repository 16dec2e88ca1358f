#pragma once
// `bench model`: prefill and decode speed of a loaded model without a server, beside what the
// machine's memory and arithmetic allow at that moment: both are probed before and after every
// single repetition. One thread.

#include <functional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "bench/limits.h"
#include "model/model.h"
#include "tensor/backend.h"

namespace artery::bench {

// What the matrices' weights are, for the peak they are held against.
enum class WeightClass { kQuantized, kBf16, kFloat };

struct ModelBenchConfig {
  std::vector<int> prompt_tokens = {512};
  std::vector<int> generate_tokens = {128};
  std::vector<std::pair<int, int>> combined = {};  // prompt and generation timed as one
  std::vector<int> batch = {1};                    // sequences that decode together
  std::vector<int> depth = {0};                    // tokens already in the context, untimed
  int repetitions = 5;
  int chunk_tokens = 512;                 // tokens of one prefill step
  std::size_t probe_bytes = kProbeBytes;  // of the memory bandwidth probe
  WeightClass weights = WeightClass::kQuantized;
};

struct ModelBenchRow {
  std::string name;  // "prefill 512", "decode 128 x 8 @ 4096"
  int prompt = 0, generate = 0, batch = 1, depth = 0;
  Spread tokens_per_s;       // of all sequences together
  Spread read_gb_s;          // the machine's, before, between and after the repetitions
  Spread peak_gop_s;         // the same
  double gb_per_s = 0;       // bytes of weights and KV read, at the median
  double gop_per_s = 0;      // matrix multiply-adds x 2, at the median
  double share_of_read = 0;  // median of each repetition's share of the mean of the two probes
  double share_of_peak = 0;  // around it; 0 when there is no such limit
};

struct MachineLimits {
  Spread read_gb_s;  // 1e9 bytes per second, sequential reads from memory
  bool huge_pages = false;
  Spread int8_dot_gop_s;  // 1e9 multiply-adds x 2 per second
  Spread bf16_dot_gop_s;  // zero where the CPU lacks it
  Spread fp32_fma_gop_s;
};

struct ModelBenchReport {
  MachineLimits limits;                     // at the start
  PeakKind peak_kind = PeakKind::kFp32Fma;  // what share_of_peak is of
  std::vector<ModelBenchRow> rows;
};

struct ModelBenchEvents {
  // A repetition of a test is done (0: the test begins).
  std::function<void(const std::string& test, int done, int repetitions)> on_progress;
  std::function<void(const ModelBenchRow&)> on_row;
};

// kInvalidArgument when a test exceeds the model's context, kOutOfMemory for KV.
Result<ModelBenchReport> bench_model(
    model::Model& model,
    tensor::Backend& backend,
    const ModelBenchConfig& config,
    const Clock& clock,
    const ModelBenchEvents& events
);

}  // namespace artery::bench
