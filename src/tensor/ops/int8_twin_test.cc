// The int8 products against plain loops that read the file's bytes and follow the order written in
// kernel_table.h, bit for bit: every block type, instruction set, and count of rows from the direct
// kernels to several groups of a panel.

#include "tensor/ops/kernel_table.h"
#include "tensor/ops/test_support.h"
#include "tensor/quant/integers.h"

namespace artery::tensor {
namespace {

using namespace artery::tensor::testing;

// A row of weights as the sums see it: one scale (and minimum) for `span` weights.
struct PlainRow {
  std::vector<int> q;
  std::vector<float> scale;
  std::vector<float> min;
  int span = 32;
};

std::uint32_t number(const std::uint8_t* p, int bytes) {
  std::uint32_t x = 0;
  for (int i = 0; i < bytes; ++i) x |= static_cast<std::uint32_t>(p[i]) << (8 * i);
  return x;
}
float half(const std::uint8_t* p) {
  return quant::f16_to_f32(static_cast<std::uint16_t>(number(p, 2)));
}
int nibble(const std::uint8_t* q, int i) { return i < 16 ? q[i] & 15 : q[i - 16] >> 4; }

constexpr int kNonLinear[16] = {
    -127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113
};
constexpr int kE2M1[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

void add_block_of_32(DType type, const std::uint8_t* p, PlainRow& out) {
  const bool min = type == DType::kQ4_1 || type == DType::kQ5_1;
  const bool fifth = type == DType::kQ5_0 || type == DType::kQ5_1;
  if (type == DType::kMXFP4) {
    out.scale.push_back(std::ldexp(1.0f, static_cast<int>(*p++) - 128));
  } else {
    out.scale.push_back(half(p));
    p += 2;
  }
  if (min) {
    out.min.push_back(half(p));
    p += 2;
  }
  const std::uint32_t high = fifth ? number(p, 4) : 0;
  if (fifth) p += 4;
  for (int i = 0; i < 32; ++i) {
    const int low = nibble(p, i) + static_cast<int>((high >> i) & 1u) * 16;
    int q = low;
    if (type == DType::kQ4_0) q = low - 8;
    if (type == DType::kQ5_0) q = low - 16;
    if (type == DType::kIQ4_NL) q = kNonLinear[low];
    if (type == DType::kMXFP4) q = kE2M1[low];
    if (type == DType::kQ8_0) q = static_cast<std::int8_t>(p[i]);
    out.q.push_back(q);
  }
}

void add_q4_k(DType type, const std::uint8_t* p, PlainRow& out) {
  const float d = half(p);
  const float negative_dmin = 0.0f - half(p + 2);
  const std::uint8_t* s = p + 4;
  const std::uint8_t* q = p + (type == DType::kQ5_K ? 48 : 16);
  for (int part = 0; part < 8; ++part) {
    const int j = part % 4;
    const int scale = part < 4 ? s[j] & 63 : (s[8 + j] & 15) | s[j] >> 6 << 4;
    const int min = part < 4 ? s[4 + j] & 63 : s[8 + j] >> 4 | s[4 + j] >> 6 << 4;
    out.scale.push_back(d * static_cast<float>(scale));
    out.min.push_back(negative_dmin * static_cast<float>(min));
    for (int i = 0; i < 32; ++i) {
      const int low = q[part / 2 * 32 + i] >> (part % 2 * 4) & 15;
      const int fifth = type == DType::kQ5_K ? p[16 + i] >> part & 1 : 0;
      out.q.push_back(low + 16 * fifth);
    }
  }
}

void add_q6_k(const std::uint8_t* p, PlainRow& out) {
  out.span = 16;
  for (int i = 0; i < 256; ++i) {
    const int quarter = i % 128 / 32;
    const int low = p[i / 128 * 64 + quarter % 2 * 32 + i % 32] >> (quarter / 2 * 4) & 15;
    const int high = p[128 + i / 128 * 32 + i % 32] >> (2 * quarter) & 3;
    out.q.push_back((low | high << 4) - 32);
  }
  for (int j = 0; j < 16; ++j) {
    out.scale.push_back(half(p + 208) * static_cast<float>(static_cast<std::int8_t>(p[192 + j])));
  }
}

void add_iq4_xs(const std::uint8_t* p, PlainRow& out) {
  for (int part = 0; part < 8; ++part) {
    const int low = p[4 + part / 2] >> (part % 2 * 4) & 15;
    const int high = static_cast<int>(number(p + 2, 2) >> (2 * part) & 3u);
    out.scale.push_back(half(p) * static_cast<float>((low | high << 4) - 32));
    for (int i = 0; i < 32; ++i) out.q.push_back(kNonLinear[nibble(p + 8 + 16 * part, i)]);
  }
}

PlainRow from_integers(DType type, std::span<const std::byte> bytes, std::int64_t cols) {
  PlainRow out;
  out.span = 16;
  std::vector<std::int8_t> q(static_cast<std::size_t>(cols));
  out.scale.resize(q.size() / 16);
  out.min.resize(quant::has_minimums(type) ? out.scale.size() : 0);
  quant::decode_integers(type, bytes, q, out.scale, out.min);
  for (const std::int8_t x : q) out.q.push_back(x - (quant::has_minimums(type) ? 1 : 0));
  return out;
}

PlainRow plain_row(DType type, std::span<const std::byte> bytes, std::int64_t cols) {
  if (quant::has_integers(type)) return from_integers(type, bytes, cols);
  PlainRow out;
  const TypeTraits& t = traits(type);
  const auto* p = reinterpret_cast<const std::uint8_t*>(bytes.data());
  for (std::int64_t b = 0; b < cols / t.block_values; ++b, p += t.block_bytes) {
    if (t.block_values == 32) {
      add_block_of_32(type, p, out);
    } else if (type == DType::kQ6_K) {
      add_q6_k(p, out);
    } else if (type == DType::kIQ4_XS) {
      add_iq4_xs(p, out);
    } else {
      add_q4_k(type, p, out);
    }
  }
  return out;
}

float plain_sum(const PlainRow& w, std::span<const ops::ActBlock> act) {
  float y = 0;
  for (std::size_t b = 0; b < act.size(); ++b) {
    float t = 0;
    for (std::size_t j = 0; j < 2; ++j) {
      int dot = 0;
      int total = 0;
      for (std::size_t i = 0; i < 16; ++i) {
        dot += w.q[32 * b + 16 * j + i] * act[b].q[16 * j + i];
        total += act[b].q[16 * j + i];
      }
      const float s = act[b].scale[j];
      const auto product = static_cast<float>(dot);
      if (w.span == 16) {
        y = std::fma(w.scale[2 * b + j], product * s, y);
        if (!w.min.empty()) y = std::fma(w.min[2 * b + j], static_cast<float>(-total) * s, y);
      } else {
        t = j == 0 ? product * s : std::fma(product, s, t);
      }
    }
    if (w.span == 16) continue;
    y = std::fma(w.scale[b], t, y);
    if (!w.min.empty()) y = std::fma(w.min[b], act[b].sum, y);
  }
  return y;
}

struct Case {
  DType type;
  std::int64_t rows, n, k;
  std::vector<float> x, bias;
  std::vector<std::byte> raw;
};

Case make_case(DType type, std::int64_t rows, std::int64_t n, std::int64_t k, Rng& rng) {
  Case c = {type, rows, n, k, activations(rng, rows * k), activations(rng, n), {}};
  c.raw = random_weights(type, n, k, rng);
  return c;
}

std::vector<float> plain_product(const Case& c) {
  const auto blocks = static_cast<std::size_t>(c.k / 32);
  std::vector<ops::ActBlock> act(static_cast<std::size_t>(c.rows) * blocks);
  ops::scalar::kTable.quantize(c.x.data(), std::ssize(act), 1, act.data());
  std::vector<float> out(static_cast<std::size_t>(c.rows * c.n));
  const auto row_size = static_cast<std::size_t>(row_bytes(c.type, c.k));
  for (std::size_t n = 0; n < static_cast<std::size_t>(c.n); ++n) {
    const PlainRow w = plain_row(c.type, std::span(c.raw).subspan(n * row_size, row_size), c.k);
    for (std::size_t r = 0; r < static_cast<std::size_t>(c.rows); ++r) {
      const float y = plain_sum(w, std::span(act).subspan(r * blocks, blocks));
      out[r * static_cast<std::size_t>(c.n) + n] = y + c.bias[n];
    }
  }
  return out;
}

std::vector<float> fast_rows(
    Backend& backend, const Case& c, const WeightMatrix& w, std::int64_t rows
) {
  backend.reset();
  const std::vector<float> part(c.x.begin(), c.x.begin() + rows * c.k);
  Rows out = backend.alloc(rows, c.n);
  backend.matmul(load_rows(backend, part, rows, c.k), w, c.bias, out);
  return store_rows(backend, out);
}

std::vector<DType> block_types() {
  std::vector<DType> types;
  for (const DType type : weight_types()) {
    if (traits(type).block_values > 1) types.push_back(type);
  }
  return types;
}

class Int8Type : public ::testing::TestWithParam<DType> {};

INSTANTIATE_TEST_SUITE_P(
    AllBlocks,
    Int8Type,
    ::testing::ValuesIn(block_types()),
    [](const auto& type) { return std::string(name(type.param)); }
);

// Columns beyond one stretch of a panel and beyond a whole unit of tile formats; weight rows that
// end within the first, the second and the third tile.
TEST_P(Int8Type, EqualsPlainLoopsInTheDocumentedOrder) {
  Rng rng(61);
  const std::int64_t block = traits(GetParam()).block_values;
  const std::array<std::array<std::int64_t, 2>, 4> shapes = {
      {{1, block}, {21, 5 * block}, {40, 3 * block}, {33, (512 + block) / block * block}}
  };
  for (const auto& [n, k] : shapes) {
    const Case c = make_case(GetParam(), 70, n, k, rng);
    const std::vector<float> expected = plain_product(c);
    for (const int threads : {1, 3}) {
      ComputePool pool(threads);
      const WeightMatrix w = WeightMatrix::pack(c.type, n, k, c.raw, pool).take();
      for (const Isa isa : isas()) {
        auto backend = make_fast_backend(pool, isa);
        for (const std::int64_t rows : {1, 2, 3, 4, 5, 6, 7, 8, 9, 15, 70}) {
          if (threads > 1 && rows > 5) continue;
          const std::vector<float> wanted(expected.begin(), expected.begin() + rows * n);
          ASSERT_TRUE(same_bits(fast_rows(*backend, c, w, rows), wanted))
              << name(isa) << " " << rows << " rows, " << n << "x" << k << ", " << threads;
        }
      }
    }
  }
}

// The width of gpt-oss: 90 blocks, so that the last unit of a tile and the last stretch are short.
TEST(Int8Width, Of2880EqualsPlainLoops) {
  Rng rng(63);
  ComputePool pool(2);
  for (const DType type : {DType::kMXFP4, DType::kQ4_0, DType::kQ8_0}) {
    const Case c = make_case(type, 20, 37, 2880, rng);
    const std::vector<float> expected = plain_product(c);
    const WeightMatrix w = WeightMatrix::pack(type, c.n, c.k, c.raw, pool).take();
    for (const Isa isa : isas()) {
      auto backend = make_fast_backend(pool, isa);
      for (const std::int64_t rows : {1, 4, 5, 6, 7, 8, 9, 20}) {
        const std::vector<float> wanted(expected.begin(), expected.begin() + rows * c.n);
        ASSERT_TRUE(same_bits(fast_rows(*backend, c, w, rows), wanted))
            << name(type) << " " << name(isa) << " " << rows;
      }
    }
  }
}

// What the plain loops above read must be what the decoder reads.
TEST_P(Int8Type, IntegersAndScalesAreTheDecodedWeights) {
  Rng rng(62);
  const std::int64_t k = 6 * traits(GetParam()).block_values;
  const auto raw = random_weights(GetParam(), 1, k, rng);
  std::vector<float> decoded(static_cast<std::size_t>(k));
  quant::decode_row(GetParam(), raw, decoded);
  const PlainRow w = plain_row(GetParam(), raw, k);
  const bool subtracted = GetParam() == DType::kQ2_K;
  for (std::size_t i = 0; i < decoded.size(); ++i) {
    const std::size_t s = i / static_cast<std::size_t>(w.span);
    float value = w.scale[s] * static_cast<float>(w.q[i]);
    if (!w.min.empty()) value = subtracted ? value - w.min[s] : value + w.min[s];
    ASSERT_EQ(value, decoded[i]) << i;
  }
}

}  // namespace
}  // namespace artery::tensor
