#pragma once
// Predicts what a step costs, from the steps seen so far: the chunk budget, later
// load-or-recompute, admission and routing ask it. Engine thread only.
//
// seconds = per step + per token * tokens + per context * context, all three never negative, fitted
// by least squares of the relative error with old steps fading out. A step that took far longer
// than predicted (another process, a page fault storm) counts only as four times its prediction.

#include <array>
#include <cstdint>

namespace artery::engine {

// Share of the longest allowed step that plans aim at. A prediction is a mean: aimed at the limit
// itself, every other step is longer than that.
constexpr double kStepAim = 0.6;

class StepCost {
 public:
  // `per_token_s`: seconds of a row, as guessed before anything was seen.
  explicit StepCost(double per_token_s = 1e-3) : per_token_s_(per_token_s) {}

  // Seconds of a step with `tokens` rows that read `context` positions of history in all (the sum
  // over rows). Before the first observation a careful guess.
  double predict(std::int64_t tokens, std::int64_t context) const;
  void observe(std::int64_t tokens, std::int64_t context, double seconds);
  // False: predict() is the careful guess.
  bool has_observed() const { return observations_ > 0; }
  // Most rows whose predicted cost stays below `seconds`, at least 1.
  std::int64_t tokens_within(double seconds, std::int64_t context) const;

 private:
  void fit();

  double per_step_s_ = 1e-3;
  double per_token_s_;
  double per_context_s_ = 0;
  std::int64_t observations_ = 0;
  // Normal equations of the three coefficients, in units of kScale.
  std::array<std::array<double, 3>, 3> a_{};
  std::array<double, 3> b_{};
};

}  // namespace artery::engine
