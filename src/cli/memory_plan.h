#pragma once
// How long a context fits into the memory there is (base/memory_limit.h). Pure, any thread.

#include <cstdint>
#include <string>

#include "base/result.h"

namespace artery::cli {

struct ContextPlan {
  std::int64_t context = 0;        // tokens
  std::int64_t model_context = 0;  // what the model was trained for
  std::int64_t bytes_per_token = 0;
  std::int64_t pool_bytes = 0;  // the KV pool: at least one whole context
  // "context 8192 of 8192; 0.18 GiB KV"
  std::string text() const;
};

struct ContextWish {
  std::int64_t model_context = 0;
  std::int64_t asked = 0;             // --max-model-len; 0: the model's own, or what fits
  std::int64_t bytes_per_token = 0;   // of KV
  std::int64_t usable_bytes = 0;      // after the weights
  std::int64_t pool_bytes_asked = 0;  // --kv-cache-memory-bytes; 0: chosen here
};

// The model's own context when it fits, else the largest that does. kInvalidArgument: asked for
// more than the model has; kOutOfMemory: what was asked for, or even one page, does not fit.
Result<ContextPlan> plan_context(const ContextWish& wish);

}  // namespace artery::cli
