#pragma once
// What the tests of this room share: seeded values, valid random weights of every type, backends of
// every instruction set of this machine, and comparison by bits. Test code only; one thread.

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "tensor/backend.h"
#include "tensor/quant/decode.h"
#include "tensor/quant/half.h"

namespace artery::tensor::testing {

using Rng = std::mt19937_64;

inline float uniform(Rng& rng, float low, float high) {
  // Not std::uniform_real_distribution: its values differ between libraries.
  return low + (high - low) * (static_cast<float>(rng() >> 40) * 0x1p-24f);
}
inline std::int64_t pick(Rng& rng, std::int64_t below) {
  return static_cast<std::int64_t>(rng() % static_cast<std::uint64_t>(below));
}

// Bell-shaped with a few values ten times as large, as activations are.
inline std::vector<float> activations(Rng& rng, std::int64_t count) {
  std::vector<float> x(static_cast<std::size_t>(count));
  for (float& v : x) {
    v = 0;
    for (int i = 0; i < 4; ++i) v += uniform(rng, -1, 1);
    if (pick(rng, 97) == 0) v *= 10;
  }
  return x;
}

inline std::vector<DType> weight_types() {
  std::vector<DType> types;
  for (std::uint32_t id = 0; id < 64; ++id) {
    const TypeTraits* type = find_type(id);
    if (type != nullptr && type->is_weight) types.push_back(type->type);
  }
  return types;
}

// And those that only we have.
inline std::vector<DType> all_weight_types() {
  std::vector<DType> types = weight_types();
  types.push_back(DType::kF8E4M3);
  return types;
}

// One block of random bytes that decodes to finite values of ordinary size.
inline std::vector<std::byte> random_block(DType type, Rng& rng) {
  const TypeTraits& t = traits(type);
  std::vector<std::byte> bytes(static_cast<std::size_t>(t.block_bytes));
  std::vector<float> values(static_cast<std::size_t>(t.block_values));
  for (;;) {
    for (std::byte& b : bytes) b = static_cast<std::byte>(rng() & 0xFF);
    if (type == DType::kF8E4M3) {
      const float scale = uniform(rng, 0.001f, 0.004f);  // four random bytes are hardly ever of use
      std::memcpy(bytes.data() + 128, &scale, sizeof scale);
    }
    quant::decode_row(type, bytes, values);
    float top = 0;
    for (const float v : values) top = std::isfinite(v) ? std::max(top, std::fabs(v)) : 1e9f;
    if (top > 0.05f && top < 2.0f) return bytes;
  }
}

inline std::vector<std::byte> random_weights(
    DType type, std::int64_t rows, std::int64_t cols, Rng& rng
) {
  const TypeTraits& t = traits(type);
  std::vector<std::vector<std::byte>> pool;
  for (int i = 0; i < 64; ++i) pool.push_back(random_block(type, rng));
  std::vector<std::byte> raw;
  for (std::int64_t b = 0; b < rows * cols / t.block_values; ++b) {
    const auto& block = pool[static_cast<std::size_t>(pick(rng, std::ssize(pool)))];
    raw.insert(raw.end(), block.begin(), block.end());
  }
  return raw;
}

inline std::vector<Isa> isas() {
  std::vector<Isa> all;
  for (const Isa isa : {Isa::kScalar, Isa::kAvx2, Isa::kAvx512}) {
    if (supported(isa)) all.push_back(isa);
  }
  return all;
}

// In the tests that compare instruction sets: a machine without one of them must not pass silently.
#define SKIP_UNLESS_ALL_ISAS() \
  if (isas().size() < 3)       \
  GTEST_SKIP() << "this machine lacks " << (isas().size() < 2 ? "AVX2" : "AVX-512")

inline Rows load_rows(
    Backend& backend, const std::vector<float>& values, std::int64_t rows, std::int64_t cols
) {
  Rows x = backend.alloc(rows, cols);
  backend.load(values, x);
  return x;
}
inline std::vector<float> store_rows(Backend& backend, Rows x) {
  std::vector<float> values(static_cast<std::size_t>(x.rows * x.cols));
  backend.store(x, values);
  return values;
}

// Equal bits, except that one NaN is like another: processors differ in which payload survives.
inline ::testing::AssertionResult same_bits(
    const std::vector<float>& a, const std::vector<float>& b
) {
  if (a.size() != b.size()) return ::testing::AssertionFailure() << a.size() << " and " << b.size();
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (std::isnan(a[i]) && std::isnan(b[i])) continue;
    if (std::memcmp(&a[i], &b[i], sizeof(float)) != 0) {
      return ::testing::AssertionFailure() << "element " << i << " of " << a.size() << ": "
                                           << std::hexfloat << a[i] << " and " << b[i];
    }
  }
  return ::testing::AssertionSuccess();
}

// |a - b| <= bound element by element; names the element that is worst against its bound.
inline ::testing::AssertionResult within(
    const std::vector<float>& a, const std::vector<float>& b, const std::vector<double>& bound
) {
  if (a.size() != b.size() || a.size() != bound.size()) {
    return ::testing::AssertionFailure() << a.size() << ", " << b.size() << ", " << bound.size();
  }
  double worst = 0;
  std::size_t at = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double error = std::fabs(static_cast<double>(a[i]) - static_cast<double>(b[i]));
    const double ratio = std::isfinite(error) ? error / bound[i] : HUGE_VAL;
    if (ratio > worst) {
      worst = ratio;
      at = i;
    }
  }
  if (worst <= 1) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << "worst coordinate " << at << " of " << a.size() << ": "
                                       << a[at] << " and " << b[at] << ", bound " << bound[at];
}

}  // namespace artery::tensor::testing
