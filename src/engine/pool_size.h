#pragma once
// How long the context may be and how many KV pages there are, from the configuration, the model
// and the memory that is left. Pure; called once when an engine is made.

#include <cstdint>

#include "base/result.h"
#include "engine/engine.h"
#include "model/kv_layout.h"
#include "model/model.h"

namespace artery::engine {

struct PoolSize {
  std::int64_t max_model_len = 0;  // tokens
  std::int64_t pages = 0;          // at least those of one sequence of max_model_len
};

// `memory_available`: bytes, -1 when unknown. A context or pool that was asked for and does not fit
// is kOutOfMemory with the numbers and the flag; without max_model_len the longest context that
// fits is taken. kInvalidArgument: beyond the model's context.
Result<PoolSize> size_pool(
    const Config& config,
    const model::ModelInfo& info,
    const model::KvLayout& layout,
    std::int64_t memory_available
);

}  // namespace artery::engine
