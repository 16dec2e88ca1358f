#pragma once
// What a model takes in memory at the chosen batch, and how long a context and how many sequences
// fit into what there is (base/memory_limit.h). Everything is counted as if it were used up: tables
// and pool are touched only as they fill. Pure, any thread.

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "model/memory_needs.h"

namespace artery::cli {

struct PlanWish {
  std::int64_t model_context = 0;
  std::int64_t context_asked = 0;     // --max-model-len; 0: the model's own, or what fits
  std::int64_t pool_bytes_asked = 0;  // --kv-cache-memory-bytes; 0: chosen here
  int sequences = 64;                 // --max-num-seqs
  int batch = 512;                    // --max-num-batched-tokens
  int threads = 1;
  std::int64_t store_bytes = 0;    // of the KV store: buffers and index
  std::int64_t process_bytes = 0;  // held already: the program, metadata, tokenizer
  std::int64_t usable_bytes = 0;   // on top of that; -1: unknown
};

struct MemoryPlan {
  std::int64_t context = 0;        // tokens
  std::int64_t model_context = 0;  // what the model was trained for
  std::vector<model::WeightsOfType> weights;
  std::int64_t weight_bytes = 0;  // in the pages that hold them
  std::int64_t table_bytes = 0;   // of the context
  std::int64_t global_bytes_per_token = 0;
  std::int64_t window_bytes_per_sequence = 0;  // whatever its length
  std::int64_t context_bytes = 0;              // KV of one sequence of a whole context
  std::int64_t pool_bytes = 0;                 // the KV pool: at least one whole context
  std::int64_t activation_bytes = 0;           // of a step with all its rows, logits apart
  std::int64_t logit_bytes = 0;
  std::int64_t process_bytes = 0;
  std::int64_t store_bytes = 0;     // buffers and index of the KV store
  std::int64_t engine_bytes = 0;    // its lists, connections, stacks
  std::int64_t load_bytes = 0;      // transient, gone before the pool is made
  std::int64_t headroom_bytes = 0;  // left to the machine
  std::int64_t limit_bytes = 0;     // usable, what the process holds already included
  int sequences = 0;
  int batch = 0;

  // How many sequences of this length fit at once.
  struct Fit {
    std::int64_t context = 0;
    std::int64_t sequences = 0;
    std::int64_t bytes = 0;  // all of the plan's memory with one of them
  };
  std::vector<Fit> fits;  // short contexts first

  // Anonymous memory when all of it is used.
  std::int64_t total_bytes() const;
  // "context 8192 of 8192; 0.18 GiB KV"
  std::string text() const;
};

// The model's own context when it fits, else the largest that does. kInvalidArgument: asked for
// more than the model has; kOutOfMemory: what was asked for, or even one page, does not fit; the
// message has the numbers and the flag to change.
Result<MemoryPlan> plan_memory(const model::MemoryNeeds& needs, const PlanWish& wish);

// Anonymous memory of this process now, resident or swapped out; 0 when unknown.
std::int64_t anonymous_bytes();

}  // namespace artery::cli
