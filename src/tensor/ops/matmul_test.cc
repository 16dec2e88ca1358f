#include <array>

#include "tensor/ops/kernel_table.h"
#include "tensor/ops/test_support.h"

namespace artery::tensor {
namespace {

using namespace artery::tensor::testing;

struct Problem {
  DType type;
  std::int64_t rows;
  std::int64_t n;
  std::int64_t k;
  std::vector<float> x;
  std::vector<std::byte> raw;
  std::vector<float> bias;
};

Problem make_problem(DType type, std::int64_t rows, std::int64_t n, std::int64_t k, Rng& rng) {
  Problem p = {type, rows, n, k, activations(rng, rows * k), random_weights(type, n, k, rng), {}};
  p.bias = activations(rng, n);
  return p;
}

WeightMatrix packed(const Problem& p, ComputePool& pool) {
  auto w = WeightMatrix::pack(p.type, p.n, p.k, p.raw, pool);
  EXPECT_TRUE(w.has_value());
  return w.take();
}

// Rows [begin, end) of the product.
std::vector<float> product(
    Backend& backend, const Problem& p, const WeightMatrix& w, std::int64_t begin, std::int64_t end
) {
  const std::vector<float> part(p.x.begin() + begin * p.k, p.x.begin() + end * p.k);
  Rows x = load_rows(backend, part, end - begin, p.k);
  Rows out = backend.alloc(end - begin, p.n);
  backend.matmul(x, w, p.bias, out);
  auto values = store_rows(backend, out);
  backend.reset();
  return values;
}

// Whether the fast path rounds activations to int8.
bool is_int8(DType type) { return traits(type).block_values > 1 && type != DType::kF8E4M3; }

// float32 sums: one rounding a step of partial sums bounded by sum |w x|. int8 activations: each is
// off by at most half a step, evenly spread, so a sum has variance sum w^2 step^2 / 12; eight
// standard deviations. Weights of a block have a common part that cancels in Q4_1 (d q + m), hence
// the block maximum in the first.
std::vector<double> bounds(const Problem& p) {
  std::vector<double> bound;
  std::vector<float> w(static_cast<std::size_t>(p.n * p.k));
  quant::decode_row(p.type, p.raw, w);
  for (std::int64_t r = 0; r < p.rows; ++r) {
    for (std::int64_t n = 0; n < p.n; ++n) {
      double magnitude = 0;
      double variance = 0;
      for (std::int64_t k = 0; k < p.k; ++k) {
        const double x = p.x[static_cast<std::size_t>(r * p.k + k)];
        const double wk = w[static_cast<std::size_t>(n * p.k + k)];
        magnitude += std::fabs(x) * (is_int8(p.type) ? 4.0 : std::fabs(wk));
        double step = 0;
        for (std::int64_t j = k / ops::kActBlock * ops::kActBlock;
             j < std::min(p.k, (k / ops::kActBlock + 1) * ops::kActBlock);
             ++j) {
          step = std::max(
              step, std::fabs(static_cast<double>(p.x[static_cast<std::size_t>(r * p.k + j)]))
          );
        }
        variance += wk * wk * step * step / (127.0 * 127.0) / 12;
      }
      const double steps = static_cast<double>(p.k) / 4 + 8;
      // Activations of BF16 products are rounded to 8 bits, and all of a row is one sum.
      const double unit = p.type == DType::kBF16 ? 0x1p-9 / steps + 4 * 0x1p-24 : 0x1p-24;
      const double rounding =
          unit * steps * (magnitude + std::fabs(p.bias[static_cast<std::size_t>(n)]));
      bound.push_back(rounding + (is_int8(p.type) ? 8 * std::sqrt(variance) : 0) + 1e-30);
    }
  }
  return bound;
}

class MatmulType : public ::testing::TestWithParam<DType> {};

INSTANTIATE_TEST_SUITE_P(
    AllWeights,
    MatmulType,
    ::testing::ValuesIn(all_weight_types()),
    [](const auto& type) { return std::string(name(type.param)); }
);

// Shapes with a part-filled last tile, an odd number of blocks and, for floats, an odd row length.
std::vector<std::array<std::int64_t, 3>> shapes(DType type) {
  const std::int64_t block = traits(type).block_values;
  if (block == 1) return {{1, 1, 1}, {3, 17, 7}, {5, 40, 172}, {9, 16, 8}, {7, 33, 64}};
  return {{1, 1, block}, {3, 17, block}, {7, 40, 3 * block}, {9, 16, 2 * block}};
}

TEST_P(MatmulType, IsCloseToReference) {
  Rng rng(11);
  ComputePool pool(2);
  auto reference = make_reference_backend(pool);
  for (const auto& [rows, n, k] : shapes(GetParam())) {
    const Problem p = make_problem(GetParam(), rows, n, k, rng);
    const WeightMatrix w = packed(p, pool);
    const std::vector<float> expected = product(*reference, p, w, 0, rows);
    for (const Isa isa : isas()) {
      auto fast = make_fast_backend(pool, isa);
      EXPECT_TRUE(within(product(*fast, p, w, 0, rows), expected, bounds(p)))
          << name(isa) << " " << rows << "x" << n << "x" << k;
    }
  }
}

TEST_P(MatmulType, AllInstructionSetsGiveEqualBits) {
  SKIP_UNLESS_ALL_ISAS();
  Rng rng(12);
  ComputePool pool(1);
  for (const auto& [rows, n, k] : shapes(GetParam())) {
    const Problem p = make_problem(GetParam(), rows, n, k, rng);
    const WeightMatrix w = packed(p, pool);
    const auto scalar = product(*make_fast_backend(pool, Isa::kScalar), p, w, 0, rows);
    for (const Isa isa : {Isa::kAvx2, Isa::kAvx512}) {
      EXPECT_TRUE(same_bits(product(*make_fast_backend(pool, isa), p, w, 0, rows), scalar))
          << name(isa) << " " << rows << "x" << n << "x" << k;
    }
  }
}

// Rows one by one on one thread, against batches of 7 and 32 and random splits on 1 to 3 threads.
TEST_P(MatmulType, RowsDoNotDependOnBatchOrThreads) {
  Rng rng(13);
  const std::int64_t block = traits(GetParam()).block_values;
  const std::int64_t k = block == 1 ? 75 : std::max<std::int64_t>(96, block) / block * block;
  ComputePool one(1);
  const Problem p = make_problem(GetParam(), 39, 600, k, rng);
  const WeightMatrix w = packed(p, one);
  for (const Isa isa : isas()) {
    if (isa == Isa::kScalar && isas().size() > 1) continue;  // equal to the others, and slow
    std::vector<float> alone;
    auto single = make_fast_backend(one, isa);
    for (std::int64_t r = 0; r < p.rows; ++r) {
      const auto row = product(*single, p, w, r, r + 1);
      alone.insert(alone.end(), row.begin(), row.end());
    }
    for (int threads = 1; threads <= 3; ++threads) {
      ComputePool pool(threads);
      auto backend = make_fast_backend(pool, isa);
      std::vector<float> batches = product(*backend, p, w, 0, 7);
      const auto rest = product(*backend, p, w, 7, 39);
      batches.insert(batches.end(), rest.begin(), rest.end());
      EXPECT_TRUE(same_bits(batches, alone)) << name(isa) << ", 7 + 32, threads " << threads;
      std::vector<float> split;
      for (std::int64_t r = 0; r < p.rows;) {
        const std::int64_t end = std::min(p.rows, r + 1 + pick(rng, 13));
        const auto part = product(*backend, p, w, r, end);
        split.insert(split.end(), part.begin(), part.end());
        r = end;
      }
      EXPECT_TRUE(same_bits(split, alone)) << name(isa) << ", random, threads " << threads;
    }
  }
}

TEST(Matmul, ReferenceRowsDoNotDependOnBatchOrThreads) {
  Rng rng(14);
  ComputePool one(1);
  ComputePool three(3);
  const Problem p = make_problem(DType::kQ4_1, 9, 100, 96, rng);
  const WeightMatrix w = packed(p, one);
  auto single = make_reference_backend(one);
  std::vector<float> alone;
  for (std::int64_t r = 0; r < p.rows; ++r) {
    const auto row = product(*single, p, w, r, r + 1);
    alone.insert(alone.end(), row.begin(), row.end());
  }
  EXPECT_TRUE(same_bits(product(*make_reference_backend(three), p, w, 0, 9), alone));
}

// The largest magnitudes of both operands: 16-bit intermediate sums must not saturate.
TEST(Matmul, ExtremeIntegersAreExact) {
  ComputePool pool(1);
  for (const DType type : {DType::kQ4_0, DType::kQ4_1, DType::kQ8_0}) {
    for (int pattern = 0; pattern < 4; ++pattern) {
      Problem p = {type, 2, 16, 32, {}, {}, std::vector<float>(16, 0.0f)};
      for (int row = 0; row < 16; ++row) {
        p.raw.push_back(std::byte{0x00});  // f16 1.0
        p.raw.push_back(std::byte{0x3C});
        if (type == DType::kQ4_1) p.raw.insert(p.raw.end(), 2, std::byte{0});
        for (int i = 0; i < (type == DType::kQ8_0 ? 32 : 16); ++i) {
          const bool low =
              pattern == 0 || (pattern == 2 && i % 2 == 0) || (pattern == 3 && i % 4 < 2);
          const bool eight = type == DType::kQ8_0;
          p.raw.push_back(
              eight ? (low ? std::byte{0x80} : std::byte{0x7F})
                    : (low ? std::byte{0x00} : std::byte{0xFF})
          );
        }
      }
      for (int i = 0; i < 32; ++i) p.x.push_back(i % 2 == 0 ? 127.0f : -127.0f);
      for (int i = 0; i < 32; ++i) p.x.push_back(-127.0f);
      const WeightMatrix w = packed(p, pool);
      const auto exact = product(*make_reference_backend(pool), p, w, 0, 2);
      for (const Isa isa : isas()) {
        EXPECT_TRUE(same_bits(product(*make_fast_backend(pool, isa), p, w, 0, 2), exact))
            << name(type) << " pattern " << pattern << " " << name(isa);
      }
    }
  }
}

TEST(Matmul, HostileActivations) {
  const float inf = HUGE_VALF;
  const float nan = std::nanf("");
  ComputePool pool(1);
  Rng rng(15);
  for (const DType type :
       {DType::kF32,
        DType::kF16,
        DType::kBF16,
        DType::kF8E4M3,
        DType::kQ4_0,
        DType::kQ4_1,
        DType::kQ8_0,
        DType::kQ6_K}) {
    const std::int64_t k = traits(type).block_values > 64 ? 256 : 64;
    Problem p = make_problem(type, 8, 20, k, rng);
    const std::array<float, 8> hostile = {0, -0.0f, 1e-40f, -1e-42f, inf, -inf, nan, 3e38f};
    for (std::int64_t r = 0; r < 8; ++r) {
      for (std::int64_t j = 0; j < k; ++j) {
        if (r < 4 || j == 5)
          p.x[static_cast<std::size_t>(r * k + j)] = hostile[static_cast<std::size_t>(r)];
      }
    }
    const WeightMatrix w = packed(p, pool);
    const auto scalar = product(*make_fast_backend(pool, Isa::kScalar), p, w, 0, 8);
    for (const Isa isa : isas()) {
      EXPECT_TRUE(same_bits(product(*make_fast_backend(pool, isa), p, w, 0, 8), scalar))
          << name(type) << " " << name(isa);
    }
    // A row that holds no number gives none, and its neighbours are untouched by it.
    for (std::int64_t n = 0; n < 20; ++n) {
      EXPECT_TRUE(std::isnan(scalar[static_cast<std::size_t>(6 * 20 + n)]));
      EXPECT_TRUE(std::isfinite(scalar[static_cast<std::size_t>(3 * 20 + n)]));
    }
  }
}

TEST(Matmul, EmptyBatchIsNoWork) {
  ComputePool pool(2);
  Rng rng(16);
  const Problem p = make_problem(DType::kQ4_0, 0, 20, 64, rng);
  const WeightMatrix w = packed(p, pool);
  for (auto& backend : {make_fast_backend(pool, best_isa()), make_reference_backend(pool)}) {
    Rows x = backend->alloc(0, 64);
    Rows out = backend->alloc(0, 20);
    backend->matmul(x, w, {}, out);
  }
}

TEST(Quantize, IsNearestAndAccountsForItsSums) {
  Rng rng(17);
  const std::vector<float> x = activations(rng, 96);
  std::vector<ops::ActBlock> act(3);
  ops::scalar::kTable.quantize(x.data(), 3, 8, act.data());
  for (int b = 0; b < 3; ++b) {
    const ops::ActBlock& block = act[static_cast<std::size_t>(b)];
    double sum = 0;
    for (int s = 0; s < ops::kActSubs; ++s) {
      std::int32_t total = 0;
      for (int i = s * ops::kActBlock; i < (s + 1) * ops::kActBlock; ++i) {
        const double back = static_cast<double>(block.scale[s]) * block.q[i];
        EXPECT_LE(
            std::fabs(back - x[static_cast<std::size_t>(32 * b + i)]), block.scale[s] * 0.5001
        );
        total += block.q[i];
      }
      EXPECT_EQ(block.bias[s], -8 * total);
      sum += static_cast<double>(block.scale[s]) * total;
    }
    EXPECT_NEAR(block.sum, sum, 1e-5);
  }
}

}  // namespace
}  // namespace artery::tensor
