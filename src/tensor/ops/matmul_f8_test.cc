// FP8 products against plain loops in the order of kernel_table.h, bit for bit.

#include "base/hash.h"
#include "tensor/ops/test_support.h"

namespace artery::tensor {
namespace {

using namespace artery::tensor::testing;

struct Case {
  std::int64_t rows, n, k;
  std::vector<float> x, bias;
  std::vector<std::byte> raw;
};

Case make_case(std::int64_t rows, std::int64_t n, std::int64_t k, Rng& rng) {
  Case c = {rows, n, k, activations(rng, rows * k), activations(rng, n), {}};
  c.raw = random_weights(DType::kF8E4M3, n, k, rng);
  return c;
}

float plain_sum(std::span<const std::byte> row, const float* x) {
  float y = 0;
  for (; !row.empty(); row = row.subspan(132), x += 128) {
    float chain[2] = {0, 0};
    for (std::size_t i = 0; i < 128; ++i) {
      const float w = quant::f8_e4m3_to_f32(static_cast<std::uint8_t>(row[i])) / 256;
      chain[i % 2] = std::fma(w, x[i], chain[i % 2]);
    }
    float scale;
    std::memcpy(&scale, row.data() + 128, sizeof scale);
    y = std::fma(scale, (chain[0] + chain[1]) * 256, y);
  }
  return y;
}

std::vector<float> plain_product(const Case& c) {
  std::vector<float> out;
  const auto bytes = static_cast<std::size_t>(row_bytes(DType::kF8E4M3, c.k));
  for (std::int64_t r = 0; r < c.rows; ++r) {
    for (std::int64_t n = 0; n < c.n; ++n) {
      const auto row = std::span(c.raw).subspan(static_cast<std::size_t>(n) * bytes, bytes);
      const float y = plain_sum(row, c.x.data() + r * c.k);
      out.push_back(y + c.bias[static_cast<std::size_t>(n)]);
    }
  }
  return out;
}

std::vector<float> fast_product(Backend& backend, const Case& c, const WeightMatrix& w) {
  backend.reset();
  Rows out = backend.alloc(c.rows, c.n);
  backend.matmul(load_rows(backend, c.x, c.rows, c.k), w, c.bias, out);
  return store_rows(backend, out);
}

TEST(MatmulF8, EqualsPlainLoopsInTheDocumentedOrder) {
  Rng rng(91);
  for (const std::int64_t rows : {1, 2, 3, 7, 8, 9, 30}) {
    for (const auto& [n, k] : {std::pair{1, 128}, {16, 384}, {37, 256}}) {
      const Case c = make_case(rows, n, k, rng);
      const std::vector<float> expected = plain_product(c);
      for (const int threads : {1, 3}) {
        ComputePool pool(threads);
        const auto w = WeightMatrix::pack(DType::kF8E4M3, n, k, c.raw, pool).take();
        for (const Isa isa : isas()) {
          const auto got = fast_product(*make_fast_backend(pool, isa), c, w);
          EXPECT_TRUE(same_bits(got, expected)) << name(isa) << " " << rows << "x" << n << "x" << k;
        }
      }
    }
  }
}

// Every code in every lane with an activation of one; then codes that are no numbers.
TEST(MatmulF8, EveryCodeCounts) {
  ComputePool pool(1);
  for (int code = 0; code < 256; ++code) {
    Case c = {1, 16, 128, std::vector<float>(128, 0.0f), std::vector<float>(16, 0.0f), {}};
    for (int row = 0; row < 16; ++row) {
      std::vector<std::byte> block(132, std::byte{0x38});  // 1.0
      block[static_cast<std::size_t>(row)] = static_cast<std::byte>(code);
      const float scale = 0.5f;
      std::memcpy(block.data() + 128, &scale, sizeof scale);
      c.raw.insert(c.raw.end(), block.begin(), block.end());
    }
    for (std::size_t i = 0; i < 16; ++i) c.x[i] = 1;
    const auto w = WeightMatrix::pack(DType::kF8E4M3, 16, 128, c.raw, pool).take();
    const float value = quant::f8_e4m3_to_f32(static_cast<std::uint8_t>(code));
    const std::vector<float> expected(16, 0.5f * (value + 15));
    for (const Isa isa : isas()) {
      EXPECT_TRUE(same_bits(fast_product(*make_fast_backend(pool, isa), c, w), expected))
          << name(isa) << " " << code;
    }
  }
}

TEST(MatmulF8, BitsArePinned) {
  Rng rng(92);
  ComputePool pool(2);
  const Case c = make_case(5, 21, 384, rng);
  const auto w = WeightMatrix::pack(DType::kF8E4M3, 21, 384, c.raw, pool).take();
  for (const Isa isa : isas()) {
    const auto values = fast_product(*make_fast_backend(pool, isa), c, w);
    const std::string digest = hex(sha256(std::as_bytes(std::span(values)))).substr(0, 16);
    EXPECT_EQ(digest, "79c9a8908c15e4e2") << name(isa);
  }
}

}  // namespace
}  // namespace artery::tensor
