#include <array>

#include "base/hash.h"
#include "tensor/math.h"
#include "tensor/ops/kernel_table.h"
#include "tensor/ops/test_support.h"

namespace artery::tensor {
namespace {

using namespace artery::tensor::testing;
using ops::KernelTable;

const KernelTable& table_of(Isa isa) {
#if defined(__x86_64__)
  if (isa == Isa::kAvx512) return ops::avx512::kTable;
  if (isa == Isa::kAvx2) return ops::avx2::kTable;
#endif
  return ops::scalar::kTable;
}

constexpr float kGuard = -12345.0f;
const std::vector<float> kHostile = {
    0.0f,
    -0.0f,
    1e-45f,
    -1e-39f,
    1.17549435e-38f,
    HUGE_VALF,
    -HUGE_VALF,
    std::nanf(""),
    3.4e38f,
    -3.4e38f
};

// A copy of `n` values at an odd address between guards.
struct Buffer {
  std::vector<float> memory;
  std::int64_t n;
  explicit Buffer(std::int64_t count)
      : memory(static_cast<std::size_t>(count) + 34, kGuard), n(count) {}
  explicit Buffer(const std::vector<float>& values) : Buffer(std::ssize(values)) {
    std::copy(values.begin(), values.end(), data());
  }
  float* data() { return memory.data() + 17; }
  std::vector<float> values() { return {data(), data() + n}; }
  bool guards_hold() const {
    for (std::size_t i = 0; i < memory.size(); ++i) {
      const bool inside = i >= 17 && i < 17 + static_cast<std::size_t>(n);
      if (!inside && memory[i] != kGuard) return false;
    }
    return true;
  }
};

std::vector<float> ordinary_and_hostile(Rng& rng, std::int64_t n, bool hostile) {
  std::vector<float> x = activations(rng, n);
  for (float& v : x) {
    if (hostile && pick(rng, 3) == 0)
      v = kHostile[static_cast<std::size_t>(pick(rng, std::ssize(kHostile)))];
  }
  return x;
}

// `kernel(table, a, b, out)` over sizes 0 to two vectors and beyond, at odd addresses.
template <typename Kernel>
void sweep(const Kernel& kernel) {
  Rng rng(31);
  for (std::int64_t n = 0; n <= 70; n = n < 34 ? n + 1 : n + 12) {
    for (const bool hostile : {false, true}) {
      Buffer a(ordinary_and_hostile(rng, n, hostile));
      Buffer b(ordinary_and_hostile(rng, n, hostile));
      Buffer expected(n);
      kernel(table_of(Isa::kScalar), a, b, expected);
      for (const Isa isa : isas()) {
        Buffer out(n);
        kernel(table_of(isa), a, b, out);
        EXPECT_TRUE(same_bits(out.values(), expected.values())) << name(isa) << " size " << n;
        EXPECT_TRUE(out.guards_hold()) << name(isa) << " size " << n;
      }
    }
  }
}

TEST(Elementwise, AllInstructionSetsGiveEqualBits) {
  SKIP_UNLESS_ALL_ISAS();
  sweep([](const KernelTable& k, Buffer& a, Buffer& b, Buffer& out) {
    (void)b;
    k.exp(a.data(), a.n, out.data());
  });
  sweep([](const KernelTable& k, Buffer& a, Buffer& b, Buffer& out) {
    k.swiglu(a.data(), b.data(), a.n, out.data());
  });
  sweep([](const KernelTable& k, Buffer& a, Buffer& b, Buffer& out) {
    k.geglu(a.data(), b.data(), a.n, out.data());
  });
  sweep([](const KernelTable& k, Buffer& a, Buffer& b, Buffer& out) {
    k.clamped_glu(a.data(), b.data(), a.n, out.data());
  });
  sweep([](const KernelTable& k, Buffer& a, Buffer& b, Buffer& out) {
    std::copy_n(a.data(), a.n, out.data());
    k.scale(out.data(), a.n > 0 ? b.data()[0] : 0.0f, a.n);
  });
  sweep([](const KernelTable& k, Buffer& a, Buffer& b, Buffer& out) {
    std::copy_n(a.data(), a.n, out.data());
    k.add(out.data(), b.data(), a.n);
  });
  sweep([](const KernelTable& k, Buffer& a, Buffer& b, Buffer& out) {
    if (a.n > 0) k.rms_norm(a.data(), b.data(), 1e-5f, a.n, out.data());
  });
  for (const bool halves : {false, true}) {
    sweep([halves](const KernelTable& k, Buffer& a, Buffer& b, Buffer& out) {
      std::copy_n(a.data(), a.n, out.data());
      const int dims = static_cast<int>(a.n / 2 * 2);
      k.rope({out.data(), b.data(), a.data(), dims, halves});
    });
  }
}

// The rule of kernel_table.h for one sub-block; x * inverse has 48 bits, exact in double.
void quantize_plainly(const float* x, std::int32_t offset, int s, ops::ActBlock& out) {
  float top = 0;
  bool finite = true;
  for (int i = 0; i < ops::kActBlock; ++i) {
    finite = finite && std::isfinite(x[i]);
    top = std::max(top, std::fabs(x[i]));
  }
  const bool usable = finite && top >= 1e-36f;
  std::int32_t sum = 0;
  for (int i = 0; i < ops::kActBlock; ++i) {
    const double exact = usable ? static_cast<double>(x[i]) * static_cast<double>(127.0f / top) : 0;
    const auto q = static_cast<std::int8_t>(std::nearbyint(exact));
    out.q[s * ops::kActBlock + i] = q;
    sum += q;
  }
  out.scale[s] = !finite ? std::nanf("") : usable ? top / 127.0f : 0.0f;
  out.bias[s] = -offset * sum;
  out.sum = std::fma(out.scale[s], static_cast<float>(sum), s == 0 ? 0.0f : out.sum);
}

::testing::AssertionResult same_blocks(const ops::ActBlock& a, const ops::ActBlock& b) {
  const auto floats = [](const ops::ActBlock& v) {
    return std::vector<float>{v.scale[0], v.scale[1], v.sum};
  };
  if (std::memcmp(a.q, b.q, sizeof(a.q)) != 0) return ::testing::AssertionFailure() << "q";
  if (std::memcmp(a.bias, b.bias, sizeof(a.bias)) != 0) {
    return ::testing::AssertionFailure() << "bias";
  }
  return same_bits(floats(a), floats(b));
}

TEST(Elementwise, QuantizeGivesTheBitsOfPlainLoops) {
  Rng rng(32);
  for (int round = 0; round < 60; ++round) {
    const std::int64_t blocks = 1 + pick(rng, 30);
    Buffer x(ordinary_and_hostile(rng, 32 * blocks, round % 3 == 1));
    if (round % 3 == 2) x.data()[pick(rng, 32 * blocks)] = round % 2 == 0 ? HUGE_VALF : NAN;
    std::vector<ops::ActBlock> expected(static_cast<std::size_t>(blocks));
    for (std::int64_t b = 0; b < blocks; ++b) {
      for (int s = 0; s < ops::kActSubs; ++s) {
        const float* at = x.data() + b * ops::kQuantBlock + s * ops::kActBlock;
        quantize_plainly(at, 128, s, expected[static_cast<std::size_t>(b)]);
      }
    }
    for (const Isa isa : isas()) {
      std::vector<ops::ActBlock> act(static_cast<std::size_t>(blocks));
      table_of(isa).quantize(x.data(), blocks, 128, act.data());
      for (std::size_t b = 0; b < act.size(); ++b) {
        ASSERT_TRUE(same_blocks(act[b], expected[b])) << name(isa) << " block " << b;
      }
    }
  }
}

// Distance to the true value in units of the last place of a normal float32.
double ulps(float got, long double want) {
  int exponent = 0;
  std::frexp(static_cast<double>(want), &exponent);
  const int unit = std::max(exponent - 24, -149);
  return static_cast<double>(
      std::fabs(static_cast<long double>(got) - want) / std::ldexp(1.0L, unit)
  );
}

TEST(Exp, IsWithinTwoUlps) {
  std::vector<float> x;
  for (int i = -104000; i < 88720; i += 7) x.push_back(static_cast<float>(i) * 0.001f + 1e-5f);
  for (const Isa isa : isas()) {
    std::vector<float> y(x.size());
    table_of(isa).exp(x.data(), std::ssize(x), y.data());
    double worst = 0;
    float at = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double error = ulps(y[i], std::exp(static_cast<long double>(x[i])));
      if (error > worst) {
        worst = error;
        at = x[i];
      }
    }
    EXPECT_LT(worst, 2.0) << name(isa) << " at " << at;
  }
}

TEST(Exp, HasTheRightEnds) {
  const std::vector<float> x = {0.0f, -0.0f, HUGE_VALF, -HUGE_VALF, 89.5f, -105.0f, std::nanf("")};
  for (const Isa isa : isas()) {
    std::vector<float> y(x.size());
    table_of(isa).exp(x.data(), std::ssize(x), y.data());
    EXPECT_TRUE(same_bits(y, {1.0f, 1.0f, HUGE_VALF, 0.0f, HUGE_VALF, 0.0f, std::nanf("")}))
        << name(isa);
  }
}

TEST(Half, KernelsRoundAndWidenAsQuantHalf) {
  std::vector<float> values;
  for (std::uint32_t h = 0; h < 0x10000; h += 3) {
    const float exact = quant::f16_to_f32(static_cast<std::uint16_t>(h));
    const float next = quant::f16_to_f32(static_cast<std::uint16_t>(h + 1));
    values.insert(values.end(), {exact, exact * 0.5f + next * 0.5f, std::nextafter(exact, next)});
  }
  values.insert(values.end(), {65519.9f, 65520.0f, 1e-8f, 2.9e-8f, 2.98023224e-8f, 1e38f});
  values.resize(values.size() / 16 * 16);
  for (const Isa isa : isas()) {
    for (std::size_t i = 0; i < values.size(); i += 16) {
      std::array<std::uint16_t, 512> page = {};
      const ops::KvArgs kv = {reinterpret_cast<std::byte*>(page.data()), 0, 0, 512, 16};
      table_of(isa).kv_write_f16(kv, 0, 3, &values[i], &values[i]);
      std::vector<float> back(16);
      for (std::size_t d = 0; d < 16; ++d) {
        const std::uint16_t want = quant::f32_to_f16(values[i + d]);
        ASSERT_EQ(page[16 * d + 3], want) << name(isa) << " " << values[i + d];
        ASSERT_EQ(page[256 + 3 * 16 + d], want) << name(isa) << " " << values[i + d];
        // As a weight, times 1: widened exactly (0 + -0 is 0).
        const float one = 1.0f;
        std::vector<float> y(16);
        ops::MatmulArgs args = {};
        args.tiles = reinterpret_cast<const std::byte*>(page.data() + 256 + 48);
        args.tile_bytes = 64;
        args.tile_count = args.cols = args.x_rows = 1;
        args.n_end = args.out_stride = 16;
        args.x = &one;
        args.out = y.data();
        table_of(isa).matmul_f16(args);
        back = y;
      }
      for (std::size_t d = 0; d < 16; ++d) {
        const float want = quant::f16_to_f32(quant::f32_to_f16(values[i + d]));
        ASSERT_TRUE(back[d] == want || (std::isnan(back[d]) && std::isnan(want))) << name(isa);
      }
    }
  }
}

// Runs `op` on both backends and returns {fast, reference}.
template <typename Op>
std::array<std::vector<float>, 2> both(ComputePool& pool, Isa isa, const Op& op) {
  auto fast = make_fast_backend(pool, isa);
  auto reference = make_reference_backend(pool);
  return {op(*fast), op(*reference)};
}

TEST(Ops, NormsAreCloseToReference) {
  Rng rng(33);
  ComputePool pool(2);
  for (const std::int64_t cols : {2, 8, 64, 172, 576, 1537}) {
    const auto x = activations(rng, 5 * cols);
    const auto weight = activations(rng, cols);
    // x and weight reach 20 each and a row's largest element is at most sqrt(cols) times its mean.
    const double bound =
        0x1p-24 * (static_cast<double>(cols) / 16 + 8) * 20 * std::sqrt(static_cast<double>(cols));
    for (const Isa isa : isas()) {
      const auto [fast, reference] = both(pool, isa, [&](Backend& b) {
        Rows rows = load_rows(b, x, 5, cols);
        Rows out = b.alloc(5, cols);
        b.rms_norm(rows, weight, 1e-5f, out);
        b.rms_norm(rows, weight, 1e-5f, rows);  // in place
        EXPECT_TRUE(same_bits(store_rows(b, rows), store_rows(b, out)));
        return store_rows(b, out);
      });
      EXPECT_TRUE(within(fast, reference, std::vector<double>(fast.size(), bound))) << cols;
      if (cols % 2 != 0) continue;
      const auto [heads, heads_reference] = both(pool, isa, [&](Backend& b) {
        Rows rows = load_rows(b, x, 5, cols);
        b.rms_norm_heads(rows, 2, std::span(weight).first(2), 1e-6f);
        return store_rows(b, rows);
      });
      EXPECT_TRUE(within(heads, heads_reference, std::vector<double>(heads.size(), 1e-4))) << cols;
    }
  }
}

TEST(Ops, SwigluAndAddAreCloseToReference) {
  Rng rng(34);
  ComputePool pool(3);
  const std::int64_t cols = 9001;  // more than one thread's share
  const auto gate = activations(rng, 4 * cols);
  const auto up = activations(rng, 4 * cols);
  std::vector<double> bound;
  for (std::size_t i = 0; i < gate.size(); ++i) {
    bound.push_back(1e-6 * (std::fabs(gate[i] * up[i]) + 1e-30));
  }
  for (const Isa isa : isas()) {
    const auto [fast, reference] = both(pool, isa, [&](Backend& b) {
      Rows g = load_rows(b, gate, 4, cols);
      b.gated(Gating::kSilu, g, load_rows(b, up, 4, cols), g);
      return store_rows(b, g);
    });
    EXPECT_TRUE(within(fast, reference, bound)) << name(isa);
    const auto [sum, sum_reference] = both(pool, isa, [&](Backend& b) {
      Rows g = load_rows(b, gate, 4, cols);
      b.add(g, load_rows(b, up, 4, cols));
      return store_rows(b, g);
    });
    EXPECT_TRUE(same_bits(sum, sum_reference)) << "one rounding in both, " << name(isa);
  }
}

constexpr Gating kGatings[] = {Gating::kSilu, Gating::kGeluTanh, Gating::kClamped};

// Over a fine grid of gates: within a few float32 steps of the truth, relative to it, down to where
// exp(-z) overflows.
TEST(Ops, GatingsAreCloseToReference) {
  ComputePool pool(3);
  const std::int64_t cols = 5003;
  std::vector<float> gate;
  std::vector<float> up;
  Rng rng(37);
  for (std::int64_t i = 0; i < 4 * cols; ++i) {
    gate.push_back(static_cast<float>(i - 2 * cols) * (i % 3 == 0 ? 0.0005f : 0.0021f));
    up.push_back(uniform(rng, -9, 9));
  }
  for (const Gating gating : kGatings) {
    for (const Isa isa : isas()) {
      const auto [fast, reference] = both(pool, isa, [&](Backend& b) {
        Rows g = load_rows(b, gate, 4, cols);
        Rows out = b.alloc(4, cols);
        b.gated(gating, g, load_rows(b, up, 4, cols), out);
        b.gated(gating, g, load_rows(b, up, 4, cols), g);  // in place
        EXPECT_TRUE(same_bits(store_rows(b, g), store_rows(b, out)));
        return store_rows(b, out);
      });
      std::vector<double> bound;
      for (std::size_t i = 0; i < gate.size(); ++i) {
        // An error of the exponent, which is up to |z|, by half a step is one of the result.
        const double g = static_cast<double>(gate[i]);
        const double z = gating == Gating::kGeluTanh
                             ? 1.6 * std::fabs(g) + 0.0714 * g * g * std::fabs(g)
                             : 1.702 * std::fabs(g);
        const double relative = 0x1p-24 * (8 + 4 * std::min(z, 90.0));
        // u + 1 cancels near u = -1.
        const double near = gating == Gating::kClamped ? 0x1p-24 * std::fabs(g) : 0;
        bound.push_back(relative * std::fabs(static_cast<double>(reference[i])) + near + 1e-36);
      }
      EXPECT_TRUE(within(fast, reference, bound)) << name(isa) << " " << static_cast<int>(gating);
    }
  }
}

TEST(Ops, GatingsHaveTheRightEnds) {
  constexpr float kInf = HUGE_VALF;
  const float nan = std::nanf("");
  struct Case {
    Gating gating;
    float gate, up, out;
  };
  const Case cases[] = {
      {Gating::kSilu, 3e38f, 1.0f, 3e38f},
      {Gating::kSilu, kInf, 2.0f, kInf},
      {Gating::kSilu, -3e38f, 2.0f, -0.0f},
      {Gating::kSilu, nan, 2.0f, nan},
      {Gating::kGeluTanh, 0.0f, 5.0f, 0.0f},
      {Gating::kGeluTanh, -0.0f, 5.0f, -0.0f},
      {Gating::kGeluTanh, 3e38f, 1.0f, 3e38f},
      {Gating::kGeluTanh, kInf, 2.0f, kInf},
      {Gating::kGeluTanh, 1e19f, 0.5f, 5e18f},
      {Gating::kGeluTanh, -3e38f, 2.0f, -0.0f},
      {Gating::kGeluTanh, -1e19f, 2.0f, -0.0f},
      {Gating::kGeluTanh, nan, 0.0f, nan},
      {Gating::kGeluTanh, 1.0f, nan, nan},
      {Gating::kClamped, 1.0f, nan, nan},
      {Gating::kClamped, nan, 1.0f, nan},
      {Gating::kClamped, -3e38f, 1.0f, -0.0f},
      {Gating::kClamped, 5.0f, -1.0f, 0.0f},
  };
  ComputePool pool(1);
  std::vector<std::unique_ptr<Backend>> backends;
  backends.push_back(make_reference_backend(pool));
  for (const Isa isa : isas()) backends.push_back(make_fast_backend(pool, isa));
  for (auto& b : backends) {
    for (const Case& c : cases) {
      Rows g = load_rows(*b, {c.gate}, 1, 1);
      b->gated(c.gating, g, load_rows(*b, {c.up}, 1, 1), g);
      EXPECT_TRUE(same_bits(store_rows(*b, g), {c.out})) << c.gate << " " << c.up;
    }
    // The limits of gpt-oss.
    Rows g = load_rows(*b, {7.0f, 7.5f, kInf, 7.0f, 2.0f, 2.0f, 2.0f, 2.0f}, 1, 8);
    Rows u = load_rows(*b, {1.0f, 1.0f, 1.0f, kInf, 7.0f, 9.0f, -7.0f, -kInf}, 1, 8);
    b->gated(Gating::kClamped, g, u, g);
    const auto y = store_rows(*b, g);
    EXPECT_EQ(y[0], y[1]);
    EXPECT_EQ(y[0], y[2]);
    EXPECT_NEAR(y[3], 4 * y[0], 1e-4f);
    EXPECT_EQ(y[4], y[5]);
    EXPECT_EQ(y[6], y[7]);
    EXPECT_NEAR(y[0], 13.9999065f, 2e-5f);  // 14 / (1 + exp(-11.914))
    EXPECT_NEAR(y[4], 15.4854f, 1e-3f);
  }
}

TEST(Ops, ScaleIsOneRounding) {
  Rng rng(38);
  ComputePool pool(3);
  for (const std::int64_t cols : {1, 17, 640, 9001}) {
    const auto x = ordinary_and_hostile(rng, 4 * cols, true);
    const float factor = std::sqrt(640.0f);
    std::vector<float> expected;
    for (const float v : x) expected.push_back(v * factor);
    for (const Isa isa : isas()) {
      const auto [fast, reference] = both(pool, isa, [&](Backend& b) {
        Rows rows = load_rows(b, x, 4, cols);
        b.scale(rows, factor);
        return store_rows(b, rows);
      });
      EXPECT_TRUE(same_bits(fast, expected)) << name(isa) << " " << cols;
      EXPECT_TRUE(same_bits(reference, expected)) << cols;
    }
  }
}

RopeTable rope_table(RopeStyle style, int dims, int positions) {
  RopeTable table = {style, dims, {}, {}};
  for (int p = 0; p < positions; ++p) {
    for (int i = 0; i < dims / 2; ++i) {
      double s = 0;
      double c = 0;
      sincos_d(p * pow_d(10000.0, -2.0 * i / dims), s, c);
      table.cos.push_back(c);
      table.sin.push_back(s);
    }
  }
  return table;
}

TEST(Ops, RopeIsCloseToReferenceAndLeavesTheRestOfAHead) {
  Rng rng(35);
  ComputePool pool(2);
  for (const RopeStyle style : {RopeStyle::kAdjacentPairs, RopeStyle::kHalves}) {
    for (const auto& [head_dim, dims] : {std::pair{2, 2}, {8, 8}, {64, 64}, {80, 32}, {34, 34}}) {
      const RopeTable table = rope_table(style, dims, 50);
      const std::vector<Position> positions = {0, 49, 3, 17};
      const auto x = activations(rng, 4 * 3 * head_dim);
      for (const Isa isa : isas()) {
        const auto [fast, reference] = both(pool, isa, [&](Backend& b) {
          Rows rows = load_rows(b, x, 4, 3 * head_dim);
          b.rope(rows, head_dim, positions, table);
          return store_rows(b, rows);
        });
        EXPECT_TRUE(within(fast, reference, std::vector<double>(fast.size(), 4e-6)));
        for (std::size_t i = 0; i < x.size(); ++i) {
          const bool rotated = static_cast<int>(i) % head_dim < dims;
          const bool at_zero = i < static_cast<std::size_t>(3 * head_dim);
          if (!rotated || at_zero) {
            EXPECT_EQ(fast[i], x[i]) << i;
          }
        }
      }
    }
  }
}

TEST(Ops, EmbedGatherCopyMoveExactly) {
  Rng rng(36);
  ComputePool pool(2);
  for (const DType type : {DType::kQ4_1, DType::kQ8_0, DType::kF16, DType::kQ6_K}) {
    const auto raw = random_weights(type, 37, 256, rng);
    auto packed = WeightMatrix::pack(type, 37, 256, raw, pool);
    ASSERT_TRUE(packed.has_value());
    const WeightMatrix table = packed.take();
    const std::vector<TokenId> tokens = {36, 0, 5, 5};
    const auto [fast, reference] = both(pool, best_isa(), [&](Backend& b) {
      Rows rows = b.alloc(4, 256);
      b.embed(table, tokens, rows);
      Rows picked = b.alloc(3, 256);
      const std::vector<std::int32_t> from = {2, 0, 2};
      b.gather(rows, from, picked);
      Rows copied = b.alloc(3, 256);
      b.copy(picked, copied);
      return store_rows(b, copied);
    });
    std::vector<float> expected(3 * 256);
    const std::size_t row = raw.size() / 37;
    for (const auto& [at, token] : {std::pair{0, 5}, {1, 36}, {2, 5}}) {
      quant::decode_row(
          type,
          std::span(raw).subspan(static_cast<std::size_t>(token) * row, row),
          std::span(expected).subspan(static_cast<std::size_t>(at) * 256, 256)
      );
    }
    EXPECT_TRUE(same_bits(fast, expected));
    EXPECT_TRUE(same_bits(reference, expected));
  }
}

TEST(Ops, EmptyBatchesAreNoWork) {
  ComputePool pool(2);
  for (auto& b : {make_fast_backend(pool, best_isa()), make_reference_backend(pool)}) {
    Rows none = b->alloc(0, 16);
    const std::vector<float> weight(16, 1.0f);
    b->load({}, none);
    b->store(none, {});
    b->gather(none, {}, none);
    b->copy(none, none);
    b->rms_norm(none, weight, 1e-5f, none);
    b->rms_norm_heads(none, 16, weight, 1e-5f);
    b->rope(none, 16, {}, rope_table(RopeStyle::kHalves, 16, 1));
    for (const Gating gating : kGatings) b->gated(gating, none, none, none);
    b->scale(none, 2.0f);
    b->add(none, none);
  }
}

// Allocation within a forward never moves what was handed out, and a second forward of the same
// size gets one block.
TEST(Ops, ArenaKeepsRowsApart) {
  ComputePool pool(1);
  auto b = make_fast_backend(pool, best_isa());
  for (int forward = 0; forward < 3; ++forward) {
    std::vector<Rows> all;
    for (int i = 0; i < 40; ++i) {
      const std::vector<float> values(
          static_cast<std::size_t>(1000 + 3000 * i), static_cast<float>(i)
      );
      all.push_back(load_rows(*b, values, 1, std::ssize(values)));
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(all.back().data) % 64, 0u);
    }
    for (int i = 0; i < 40; ++i) {
      for (const float v : store_rows(*b, all[static_cast<std::size_t>(i)]))
        ASSERT_EQ(v, static_cast<float>(i));
    }
    b->reset();
  }
}

}  // namespace
}  // namespace artery::tensor
