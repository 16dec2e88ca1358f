#include <array>
#include <bit>
#include <utility>

#include "tensor/ops/kernel_table.h"
#include "tensor/ops/test_support.h"

namespace artery::tensor {
namespace {

using namespace artery::tensor::testing;
using ops::Bf16Kernels;

std::vector<std::pair<std::string, Bf16Kernels>> kernels() {
  std::vector<std::pair<std::string, Bf16Kernels>> all = {{"scalar", ops::scalar::kTable.bf16}};
#if defined(__x86_64__)
  if (supported(Isa::kAvx2)) all.emplace_back("avx2", ops::avx2::kTable.bf16);
  if (supported(Isa::kAvx512)) all.emplace_back("avx512", ops::avx512::kTable.bf16);
  if (supported(Isa::kAvx512) && __builtin_cpu_supports("avx512bf16")) {
    all.emplace_back("avx512_bf16", ops::avx512_bf16::kTable);
  }
#endif
  return all;
}

float widened(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}
float flushed(float x) { return std::fabs(x) < 0x1p-126f ? std::copysign(0.0f, x) : x; }

// The rule of kernel_table.h, element by element.
float rounded(float x) {
  x = flushed(x);
  const auto bits = std::bit_cast<std::uint32_t>(x);
  if (std::isnan(x)) return x;
  const std::uint32_t low = bits & 0xFFFFu;
  std::uint32_t high = bits >> 16;
  if (low > 0x8000u || (low == 0x8000u && (high & 1u) != 0)) ++high;
  return widened(static_cast<std::uint16_t>(high));
}

// a * b has 16 bits, so the double sum below is exact wherever flushing depends on it; one rounding
// to 24 bits with an unbounded exponent decides what is subnormal.
float fused(float a, float b, float c) {
  a = flushed(a);
  b = flushed(b);
  c = flushed(c);
  const double exact = static_cast<double>(a) * static_cast<double>(b) + static_cast<double>(c);
  const float scaled = static_cast<float>(exact * 0x1p60);
  if (std::fabs(exact) < 0x1p-100)
    return std::fabs(scaled) < 0x1p-66f ? std::copysign(0.0f, scaled) : scaled * 0x1p-60f;
  return std::fma(a, b, c);
}

struct Problem {
  std::int64_t rows, n, k;
  std::vector<float> x;
  std::vector<std::uint16_t> w;
  std::vector<float> bias;
};

std::vector<float> plain(const Problem& p) {
  std::vector<float> out;
  for (std::int64_t r = 0; r < p.rows; ++r) {
    for (std::int64_t n = 0; n < p.n; ++n) {
      const auto at = [&](std::int64_t k) {
        if (k == p.k) return std::pair(0.0f, 0.0f);
        return std::pair(
            widened(p.w[static_cast<std::size_t>(n * p.k + k)]),
            rounded(p.x[static_cast<std::size_t>(r * p.k + k)])
        );
      };
      float y = 0;
      for (std::int64_t k = 0; k < p.k; k += 2) {
        const auto [w1, x1] = at(k + 1);
        const auto [w0, x0] = at(k);
        y = fused(w0, x0, fused(w1, x1, y));
      }
      if (!p.bias.empty()) y = flushed(y + flushed(p.bias[static_cast<std::size_t>(n)]));
      out.push_back(y);
    }
  }
  return out;
}

std::vector<float> by_kernel(const Bf16Kernels& bf16, const Problem& p) {
  ComputePool pool(1);
  auto w = WeightMatrix::pack(DType::kBF16, p.n, p.k, std::as_bytes(std::span(p.w)), pool);
  EXPECT_TRUE(w.has_value());
  std::vector<float> groups(static_cast<std::size_t>(bf16.group_floats(p.k, p.rows)));
  for (std::int64_t r = 0; r < p.rows; r += bf16.group_rows) {
    const auto count = static_cast<int>(std::min<std::int64_t>(bf16.group_rows, p.rows - r));
    bf16.pack(p.x.data() + r * p.k, p.k, p.k, count, groups.data() + bf16.group_floats(p.k, r));
  }
  std::vector<float> out(static_cast<std::size_t>(p.rows * p.n), -1.0f);
  ops::MatmulArgs args = {};
  args.tiles = w.value().tile(0);
  args.tile_bytes = w.value().tile_bytes();
  args.tile_count = w.value().tiles();
  args.n_end = p.n;
  args.cols = p.k;
  args.group_x = groups.data();
  args.x_rows = p.rows;
  args.bias = p.bias.empty() ? nullptr : p.bias.data();
  args.out = out.data();
  args.out_stride = p.n;
  bf16.matmul(args);
  return out;
}

// Random patterns: every exponent, subnormals, infinities and NaN (rarely, or they would hide all
// else), or exponents within `span` of `low` so that sums neither vanish nor overflow.
std::uint32_t pattern(Rng& rng, std::uint32_t low, std::uint32_t span) {
  const auto sign_and_fraction = static_cast<std::uint32_t>(rng()) & 0x807FFFFFu;
  const auto exponent = low + static_cast<std::uint32_t>(pick(rng, span));
  return sign_and_fraction | exponent << 23;
}

Problem problem(
    Rng& rng, std::array<std::int64_t, 3> shape, std::uint32_t low, std::uint32_t span
) {
  Problem p = {shape[0], shape[1], shape[2], {}, {}, {}};
  for (std::int64_t i = 0; i < p.rows * p.k; ++i) {
    p.x.push_back(std::bit_cast<float>(pattern(rng, low, span)));
  }
  for (std::int64_t i = 0; i < p.n * p.k; ++i) {
    p.w.push_back(static_cast<std::uint16_t>(pattern(rng, low, span) >> 16));
  }
  if (pick(rng, 2) == 0) {
    for (std::int64_t i = 0; i < p.n; ++i) {
      p.bias.push_back(std::bit_cast<float>(pattern(rng, low, span)));
    }
  }
  return p;
}

TEST(MatmulBf16, EveryKernelGivesTheBitsOfThePlainLoops) {
  Rng rng(61);
  // Ordinary; around the least normal product (2^-126 has exponent 1: 64 + 64 - 127); all.
  constexpr std::pair<std::uint32_t, std::uint32_t> kRanges[] = {
      {118, 12}, {58, 12}, {0, 60}, {150, 60}, {0, 255}
  };
  for (int round = 0; round < 30; ++round) {
    for (const auto& [low, span] : kRanges) {
      const auto wide = low == 0 || low == 150;
      const std::int64_t k = 1 + pick(rng, wide ? 12 : 150);
      const Problem p = problem(rng, {1 + pick(rng, 30), 1 + pick(rng, 70), k}, low, span);
      const auto expected = plain(p);
      for (const auto& [name, bf16] : kernels()) {
        ASSERT_TRUE(same_bits(by_kernel(bf16, p), expected))
            << name << " " << p.rows << "x" << p.n << "x" << p.k << ", exponents from " << low;
      }
    }
  }
}

TEST(MatmulBf16, SpecialValues) {
  constexpr std::array<std::uint32_t, 14> kSpecial = {
      0x00000000,
      0x80000000,
      0x00000001,
      0x007FFFFF,
      0x807F8000,
      0x00800000,
      0x3F800000,
      0x7F7FFFFF,
      0xFF7F0000,
      0x7F800000,
      0xFF800000,
      0x7FC00000,
      0x7F800001,
      0x3F808000
  };
  Rng rng(62);
  for (int round = 0; round < 40; ++round) {
    Problem p = problem(rng, {14, 17, 3}, 100, 60);
    for (float& x : p.x) {
      if (pick(rng, 3) == 0)
        x = std::bit_cast<float>(kSpecial[static_cast<std::size_t>(pick(rng, 14))]);
    }
    for (std::uint16_t& w : p.w) {
      if (pick(rng, 3) == 0)
        w = static_cast<std::uint16_t>(kSpecial[static_cast<std::size_t>(pick(rng, 14))] >> 16);
    }
    const auto expected = plain(p);
    for (const auto& [name, bf16] : kernels()) {
      ASSERT_TRUE(same_bits(by_kernel(bf16, p), expected)) << name;
    }
  }
}

// A product just below the least normal number rounds up to it with 24 bits of a subnormal, but
// stays below with 24 bits of its own: the second decides.
TEST(MatmulBf16, TinySumsAreFlushedByTheirUnboundedRounding) {
  Problem p = {1, 1, 4, {}, {}, {}};
  const float least = 0x1p-126f;
  // least - 2^-151 is flushed or not by its tie; least - 2^-151 - 2^-160 lies below.
  for (const float small : {0x1p-91f, 0x1.02p-91f, 0x1p-90f, 0x1p-92f, 0x1.fep-92f}) {
    p.w = {0x3F80, 0, static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(0x1p-60f) >> 16), 0};
    p.x = {least, 0, -small, 0};
    const auto expected = plain(p);
    for (const auto& [name, bf16] : kernels()) {
      EXPECT_TRUE(same_bits(by_kernel(bf16, p), expected)) << name << " " << small;
    }
  }
}

TEST(MatmulBf16, LeavesTheFloatingPointModeAlone) {
  Rng rng(63);
  const Problem p = problem(rng, {2, 16, 8}, 118, 12);
  for (const auto& [name, bf16] : kernels()) {
    by_kernel(bf16, p);
    volatile float tiny = 0x1p-126f;
    volatile float half = 0.5f;
    EXPECT_EQ(tiny * half, 0x1p-127f) << name;
  }
}

}  // namespace
}  // namespace artery::tensor
