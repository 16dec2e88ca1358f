#pragma once
// The value of --speculative-config: vLLM's JSON object, or one word. Pure, any thread.

#include <string_view>

#include "base/result.h"
#include "engine/spec/config.h"

namespace artery::cli {

// "auto": n-gram drafts where the measured cost of a step says that they pay; "off"; or
// {"method":"ngram","num_speculative_tokens":4,"prompt_lookup_min":3,"prompt_lookup_max":32}:
// always those. kInvalidArgument names the field and what it may be.
Result<engine::SpeculationConfig> parse_speculative_config(std::string_view text);

}  // namespace artery::cli
