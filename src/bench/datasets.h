#pragma once
// From the name of a data set to the requests of a run. One thread; asks the token counter of the
// maker, which may be the server under test.

#include <cstdint>
#include <functional>
#include <string>

#include "base/result.h"
#include "bench/text_maker.h"
#include "bench/trace_reader.h"
#include "bench/workload.h"

namespace artery::bench {

struct DatasetConfig {
  std::string name = "random";  // random, sharegpt, trace
  std::string path;             // sharegpt: empty takes the built-in lengths
  std::int64_t num_prompts = 1000;
  std::uint64_t seed = 0;
  std::int64_t random_input_len = 1024;
  std::int64_t random_output_len = 128;
  std::int64_t random_prefix_len = 0;    // shared by all prompts, before the random part
  double random_range_ratio = 0;         // lengths uniform in [len (1 - r), len (1 + r)]
  std::int64_t sharegpt_output_len = 0;  // 0: as long as the recorded answer
  std::int64_t input_len_max = 0;        // longer prompts are cut; 0: none are
  std::int64_t output_len_max = 0;
  double trace_speedup = 1;
};

// `on_progress` is called with requests made and wanted. kInvalidArgument, kBadFile, kNotFound, or
// what the counter fails with.
Result<Workload> make_workload(
    const DatasetConfig& config,
    TextMaker& maker,
    TokenCounter* counter,
    const std::function<void(std::int64_t, std::int64_t)>& on_progress
);

}  // namespace artery::bench
