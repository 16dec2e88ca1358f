// The chains of verbs against the verbs one by one.

#include "tensor/ops/test_support.h"

namespace artery::tensor {
namespace {

using namespace artery::tensor::testing;

constexpr std::int64_t kCols = 256;
constexpr std::int64_t kWide = 70;

struct Weights {
  std::vector<WeightMatrix> matrices;
  std::vector<std::vector<float>> biases;
};

// Types with three offsets, two float kinds, a type that is unpacked, and an empty matrix.
Weights make_weights(Rng& rng, ComputePool& pool) {
  Weights all;
  const DType types[] = {
      DType::kQ4_0,
      DType::kQ4_K,
      DType::kQ6_K,
      DType::kBF16,
      DType::kF32,
      DType::kQ2_K,
      DType::kQ4_1,
      DType::kQ8_0
  };
  for (const DType type : types) {
    auto w = WeightMatrix::pack(type, kWide, kCols, random_weights(type, kWide, kCols, rng), pool);
    EXPECT_TRUE(w.has_value());
    all.matrices.push_back(w.take());
    all.biases.push_back(type == DType::kQ6_K ? std::vector<float>{} : activations(rng, kWide));
  }
  auto none = WeightMatrix::pack(DType::kF32, 0, kCols, {}, pool);
  EXPECT_TRUE(none.has_value());
  all.matrices.push_back(none.take());
  all.biases.emplace_back();
  return all;
}

std::vector<Product> products(Backend& backend, const Weights& weights, std::int64_t rows) {
  std::vector<Product> all;
  for (std::size_t i = 0; i < weights.matrices.size(); ++i) {
    const WeightMatrix& w = weights.matrices[i];
    all.push_back({&w, weights.biases[i], backend.alloc(rows, w.rows())});
  }
  return all;
}

std::vector<float> outputs(Backend& backend, const std::vector<Product>& products) {
  std::vector<float> all;
  for (const Product& p : products) {
    const auto values = store_rows(backend, p.out);
    all.insert(all.end(), values.begin(), values.end());
  }
  return all;
}

struct Inputs {
  std::int64_t rows;
  std::vector<float> x, addend, norm;
  Gating gating = Gating::kSilu;
};

// Norm with and without an addend, then an activation; `chained` by the verbs that do it in one.
std::vector<float> run(Backend& backend, const Weights& weights, const Inputs& in, bool chained) {
  backend.reset();
  Rows x = load_rows(backend, in.x, in.rows, kCols);
  Rows addend = load_rows(backend, in.addend, in.rows, kCols);
  Rows normed = backend.alloc(in.rows, kCols);
  const auto first = products(backend, weights, in.rows);
  const auto second = products(backend, weights, in.rows);
  const auto third = products(backend, weights, in.rows);
  if (chained) {
    backend.norm_matmuls(x, {}, in.norm, 1e-5f, normed, first);
    backend.norm_matmuls(x, addend, in.norm, 1e-5f, addend, second);
    backend.gated_matmuls(in.gating, x, normed, third);
  } else {
    backend.rms_norm(x, in.norm, 1e-5f, normed);
    for (const Product& p : first) backend.matmul(normed, *p.weight, p.bias, p.out);
    backend.add(x, addend);
    backend.rms_norm(x, in.norm, 1e-5f, addend);
    for (const Product& p : second) backend.matmul(addend, *p.weight, p.bias, p.out);
    backend.gated(in.gating, x, normed, x);
    for (const Product& p : third) backend.matmul(x, *p.weight, p.bias, p.out);
  }
  std::vector<float> all = outputs(backend, first);
  for (const auto& more :
       {outputs(backend, second), outputs(backend, third), store_rows(backend, x)}) {
    all.insert(all.end(), more.begin(), more.end());
  }
  return all;
}

TEST(Chains, GiveTheBitsOfTheirVerbs) {
  Rng rng(71);
  ComputePool one(1);
  const Weights weights = make_weights(rng, one);
  for (const std::int64_t rows : {0, 1, 3, 70}) {
    const Inputs in = {
        rows,
        activations(rng, rows * kCols),
        activations(rng, rows * kCols),
        activations(rng, kCols),
        rows == 1   ? Gating::kGeluTanh
        : rows == 3 ? Gating::kClamped
                    : Gating::kSilu
    };
    std::vector<std::vector<float>> seen;
    for (const Isa isa : isas()) {
      for (const int threads : {1, 3}) {
        ComputePool pool(threads);
        auto backend = make_fast_backend(pool, isa);
        const auto plain = run(*backend, weights, in, false);
        EXPECT_TRUE(same_bits(run(*backend, weights, in, true), plain)) << name(isa) << " " << rows;
        seen.push_back(plain);
      }
    }
    for (const auto& other : seen) EXPECT_TRUE(same_bits(other, seen[0]));
    auto reference = make_reference_backend(one);
    EXPECT_TRUE(same_bits(run(*reference, weights, in, true), run(*reference, weights, in, false)));
  }
}

}  // namespace
}  // namespace artery::tensor
