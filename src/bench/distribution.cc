#include "bench/distribution.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace artery::bench {

Distribution::Distribution(std::vector<double> values) : sorted_(std::move(values)) {
  if (sorted_.empty()) return;
  std::sort(sorted_.begin(), sorted_.end());
  const auto count = static_cast<double>(sorted_.size());
  for (const double value : sorted_) mean_ += value;
  mean_ /= count;
  double squares = 0;
  for (const double value : sorted_) squares += (value - mean_) * (value - mean_);
  deviation_ = std::sqrt(squares / count);
}

double Distribution::percentile(double p) const {
  if (sorted_.empty()) return 0;
  const double at = std::clamp(p, 0.0, 100.0) / 100 * static_cast<double>(sorted_.size() - 1);
  const auto below = static_cast<std::size_t>(at);
  const std::size_t above = std::min(below + 1, sorted_.size() - 1);
  return sorted_[below] + (at - static_cast<double>(below)) * (sorted_[above] - sorted_[below]);
}

}  // namespace artery::bench
