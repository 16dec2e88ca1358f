#pragma once
// Mean, deviation and percentiles of many measurements, as numpy counts them (percentiles by linear
// interpolation, deviation of the population), so that figures compare with those of other load
// generators. Immutable, any thread.

#include <vector>

namespace artery::bench {

class Distribution {
 public:
  Distribution() = default;
  explicit Distribution(std::vector<double> values);

  std::size_t count() const { return sorted_.size(); }
  double mean() const { return mean_; }
  double deviation() const { return deviation_; }
  double median() const { return percentile(50); }
  // `p` in [0, 100]; 0 of no values.
  double percentile(double p) const;
  const std::vector<double>& sorted() const { return sorted_; }

 private:
  std::vector<double> sorted_;
  double mean_ = 0, deviation_ = 0;
};

}  // namespace artery::bench
