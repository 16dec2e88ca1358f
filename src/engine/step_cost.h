#pragma once
// Predicts what a step costs, from the steps seen so far: the chunk budget, later
// load-or-recompute, admission and routing ask it. Engine thread only.

#include <cstdint>

namespace artery::engine {

class StepCost {
 public:
  // Seconds of a step with `tokens` rows over `context` positions of history in all. Before the
  // first observation a careful guess.
  double predict(std::int64_t tokens, std::int64_t context) const;
  void observe(std::int64_t tokens, std::int64_t context, double seconds);
  // Most rows whose predicted cost stays below `seconds`, at least 1.
  std::int64_t tokens_within(double seconds, std::int64_t context) const;

 private:
  double per_step_s_ = 1e-3;
  double per_token_s_ = 1e-3;
  double per_context_s_ = 0;
  std::int64_t observations_ = 0;
};

}  // namespace artery::engine
