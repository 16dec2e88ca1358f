#pragma once
// One step on its way: what the engine thread planned, what the model computes from it, what came
// of it. The engine thread fills it, hands it to whoever computes (Runner), and gets it back; only
// one of the two touches it at a time, but for what Core::arm writes before sampling is allowed.

#include <cstdint>
#include <optional>
#include <vector>

#include "engine/choice.h"
#include "engine/sampler.h"

namespace artery::engine {

// The rows of one sequence.
struct StepItem {
  RequestState* request = nullptr;
  Choice* choice = nullptr;
  std::int64_t first = 0;        // position of the first row
  std::int64_t rows = 0;         // at least 1
  std::int64_t logits_from = 0;  // logits are wanted from this row on; `rows`: none
  std::uint64_t kv_epoch = 0;    // of the choice when planned: differs once it was preempted
  bool decode = false;           // one row of a generated token
  bool completes = false;        // the last row is of the last known token
  bool samples = false;          // and its logits give the next one
  bool prompt_logprobs = false;
  std::vector<TokenId> drafts;  // tokens of the last rows, not known to be right
  // The token of the one row is what item `late_from` of the step before samples.
  bool late = false;
  std::size_t late_from = 0;

  // Core::arm.
  bool wanted = true;               // false: the choice ended meanwhile, nobody reads its sample
  std::vector<std::uint32_t> mask;  // the grammar's, or empty

  // Runner.
  bool dropped = false;          // its late token ended the choice: the row did not run
  std::size_t first_logits = 0;  // index of row `logits_from` in the logits
  std::optional<Result<Sampled>> sampled;
  std::vector<Result<Sampled>> verified;  // after `sampled`, one for each accepted draft
  std::vector<PositionLogprobs> prompt;   // of rows `logits_from` on, where a prompt token follows

  // Of the token that the last row of a known token gives.
  Position next_position() const {
    return static_cast<Position>(first + rows - std::ssize(drafts));
  }
};

struct StepWork {
  std::vector<StepItem> items;
  // The arrays of model::ForwardBatch.
  std::vector<TokenId> tokens;
  std::vector<Position> positions;
  std::vector<std::int32_t> offsets;
  std::vector<PageId> page_table;  // [items, pages_max]
  std::int64_t pages_max = 1;
  // Of a model with window groups, else empty: model::PageTable's.
  std::vector<PageId> window_table;         // [items, pages_max]
  std::vector<Position> window_first;       // [items], of the window groups
  std::vector<Position> global_write_from;  // [items], of the global groups
  std::vector<std::int32_t> logit_rows;

  std::int64_t prefill_rows = 0, decode_rows = 0;
  std::int64_t context = 0;      // positions read, summed over the rows
  std::int64_t draft_rows = 0;   // of decode_rows
  double seconds_predicted = 0;  // when draft_rows
  bool armed = false;
  // Clock::monotonic_ns
  std::int64_t begin_ns = 0, forward_end_ns = 0, sampling_ns = 0, end_ns = 0;
};

}  // namespace artery::engine
