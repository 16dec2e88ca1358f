#include "engine/step_cost.h"

#include <algorithm>
#include <cmath>

namespace artery::engine {
namespace {

// Typical sizes of the three terms, so that the fit is well conditioned.
constexpr std::array<double, 3> kScale = {1.0, 64.0, 16384.0};
constexpr double kKeep = 0.98;        // weight of the past at each step: about 50 steps remembered
constexpr double kOutlier = 4.0;      // a step counts as at most this many times its prediction
constexpr std::int64_t kWarmUp = 8;   // before that every step counts in full
constexpr double kRidge = 1e-6;       // keeps terms that were never varied where they are
constexpr double kSecondsMin = 1e-7;  // below the clock's use
constexpr std::int64_t kTokensMax = 1 << 24;

}  // namespace

double StepCost::predict(std::int64_t tokens, std::int64_t context) const {
  return per_step_s_ + per_token_s_ * static_cast<double>(tokens) +
         per_context_s_ * static_cast<double>(context);
}

void StepCost::observe(std::int64_t tokens, std::int64_t context, double seconds) {
  if (!(seconds >= 0) || tokens <= 0) return;
  if (observations_ >= kWarmUp) seconds = std::min(seconds, kOutlier * predict(tokens, context));
  seconds = std::max(seconds, kSecondsMin);
  const std::array<double, 3> x = {
      1.0 / kScale[0],
      static_cast<double>(tokens) / kScale[1],
      static_cast<double>(context) / kScale[2]
  };
  const double weight = 1.0 / (seconds * seconds);
  for (std::size_t i = 0; i < 3; ++i) {
    for (std::size_t j = 0; j < 3; ++j) a_[i][j] = kKeep * a_[i][j] + weight * x[i] * x[j];
    b_[i] = kKeep * b_[i] + weight * x[i] * seconds;
  }
  ++observations_;
  fit();
}

// Non-negative least squares by coordinate descent from the last solution: three unknowns, a convex
// problem, a few dozen sweeps are plenty.
void StepCost::fit() {
  std::array<double, 3> w = {
      per_step_s_ * kScale[0], per_token_s_ * kScale[1], per_context_s_ * kScale[2]
  };
  const std::array<double, 3> start = w;
  for (int sweep = 0; sweep < 60; ++sweep) {
    for (std::size_t i = 0; i < 3; ++i) {
      double rest = b_[i];
      for (std::size_t j = 0; j < 3; ++j) {
        if (j != i) rest -= a_[i][j] * w[j];
      }
      const double ridge = kRidge * (a_[0][0] + a_[1][1] + a_[2][2]);
      w[i] = std::max(0.0, (rest + ridge * start[i]) / (a_[i][i] + ridge));
    }
  }
  per_step_s_ = w[0] / kScale[0];
  per_token_s_ = w[1] / kScale[1];
  per_context_s_ = w[2] / kScale[2];
}

std::int64_t StepCost::tokens_within(double seconds, std::int64_t context) const {
  const double left = seconds - predict(0, context);
  if (left <= 0) return 1;
  if (per_token_s_ * static_cast<double>(kTokensMax) <= left) return kTokensMax;
  return std::max<std::int64_t>(1, static_cast<std::int64_t>(std::floor(left / per_token_s_)));
}

}  // namespace artery::engine
