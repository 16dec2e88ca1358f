#pragma once
// Passes over one row of logits [n], for the sampler: compiled once per ISA from logit_scan.inc.
// All ISAs give the same bits (16 canonical lanes, no fused operations). Pure functions over plain
// pointers, any thread; this header goes into objects built with ISA flags, which must not emit
// standard-library code.

#include <cstdint>

namespace artery::engine::scan {

constexpr int kBlock = 64;  // logits per block maximum

// The row's noise words: noise_block(seed, choice, position, pair) (engine/philox.h).
struct NoiseKey {
  std::uint64_t seed;
  std::uint32_t position;
  std::uint32_t choice;
};

struct Kernels {
  // out[b] = max of x[64 b .. 64 b + 63], [ceil(n / 64)]. NaN counts as -inf.
  void (*block_max)(const float* x, std::int64_t n, float* out);
  // Sum over x of weight(x[i], max, scale), exact but for the last bits of a double: lane i mod 16
  // is summed in ascending order, lanes by the tree i += i + 8, 4, 2, 1.
  double (*sum_weights)(const float* x, std::int64_t n, float max, float scale);
  // How many of x are above `value`.
  std::int64_t (*count_above)(const float* x, std::int64_t n, float value);
  // Bit i of the result: the high noise word of token `token + i` is at least `floor`. `token` is
  // even; 64 tokens.
  std::uint64_t (*noise_above)(const NoiseKey& key, std::int32_t token, std::uint32_t floor);
};

// exp((x - max) * scale) in float32 as the kernels compute it, relative error below 1e-6; exactly 1
// at x = max and 0 for NaN, -inf and what is below 1e-45. +inf counts as the largest float.
// `max` finite, `scale` in (0, 1e30].
float weight(float x, float max, float scale);

// For the best ISA of this machine.
const Kernels& kernels();

namespace scalar {
extern const Kernels kKernels;
}
namespace avx2 {
extern const Kernels kKernels;
}
namespace avx512 {
extern const Kernels kKernels;
}

}  // namespace artery::engine::scan
