#pragma once
// Smallest, middle and largest of a few measurements: what every figure is printed as. Pure.

#include <algorithm>
#include <vector>

namespace artery::bench {

struct Spread {
  double min = 0, median = 0, max = 0;
};

// All zero for no values; the lower middle of an even count.
inline Spread spread_of(std::vector<double> values) {
  if (values.empty()) return {};
  std::sort(values.begin(), values.end());
  return {values.front(), values[(values.size() - 1) / 2], values.back()};
}

}  // namespace artery::bench
