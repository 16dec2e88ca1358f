#pragma once
// How long the context may be, how many KV pages there are in each page space and how many
// sequences may run at once, from the configuration, the model and the memory that is left. Pure;
// called once when an engine is made, and by whoever plans memory.

#include <cstdint>

#include "base/result.h"
#include "engine/engine.h"
#include "engine/window_shape.h"
#include "model/kv_layout.h"
#include "model/model.h"

namespace artery::engine {

struct PoolSize {
  std::int64_t max_model_len = 0;  // tokens
  int slots = 0;                   // sequences that run at once: max_num_seqs, or fewer
  std::int64_t pages = 0;          // global; at least those of one sequence of max_model_len
  std::int64_t page_bytes = 0;     // 0: all layers have windows, the pages only count
  // The window space: what `slots` sequences can take at most, and room for saved windows
  // (window_pages_saved(), or less in a small pool).
  std::int64_t window_pages = 0;
  std::int64_t window_pages_running = 0;
  std::int64_t window_page_bytes = 0;

  std::int64_t global_bytes() const { return pages * page_bytes; }
  std::int64_t window_bytes() const { return window_pages * window_page_bytes; }
  std::int64_t bytes() const { return global_bytes() + window_bytes(); }
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

// Window pages that `sequences` running ones of at most `max_model_len` tokens hold at most, with
// steps of `step_tokens` rows, two of them on their way.
std::int64_t window_pages_running(
    const WindowShape& shape,
    std::int64_t sequences,
    std::int64_t step_tokens,
    std::int64_t max_model_len
);

// Pages kept for saved windows beside `running`: a quarter of those, at least 8 windows. A server
// with few slots and little to do is where conversations go on after a pause. `pages`: global ones;
// a window is kept beside these only, so that more of all windows would never be used.
std::int64_t window_pages_saved(const WindowShape& shape, std::int64_t running, std::int64_t pages);

}  // namespace artery::engine
