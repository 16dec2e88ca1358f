// The bits themselves, pinned: every compiler, optimisation level and instruction set gives these
// digests. A change that moves one on purpose changes the numerics class (Backend::numerics_class)
// and these lines together.

#include "base/hash.h"
#include "tensor/math.h"
#include "tensor/ops/test_support.h"

namespace artery::tensor {
namespace {

using namespace artery::tensor::testing;

template <typename T>
std::string digest(const std::vector<T>& values) {
  return hex(sha256(std::as_bytes(std::span(values)))).substr(0, 16);
}

std::vector<float> products(Backend& backend, ComputePool& pool) {
  Rng rng(51);
  std::vector<float> all;
  for (const DType type : weight_types()) {
    const std::int64_t k = traits(type).block_values == 1 ? 75 : 3 * traits(type).block_values;
    const auto raw = random_weights(type, 21, k, rng);
    auto w = WeightMatrix::pack(type, 21, k, raw, pool);
    EXPECT_TRUE(w.has_value());
    Rows out = backend.alloc(3, 21);
    backend.matmul(load_rows(backend, activations(rng, 3 * k), 3, k), w.value(), {}, out);
    const auto values = store_rows(backend, out);
    all.insert(all.end(), values.begin(), values.end());
  }
  return all;
}

std::vector<float> a_layer(Backend& b) {
  Rng rng(52);
  const std::int64_t rows = 90;
  const KvGeometry geometry = {1, 2, 24, KvType::kF16};
  RopeTable table = {RopeStyle::kHalves, 24, {}, {}};
  std::vector<Position> positions;
  for (int p = 0; p < rows; ++p) {
    positions.push_back(p);
    for (int i = 0; i < 12; ++i) {
      double s = 0;
      double c = 0;
      sincos_d(p * pow_d(10000.0, -i / 12.0), s, c);
      table.cos.push_back(c);
      table.sin.push_back(s);
    }
  }
  const std::vector<std::int32_t> offsets = {0, static_cast<std::int32_t>(rows)};
  const std::vector<PageId> pages = {5, 0, 3, 1, 4, 2};
  std::vector<std::byte> memory(static_cast<std::size_t>(6 * geometry.page_bytes()));
  const AttentionBatch batch = {positions, offsets, pages, 6};
  const std::vector<float> weight = activations(rng, 24);
  Rows q = load_rows(b, activations(rng, rows * 96), rows, 96);
  Rows k = load_rows(b, activations(rng, rows * 48), rows, 48);
  Rows v = load_rows(b, activations(rng, rows * 48), rows, 48);
  b.rms_norm_heads(q, 24, weight, 1e-6f);
  b.rope(q, 24, positions, table);
  b.rope(k, 24, positions, table);
  b.kv_write(k, v, {memory.data(), geometry}, 0, batch);
  Rows out = b.alloc(rows, 96);
  b.attention(q, {memory.data(), geometry}, 0, batch, {.scale = 0.2f}, out);
  b.gated(Gating::kSilu, q, out, q);
  b.add(q, out);
  return store_rows(b, q);
}

std::vector<float> gatings(Backend& b) {
  Rng rng(53);
  std::vector<float> all;
  for (const Gating gating : {Gating::kSilu, Gating::kGeluTanh, Gating::kClamped}) {
    Rows gate = load_rows(b, activations(rng, 2 * 999), 2, 999);
    b.gated(gating, gate, load_rows(b, activations(rng, 2 * 999), 2, 999), gate);
    b.scale(gate, 0.3f);
    const auto values = store_rows(b, gate);
    all.insert(all.end(), values.begin(), values.end());
  }
  return all;
}

std::vector<float> a_mixture(Backend& b, ComputePool& pool) {
  Rng rng(53);
  std::vector<WeightMatrix> gate, up, down;
  for (int e = 0; e < 9; ++e) {
    for (auto* to : {&gate, &up, &down}) {
      const DType type = to == &down ? DType::kF8E4M3 : DType::kMXFP4;
      auto w = WeightMatrix::pack(type, 128, 128, random_weights(type, 128, 128, rng), pool);
      EXPECT_TRUE(w.has_value());
      to->push_back(w.take());
    }
  }
  const std::vector<float> bias = activations(rng, 9 * 128);
  Rows x = load_rows(b, activations(rng, 40 * 128), 40, 128);
  const Routing routing = b.route(load_rows(b, activations(rng, 40 * 9), 40, 9), {.used = 3});
  Rows out = b.alloc(40, 128);
  b.experts(x, routing, {gate, up, down, bias, bias, bias, Gating::kClamped}, out);
  return store_rows(b, out);
}

TEST(GoldenBits, ScalarMath) {
  std::vector<double> values;
  for (int i = -500; i < 500; ++i) {
    double s = 0;
    double c = 0;
    sincos_d(i * 1234.567, s, c);
    const double e = exp_d(i * 0.7);
    values.insert(values.end(), {s, c, e, log_d(e), pow_d(500000.0, i / 500.0)});
  }
  EXPECT_EQ(digest(values), "4f6196593ad111cd");
}

TEST(GoldenBits, FastBackend) {
  ComputePool pool(2);
  for (const Isa isa : isas()) {
    auto backend = make_fast_backend(pool, isa);
    EXPECT_EQ(digest(products(*backend, pool)), "097f079278d93fde") << name(isa);
    EXPECT_EQ(digest(a_layer(*backend)), "7486f460d9b74087") << name(isa);
    EXPECT_EQ(digest(a_mixture(*backend, pool)), "639a0241d00fc407") << name(isa);
    EXPECT_EQ(digest(gatings(*backend)), "5040a05b540584ae") << name(isa);
  }
}

TEST(GoldenBits, ReferenceBackend) {
  ComputePool pool(2);
  auto backend = make_reference_backend(pool);
  EXPECT_EQ(digest(products(*backend, pool)), "d14b684f9204f850");
  EXPECT_EQ(digest(a_layer(*backend)), "474e75519da4de9a");
  EXPECT_EQ(digest(a_mixture(*backend, pool)), "086678b65a0448fe");
  EXPECT_EQ(digest(gatings(*backend)), "a96cdea22f2d15a9");
}

}  // namespace
}  // namespace artery::tensor
