#pragma once
// Small line and point plots as SVG text to put inside an HTML page. Colours come from the page's
// classes s0, s1, ... Pure functions, any thread.

#include <string>
#include <utility>
#include <vector>

namespace artery::bench {

struct Series {
  std::string name;
  std::vector<std::pair<double, double>> points;
  bool dots = false;  // points alone, no line
};

struct Plot {
  std::string title, x_label, y_label;
  std::vector<Series> series;
  double y_max = 0;  // 0: the largest value
};

// Empty series are left out; a plot without any says so.
std::string svg(const Plot& plot);

// "<", "&" and quotes as entities.
std::string html_escaped(std::string_view text);

// Steps of 1, 2 or 5 times a power of ten that cut [0, most] into about `count` parts.
double nice_step(double most, int count);

}  // namespace artery::bench
