#include "bench/svg_plot.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

namespace artery::bench {
namespace {

constexpr double kWidth = 560, kHeight = 260;
constexpr double kLeft = 58, kRight = 12, kTop = 30, kBottom = 40;

struct Frame {
  double x_max = 1, y_max = 1;
  double x(double value) const { return kLeft + value / x_max * (kWidth - kLeft - kRight); }
  double y(double value) const {
    return kHeight - kBottom - value / y_max * (kHeight - kTop - kBottom);
  }
};

Frame frame_of(const Plot& plot) {
  double x = 0, y = 0;
  for (const Series& series : plot.series)
    for (const auto& [px, py] : series.points) {
      x = std::max(x, px);
      y = std::max(y, py);
    }
  Frame frame;
  frame.x_max = x > 0 ? x : 1;
  frame.y_max = plot.y_max > 0 ? plot.y_max : y > 0 ? y * 1.05 : 1;
  return frame;
}

std::string number(double value, double step) {
  const int digits = step >= 1 ? 0 : static_cast<int>(std::ceil(-std::log10(step) - 1e-9));
  return fmt::format("{:.{}f}", value, std::min(digits, 6));
}

std::string axes(const Plot& plot, const Frame& frame) {
  std::string out;
  const double x_step = nice_step(frame.x_max, 6), y_step = nice_step(frame.y_max, 5);
  for (int i = 0; i * y_step <= frame.y_max * 1.0001; ++i) {
    const double y = frame.y(i * y_step);
    out += fmt::format(
        "<line class=\"grid\" x1=\"{:.1f}\" x2=\"{:.1f}\" y1=\"{:.1f}\" y2=\"{:.1f}\"/>"
        "<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"end\">{}</text>\n",
        kLeft,
        kWidth - kRight,
        y,
        y,
        kLeft - 6,
        y + 4,
        number(i * y_step, y_step)
    );
  }
  for (int i = 0; i * x_step <= frame.x_max * 1.0001; ++i) {
    const double x = frame.x(i * x_step);
    out += fmt::format(
        "<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">{}</text>\n",
        x,
        kHeight - kBottom + 16,
        number(i * x_step, x_step)
    );
  }
  out += fmt::format(
      "<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">{}</text>\n"
      "<text x=\"14\" y=\"{:.1f}\" text-anchor=\"middle\" "
      "transform=\"rotate(-90 14 {:.1f})\">{}</text>\n",
      (kLeft + kWidth - kRight) / 2,
      kHeight - 8,
      html_escaped(plot.x_label),
      (kTop + kHeight - kBottom) / 2,
      (kTop + kHeight - kBottom) / 2,
      html_escaped(plot.y_label)
  );
  return out;
}

std::string drawn(const Series& series, const Frame& frame, std::size_t colour) {
  std::string out;
  if (series.dots) {
    for (const auto& [x, y] : series.points)
      out += fmt::format(
          "<circle class=\"d{}\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"2\"/>",
          colour,
          frame.x(x),
          frame.y(std::min(y, frame.y_max))
      );
    return out + "\n";
  }
  out += fmt::format("<polyline class=\"s{}\" points=\"", colour);
  for (const auto& [x, y] : series.points)
    out += fmt::format("{:.1f},{:.1f} ", frame.x(x), frame.y(std::min(y, frame.y_max)));
  return out + "\"/>\n";
}

}  // namespace

double nice_step(double most, int count) {
  if (!(most > 0) || !std::isfinite(most)) return 1;
  const double raw = most / count;
  const double power = std::pow(10.0, std::floor(std::log10(raw)));
  for (const double factor : {1.0, 2.0, 5.0})
    if (raw <= factor * power) return factor * power;
  return 10 * power;
}

std::string html_escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '&':
        out += "&amp;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        // Control characters are not allowed in a page.
        out += static_cast<unsigned char>(c) < 0x20 && c != '\n' && c != '\t' ? ' ' : c;
    }
  }
  return out;
}

std::string svg(const Plot& plot) {
  std::string out = fmt::format(
      "<svg viewBox=\"0 0 {:.0f} {:.0f}\" role=\"img\"><title>{}</title>\n"
      "<text class=\"title\" x=\"{:.1f}\" y=\"16\">{}</text>\n",
      kWidth,
      kHeight,
      html_escaped(plot.title),
      kLeft,
      html_escaped(plot.title)
  );
  std::size_t points = 0;
  for (const Series& series : plot.series) points += series.points.size();
  if (points == 0)
    return out + fmt::format(
                     "<text x=\"{:.1f}\" y=\"{:.1f}\">nothing was measured</text></svg>\n",
                     kLeft,
                     kHeight / 2
                 );
  const Frame frame = frame_of(plot);
  out += axes(plot, frame);
  double legend = kWidth - kRight;
  for (std::size_t i = plot.series.size(); i-- > 0;) {
    const Series& series = plot.series[i];
    if (series.points.empty()) continue;
    out += drawn(series, frame, i);
    if (series.name.empty()) continue;
    out += fmt::format(
        "<text class=\"t{}\" x=\"{:.1f}\" y=\"16\" text-anchor=\"end\">{}</text>\n",
        i,
        legend,
        html_escaped(series.name)
    );
    legend -= 8 * static_cast<double>(series.name.size()) + 14;
  }
  return out + "</svg>\n";
}

}  // namespace artery::bench
