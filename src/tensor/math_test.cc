#include "tensor/math.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <random>

namespace artery::tensor {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

double relative(double got, long double want) {
  return static_cast<double>(std::fabs((static_cast<long double>(got) - want) / want));
}

TEST(Math, ExpIsWithinTwoUnits) {
  double worst = 0;
  for (int i = -70800; i <= 70970; ++i) {
    const double x = i * 0.01 + 0.00123;
    worst = std::max(worst, relative(exp_d(x), std::exp(static_cast<long double>(x))));
  }
  EXPECT_LT(worst, 4.5e-16);
  EXPECT_EQ(exp_d(0), 1.0);
  EXPECT_EQ(exp_d(1e3), kInfinity);
  EXPECT_EQ(exp_d(kInfinity), kInfinity);
  EXPECT_EQ(exp_d(-1e3), 0.0);
  EXPECT_EQ(exp_d(-kInfinity), 0.0);
  EXPECT_TRUE(std::isnan(exp_d(std::nan(""))));
  EXPECT_NEAR(exp_d(-740) / std::exp(-740.0), 1.0, 1e-2);  // subnormal
}

TEST(Math, LogIsWithinTwoUnits) {
  std::mt19937_64 rng(1);
  double worst = 0;
  for (int i = 0; i < 200000; ++i) {
    const int exponent = i % 2 == 0 ? static_cast<int>(rng() % 2040) - 1020 : 0;
    const double x = std::ldexp(0.5 + 0x1p-53 * static_cast<double>(rng() >> 11), exponent);
    const long double want = std::log(static_cast<long double>(x));
    if (want != 0) worst = std::max(worst, relative(log_d(x), want));
  }
  EXPECT_LT(worst, 6e-16);
  EXPECT_EQ(log_d(1.0), 0.0);
  EXPECT_EQ(log_d(0.0), -kInfinity);
  EXPECT_EQ(log_d(kInfinity), kInfinity);
  EXPECT_TRUE(std::isnan(log_d(-1.0)));
  EXPECT_TRUE(std::isnan(log_d(std::nan(""))));
  EXPECT_LT(relative(log_d(5e-324), std::log(4.94065645841246544177e-324L)), 6e-16);
}

TEST(Math, SinCosHoldTheirErrorToABillion) {
  std::mt19937_64 rng(2);
  double worst = 0;
  for (int i = 0; i < 200000; ++i) {
    const double range = i % 3 == 0 ? 1e9 : i % 3 == 1 ? 1e5 : 4.0;
    const double x = (static_cast<double>(rng() >> 11) * 0x1p-53 * 2 - 1) * range;
    double s = 0;
    double c = 0;
    sincos_d(x, s, c);
    worst =
        std::max(worst, std::fabs(static_cast<double>(s - std::sin(static_cast<long double>(x)))));
    worst =
        std::max(worst, std::fabs(static_cast<double>(c - std::cos(static_cast<long double>(x)))));
  }
  EXPECT_LT(worst, 4e-16);
  double s = 0;
  double c = 0;
  sincos_d(0.0, s, c);
  EXPECT_EQ(s, 0.0);
  EXPECT_EQ(c, 1.0);
  sincos_d(kInfinity, s, c);
  EXPECT_TRUE(std::isnan(s) && std::isnan(c));
}

TEST(Math, PowOfRopeFrequencies) {
  for (const double base : {1e4, 1e5, 5e5, 1e6, 8e6}) {
    for (int i = 0; i < 64; ++i) {
      const double exponent = -2.0 * i / 128;
      EXPECT_LT(
          relative(pow_d(base, exponent), std::pow(static_cast<long double>(base), exponent)), 4e-15
      );
    }
  }
  EXPECT_EQ(pow_d(7.0, 0.0), 1.0);
}

}  // namespace
}  // namespace artery::tensor
