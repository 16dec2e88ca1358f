#include "tensor/math.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace artery::tensor {
namespace {

// Adding and subtracting 1.5 * 2^52 rounds |x| < 2^51 to the nearest integer, ties to even.
constexpr double kRoundMagic = 6755399441055744.0;
constexpr double kLog2E = 0x1.71547652b82fep+0;
// ln 2 in two parts; the high one has 32 significant bits, so n * kLn2High is exact for |n| < 2^21.
constexpr double kLn2High = 0x1.62e42fee00000p-1;
constexpr double kLn2Low = 0x1.a39ef35793c76p-33;
constexpr double kInfinity = std::numeric_limits<double>::infinity();

// 2^n for -1022 <= n <= 1023.
double power_of_two(std::int64_t n) {
  return std::bit_cast<double>(static_cast<std::uint64_t>(n + 1023) << 52);
}

// sin and cos on [-pi/4, pi/4]: Taylor series, the first omitted term is below 2e-19.
double sin_kernel(double x) {
  const double z = x * x;
  double p = 1.0 / 355687428096000.0;
  p = p * z - 1.0 / 1307674368000.0;
  p = p * z + 1.0 / 6227020800.0;
  p = p * z - 1.0 / 39916800.0;
  p = p * z + 1.0 / 362880.0;
  p = p * z - 1.0 / 5040.0;
  p = p * z + 1.0 / 120.0;
  p = p * z - 1.0 / 6.0;
  return x + x * z * p;
}

double cos_kernel(double x) {
  const double z = x * x;
  double p = 1.0 / 20922789888000.0;
  p = p * z - 1.0 / 87178291200.0;
  p = p * z + 1.0 / 479001600.0;
  p = p * z - 1.0 / 3628800.0;
  p = p * z + 1.0 / 40320.0;
  p = p * z - 1.0 / 720.0;
  p = p * z + 1.0 / 24.0;
  p = p * z - 0.5;
  return 1.0 + z * p;
}

}  // namespace

double exp_d(double x) {
  if (x != x) return x;
  if (x > 709.79) return kInfinity;
  if (x < -745.14) return 0.0;
  const double n = (x * kLog2E + kRoundMagic) - kRoundMagic;
  const double r = (x - n * kLn2High) - n * kLn2Low;
  // Taylor series on |r| <= 0.347: the first omitted term is below 5e-18.
  double p = 1.0 / 6227020800.0;
  p = p * r + 1.0 / 479001600.0;
  p = p * r + 1.0 / 39916800.0;
  p = p * r + 1.0 / 3628800.0;
  p = p * r + 1.0 / 362880.0;
  p = p * r + 1.0 / 40320.0;
  p = p * r + 1.0 / 5040.0;
  p = p * r + 1.0 / 720.0;
  p = p * r + 1.0 / 120.0;
  p = p * r + 1.0 / 24.0;
  p = p * r + 1.0 / 6.0;
  p = p * r + 0.5;
  p = 1.0 + (r + r * r * p);
  // In two factors, so that n = 1024 and subnormal results come out right.
  const auto k = static_cast<std::int64_t>(n);
  return p * power_of_two(k / 2) * power_of_two(k - k / 2);
}

double log_d(double x) {
  if (x != x || x < 0) return std::numeric_limits<double>::quiet_NaN();
  if (x == 0) return -kInfinity;
  if (x == kInfinity) return x;
  std::int64_t n = 0;
  if (x < 0x1p-1022) {
    x *= 0x1p54;
    n = -54;
  }
  const auto bits = std::bit_cast<std::uint64_t>(x);
  n += static_cast<std::int64_t>(bits >> 52) - 1023;
  double m = std::bit_cast<double>((bits & 0x000FFFFFFFFFFFFFu) | 0x3FF0000000000000u);
  if (m > 1.4142135623730951) {
    m *= 0.5;
    ++n;
  }
  // log m = 2 atanh(s), s = (m - 1) / (m + 1), |s| < 0.1716: the first omitted term is below 1e-19.
  const double f = m - 1.0;
  const double s = f / (m + 1.0);
  const double z = s * s;
  double p = 1.0 / 23.0;
  for (int odd = 21; odd >= 3; odd -= 2) p = p * z + 1.0 / odd;
  // 2 s = f - s f keeps the leading term exact near 1.
  const double low = 2.0 * s * z * p - s * f;
  const double k = static_cast<double>(n);
  return k * kLn2High + (f + (low + k * kLn2Low));
}

void sincos_d(double x, double& sin_x, double& cos_x) {
  constexpr double kTwoOverPi = 0x1.45f306dc9c883p-1;
  constexpr double kHalfPiHigh = 0x1.921fb54442d18p+0;
  constexpr double kHalfPiLow = 0x1.1a62633145c07p-54;
  const double n = (x * kTwoOverPi + kRoundMagic) - kRoundMagic;
  // Fused, so that the product is exact: up to 1e9 the high part cancels without loss.
  double r = std::fma(-n, kHalfPiHigh, x);
  r = std::fma(-n, kHalfPiLow, r);
  const double s = sin_kernel(r);
  const double c = cos_kernel(r);
  const bool finite = x - x == 0;
  const std::uint64_t quadrant =
      finite ? static_cast<std::uint64_t>(static_cast<std::int64_t>(n)) : 0;
  sin_x = (quadrant & 1u) != 0 ? c : s;
  cos_x = (quadrant & 1u) != 0 ? s : c;
  if ((quadrant & 2u) != 0) sin_x = -sin_x;
  if (((quadrant + 1) & 2u) != 0) cos_x = -cos_x;
}

double pow_d(double base, double exponent) { return exp_d(exponent * log_d(base)); }

}  // namespace artery::tensor
