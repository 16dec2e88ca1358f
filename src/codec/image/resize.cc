#include "codec/image/resize.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

namespace artery::codec::image {
namespace {

constexpr std::size_t kChannels = 3;

std::size_t stride_of(const Pixels& pixels) {
  return static_cast<std::size_t>(pixels.width) * kChannels;
}

Pixels blank(Size size) {
  Pixels out{size.width, size.height, {}};
  out.rgb.resize(stride_of(out) * static_cast<std::size_t>(size.height));
  return out;
}

std::uint8_t to_byte(long value) { return static_cast<std::uint8_t>(std::clamp(value, 0L, 255L)); }

// What source pixels, and how much of each, a pixel of one axis is made of.
struct Taps {
  int first = 0;
  std::vector<float> weights;
};

// OpenCV's computeResizeAreaTab.
std::vector<Taps> area_taps(int from, int to) {
  const double scale = static_cast<double>(from) / to;
  std::vector<Taps> all(static_cast<std::size_t>(to));
  for (int i = 0; i < to; ++i) {
    const double begin = i * scale, end = begin + scale;
    const double width = std::min(scale, from - begin);
    int first = static_cast<int>(std::ceil(begin)), last = static_cast<int>(std::floor(end));
    last = std::min(last, from - 1);
    first = std::min(first, last);
    Taps& taps = all[static_cast<std::size_t>(i)];
    taps.first = first;
    if (first - begin > 1e-3) {
      taps.first = first - 1;
      taps.weights.push_back(static_cast<float>((first - begin) / width));
    }
    for (int at = first; at < last; ++at) taps.weights.push_back(static_cast<float>(1 / width));
    if (end - last > 1e-3)
      taps.weights.push_back(static_cast<float>(std::min(std::min(end - last, 1.0), width) / width)
      );
  }
  return all;
}

// One row's pixels by `taps`, in floats.
void mix_row(const std::uint8_t* from, const std::vector<Taps>& taps, std::vector<float>& out) {
  for (std::size_t x = 0; x < taps.size(); ++x) {
    std::array<float, kChannels> sums{};
    const std::uint8_t* at = from + static_cast<std::size_t>(taps[x].first) * kChannels;
    for (const float weight : taps[x].weights)
      for (float& sum : sums) sum += static_cast<float>(*at++) * weight;
    std::copy(sums.begin(), sums.end(), out.begin() + static_cast<std::ptrdiff_t>(x * kChannels));
  }
}

// The four weights of OpenCV's interpolateCubic, in 1/2048.
std::array<int, 4> cubic_weights(float x) {
  constexpr float a = -0.75F;
  std::array<float, 4> w{};
  w[0] = ((a * (x + 1) - 5 * a) * (x + 1) + 8 * a) * (x + 1) - 4 * a;
  w[1] = ((a + 2) * x - (a + 3)) * x * x + 1;
  w[2] = ((a + 2) * (1 - x) - (a + 3)) * (1 - x) * (1 - x) + 1;
  w[3] = 1.F - w[0] - w[1] - w[2];
  std::array<int, 4> out{};
  for (std::size_t i = 0; i < 4; ++i) out[i] = static_cast<int>(std::nearbyint(w[i] * 2048));
  return out;
}

struct CubicTap {
  std::array<int, 4> places{};  // clamped to the image
  std::array<int, 4> weights{};
};

std::vector<CubicTap> cubic_taps(int from, int to) {
  const double scale = static_cast<double>(from) / to;
  std::vector<CubicTap> all(static_cast<std::size_t>(to));
  for (int i = 0; i < to; ++i) {
    const auto place = static_cast<float>((i + 0.5) * scale - 0.5);
    const int whole = static_cast<int>(std::floor(place));
    CubicTap& tap = all[static_cast<std::size_t>(i)];
    for (int k = 0; k < 4; ++k)
      tap.places[static_cast<std::size_t>(k)] = std::clamp(whole - 1 + k, 0, from - 1);
    tap.weights = cubic_weights(place - static_cast<float>(whole));
  }
  return all;
}

void cubic_row(const std::uint8_t* from, const std::vector<CubicTap>& taps, int* out) {
  for (const CubicTap& tap : taps) {
    for (std::size_t c = 0; c < kChannels; ++c) {
      int sum = 0;
      for (std::size_t k = 0; k < 4; ++k)
        sum += from[static_cast<std::size_t>(tap.places[k]) * kChannels + c] * tap.weights[k];
      *out++ = sum;
    }
  }
}

// As OpenCV sums four rows: in floats, eight values at a time, and what is left over in integers.
// One level of difference makes WebP choose other coefficients, so the order is kept.
void mix_cubic_rows(
    const std::array<const int*, 4>& rows,
    const std::array<int, 4>& weights,
    std::size_t count,
    std::uint8_t* out
) {
  constexpr float kUnit = 1.F / (2048.F * 2048.F);
  std::array<float, 4> w{};
  for (std::size_t k = 0; k < 4; ++k) w[k] = static_cast<float>(weights[k]) * kUnit;
  const std::size_t in_floats = count / 8 * 8;
  for (std::size_t i = 0; i < in_floats; ++i) {
    const auto term = [&](std::size_t k) { return static_cast<float>(rows[k][i]) * w[k]; };
    out[i] = to_byte(std::lrint(term(0) + (term(1) + (term(2) + term(3)))));
  }
  for (std::size_t i = in_floats; i < count; ++i) {
    int sum = 1 << 21;
    for (std::size_t k = 0; k < 4; ++k) sum += rows[k][i] * weights[k];
    out[i] = to_byte(sum >> 22);
  }
}

// Pillow's precompute_coeffs and normalize_coeffs_8bpc for its bicubic filter.
constexpr int kBits = 32 - 8 - 2;

struct WideTaps {
  int first = 0;
  std::vector<int> weights;  // in 1 / 2^kBits
};

double bicubic(double x) {
  constexpr double a = -0.5;
  x = std::abs(x);
  if (x < 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  if (x < 2) return (((x - 5) * x + 8) * x - 4) * a;
  return 0;
}

std::vector<WideTaps> wide_taps(int from, int to) {
  const double scale = static_cast<double>(from) / to;
  const double stretch = std::max(scale, 1.0), support = 2 * stretch;
  std::vector<WideTaps> all(static_cast<std::size_t>(to));
  std::vector<double> weights;
  for (int i = 0; i < to; ++i) {
    const double centre = (i + 0.5) * scale;
    const int first = std::max(0, static_cast<int>(centre - support + 0.5));
    const int end = std::min(from, static_cast<int>(centre + support + 0.5));
    weights.clear();
    double sum = 0;
    for (int at = first; at < end; ++at) {
      weights.push_back(bicubic((at - centre + 0.5) / stretch));
      sum += weights.back();
    }
    WideTaps& taps = all[static_cast<std::size_t>(i)];
    taps.first = first;
    for (const double weight : weights) {
      const double scaled = (sum != 0 ? weight / sum : weight) * (1 << kBits);
      taps.weights.push_back(static_cast<int>(scaled < 0 ? scaled - 0.5 : scaled + 0.5));
    }
  }
  return all;
}

// `step`: bytes from one source pixel of the axis to the next.
std::uint8_t wide_byte(const std::uint8_t* from, std::size_t step, const WideTaps& taps) {
  std::int64_t sum = 1 << (kBits - 1);
  from += static_cast<std::size_t>(taps.first) * step;
  for (const int weight : taps.weights) {
    sum += static_cast<std::int64_t>(*from) * weight;
    from += step;
  }
  return to_byte(sum >> kBits);
}

Pixels wide_across(const Pixels& from, int width) {
  if (from.width == width) return from;
  const auto taps = wide_taps(from.width, width);
  Pixels out = blank({width, from.height});
  std::uint8_t* to = out.rgb.data();
  for (int y = 0; y < from.height; ++y) {
    const std::uint8_t* const row = from.rgb.data() + static_cast<std::size_t>(y) * stride_of(from);
    for (const WideTaps& tap : taps)
      for (std::size_t c = 0; c < kChannels; ++c) *to++ = wide_byte(row + c, kChannels, tap);
  }
  return out;
}

Pixels wide_down(const Pixels& from, int height) {
  if (from.height == height) return from;
  Pixels out = blank({from.width, height});
  std::uint8_t* to = out.rgb.data();
  for (const WideTaps& tap : wide_taps(from.height, height))
    for (std::size_t at = 0; at < stride_of(from); ++at)
      *to++ = wide_byte(from.rgb.data() + at, stride_of(from), tap);
  return out;
}

int to_even(double value) { return static_cast<int>(std::nearbyint(value)); }

}  // namespace

Pixels shrink_area(const Pixels& from, Size to) {
  if (Size{from.width, from.height} == to) return from;
  const auto across = area_taps(from.width, to.width), down = area_taps(from.height, to.height);
  Pixels out = blank(to);
  std::vector<float> row(stride_of(out)), sums(stride_of(out));
  std::uint8_t* byte = out.rgb.data();
  for (const Taps& taps : down) {
    std::fill(sums.begin(), sums.end(), 0.F);
    for (std::size_t k = 0; k < taps.weights.size(); ++k) {
      const std::size_t y = static_cast<std::size_t>(taps.first) + k;
      mix_row(from.rgb.data() + y * stride_of(from), across, row);
      for (std::size_t i = 0; i < row.size(); ++i) sums[i] += row[i] * taps.weights[k];
    }
    for (const float sum : sums) *byte++ = to_byte(std::lrint(sum));
  }
  return out;
}

Pixels resize_cubic(const Pixels& from, Size to) {
  if (Size{from.width, from.height} == to) return from;
  const auto across = cubic_taps(from.width, to.width), down = cubic_taps(from.height, to.height);
  Pixels out = blank(to);
  // The rows in use, by source row modulo 4: four neighbours never share a place.
  const std::size_t stride = stride_of(out);
  std::array<std::vector<int>, 4> rows;
  std::array<int, 4> held = {-1, -1, -1, -1};
  for (auto& row : rows) row.resize(stride);
  std::uint8_t* byte = out.rgb.data();
  for (const CubicTap& tap : down) {
    std::array<const int*, 4> used{};
    for (std::size_t k = 0; k < 4; ++k) {
      const int y = tap.places[k];
      const auto slot = static_cast<std::size_t>(y % 4);
      if (held[slot] != y) {
        const auto* const source = from.rgb.data() + static_cast<std::size_t>(y) * stride_of(from);
        cubic_row(source, across, rows[slot].data());
        held[slot] = y;
      }
      used[k] = rows[slot].data();
    }
    mix_cubic_rows(used, tap.weights, stride, byte);
    byte += stride;
  }
  return out;
}

Pixels resize_antialiased(const Pixels& from, Size to) {
  return wide_down(wide_across(from, to.width), to.height);
}

Pixels pad(const Pixels& from, Size aspect_of, Size canvas, Resize resize) {
  Size inner = canvas;
  const double aspect = static_cast<double>(aspect_of.width) / aspect_of.height;
  const double wanted = static_cast<double>(canvas.width) / canvas.height;
  if (aspect > wanted) {
    inner.height = to_even(static_cast<double>(aspect_of.height) / aspect_of.width * canvas.width);
  } else if (aspect < wanted) {
    inner.width = to_even(static_cast<double>(aspect_of.width) / aspect_of.height * canvas.height);
  }
  inner = {std::clamp(inner.width, 1, canvas.width), std::clamp(inner.height, 1, canvas.height)};
  Pixels content = resize(from, inner);
  if (inner == canvas) return content;
  Pixels out = blank(canvas);
  std::fill(out.rgb.begin(), out.rgb.end(), std::uint8_t{127});
  const int left = to_even((canvas.width - inner.width) * 0.5);
  const int top = to_even((canvas.height - inner.height) * 0.5);
  for (int y = 0; y < inner.height; ++y) {
    std::memcpy(
        out.rgb.data() + static_cast<std::size_t>(top + y) * stride_of(out) +
            static_cast<std::size_t>(left) * kChannels,
        content.rgb.data() + static_cast<std::size_t>(y) * stride_of(content),
        stride_of(content)
    );
  }
  return out;
}

}  // namespace artery::codec::image
