#include "engine/scan/logit_scan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "engine/philox.h"
#include "tensor/isa.h"
#include "testing/seq_random.h"

namespace artery::engine::scan {
namespace {

using testing::SeqRandom;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kLargest = std::numeric_limits<float>::max();

std::vector<const Kernels*> all_kernels() {
  std::vector<const Kernels*> out = {&scalar::kKernels};
#if defined(__x86_64__)
  if (tensor::supported(tensor::Isa::kAvx2)) out.push_back(&avx2::kKernels);
  if (tensor::supported(tensor::Isa::kAvx512)) out.push_back(&avx512::kKernels);
#endif
  return out;
}

std::vector<float> random_row(SeqRandom& random, std::int64_t n) {
  std::vector<float> row(static_cast<std::size_t>(n));
  for (float& x : row) {
    x = static_cast<float>((random.unit() - 0.5) * 60);
    if (random.chance(0.2)) x = std::floor(x);
    if (random.chance(0.02)) x = random.chance(0.5) ? kNan : -kInf;
  }
  return row;
}

TEST(LogitScan, BlockMaximaAreThoseOfPlainLoops) {
  SeqRandom random(1);
  for (const std::int64_t n : {1, 15, 16, 63, 64, 65, 127, 1000, 4096}) {
    const std::vector<float> row = random_row(random, n);
    for (const Kernels* kernels : all_kernels()) {
      std::vector<float> got(static_cast<std::size_t>((n + kBlock - 1) / kBlock));
      kernels->block_max(row.data(), n, got.data());
      for (std::size_t b = 0; b < got.size(); ++b) {
        float wanted = -kInf;
        for (std::size_t i = b * kBlock; i < std::min(row.size(), (b + 1) * kBlock); ++i) {
          if (row[i] > wanted) wanted = row[i];
        }
        EXPECT_EQ(got[b], wanted);
      }
    }
  }
}

TEST(LogitScan, CountsAbove) {
  SeqRandom random(2);
  for (const std::int64_t n : {0, 1, 16, 17, 100, 5000}) {
    const std::vector<float> row = random_row(random, n);
    for (const float value : {-kInf, -3.0f, 0.0f, 7.0f, kLargest}) {
      const auto wanted = std::count_if(row.begin(), row.end(), [&](float x) { return x > value; });
      for (const Kernels* kernels : all_kernels()) {
        EXPECT_EQ(kernels->count_above(row.data(), n, value), wanted);
      }
    }
  }
}

TEST(LogitScan, WeightsAreExponentials) {
  EXPECT_EQ(weight(3, 3, 1.25f), 1.0f);
  EXPECT_EQ(weight(kInf, kLargest, 1), 1.0f);
  for (const float nothing : {kNan, -kInf, -200.0f}) EXPECT_EQ(weight(nothing, 0, 1), 0.0f);
  for (const float scale : {1.0f, 0.5f, 1.25f, 20.0f}) {
    for (float x = 0; x > -85 / scale; x -= 0.037f) {
      const double wanted = std::exp(static_cast<double>(x * scale));
      EXPECT_NEAR(weight(x, 0, scale) / wanted, 1.0, 1e-6) << x << " " << scale;
    }
  }
}

TEST(LogitScan, SumsHaveTheSameBitsEverywhere) {
  SeqRandom random(3);
  for (const std::int64_t n : {1, 16, 31, 1000, 49152}) {
    const std::vector<float> row = random_row(random, n);
    double wanted = 0;
    for (const float x : row) wanted += weight(x, 30, 0.7f);
    const double first = scalar::kKernels.sum_weights(row.data(), n, 30, 0.7f);
    EXPECT_NEAR(first, wanted, 1e-12 * wanted);
    for (const Kernels* kernels : all_kernels()) {
      const double got = kernels->sum_weights(row.data(), n, 30, 0.7f);
      EXPECT_EQ(std::bit_cast<std::uint64_t>(got), std::bit_cast<std::uint64_t>(first));
    }
  }
}

TEST(LogitScan, NoiseIsThatOfPhilox) {
  SeqRandom random(4);
  for (int round = 0; round < 200; ++round) {
    const NoiseKey key{
        random.next(),
        static_cast<std::uint32_t>(random.between(0, 1 << 20)),
        static_cast<std::uint32_t>(random.between(0, 5))
    };
    const auto token = static_cast<TokenId>(2 * random.between(0, 100'000));
    auto floor = static_cast<std::uint32_t>(random.next());
    if (round % 10 == 0) floor = round % 20 == 0 ? 0 : ~0u;
    std::uint64_t wanted = 0;
    for (int i = 0; i < kBlock; ++i) {
      const TokenId t = token + i;
      const PhiloxBlock block =
          noise_block(key.seed, key.choice, static_cast<Position>(key.position), t >> 1);
      if (noise_bits(block, t) >> 32 >= floor) wanted |= std::uint64_t{1} << i;
    }
    for (const Kernels* kernels : all_kernels()) {
      EXPECT_EQ(kernels->noise_above(key, token, floor), wanted);
    }
  }
}

}  // namespace
}  // namespace artery::engine::scan
