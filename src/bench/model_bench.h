#pragma once
// `bench model`: prefill and decode speed of a loaded model without a server, beside what the
// machine's memory and arithmetic allow, measured in the same run. One thread.

#include <functional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "bench/limits.h"
#include "model/model.h"
#include "tensor/backend.h"

namespace artery::bench {

struct ModelBenchConfig {
  std::vector<int> prompt_tokens = {512};
  int generate_tokens = 128;
  int repetitions = 5;
  std::vector<int> batch = {1};
  int chunk_tokens = 512;                 // tokens of one prefill step
  std::size_t probe_bytes = kProbeBytes;  // of the memory bandwidth probe
  bool quantized = true;  // most weights are quantized: the int8 peak is the measure
};

struct ModelBenchRow {
  std::string name;  // "prefill 512", "decode 128 x 8"
  int batch = 1;
  int tokens = 0;            // per sequence
  Spread tokens_per_s;       // of all sequences together
  double gb_per_s = 0;       // bytes of weights and KV read, at the median
  double gop_per_s = 0;      // matrix multiply-adds x 2, at the median
  double share_of_read = 0;  // of the machine's median read bandwidth; 0 when not measured
  double share_of_peak = 0;  // of its median arithmetic peak; 0 when there is none
};

struct ModelBenchReport {
  MachineLimits limits;
  std::string peak_name;  // "int8 dot" or "fp32 fma"
  std::vector<ModelBenchRow> rows;
};

// kInvalidArgument when a prompt or generation exceeds the model's context, kOutOfMemory for KV.
// `on_row` is called as each row is done.
Result<ModelBenchReport> bench_model(
    model::Model& model,
    tensor::Backend& backend,
    const ModelBenchConfig& config,
    const Clock& clock,
    const std::function<void(const ModelBenchRow&)>& on_row
);

}  // namespace artery::bench
