// Products of bfloat16 weights by VDPBF16PS, for processors on which it is the fastest way to these
// bits. Everything but the table is in an anonymous namespace, as in build_avx512.cc.

#if defined(__GNUC__) && !defined(__clang__)
// g++ 12's own header initialises a variable with itself in _mm512_undefined_ps.
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <immintrin.h>

#include "tensor/ops/kernel_table.h"
#include "tensor/ops/tile_layout.h"

#define INLINE inline __attribute__((always_inline))
#define ARTERY_BF16_DOT 1

namespace artery::tensor::ops::avx512_bf16 {
namespace {
#include "tensor/ops/scalar_bits.inc"
//
#include "tensor/ops/vec_avx512.inc"
//
#include "tensor/ops/bf16_avx512.inc"
//
#include "tensor/ops/storage.inc"
//
#include "tensor/ops/matmul.inc"

struct Bf16Units {
  static constexpr int kValues = 2;
  static INLINE Vec take(const float* x, std::int64_t left) {
    const Vec low = left >= 16 ? load(x) : load_n(x, left > 0 ? static_cast<int>(left) : 0);
    left -= 16;
    const Vec high =
        left >= 16 ? load(x + 16) : load_n(x + 16, left > 0 ? static_cast<int>(left) : 0);
    const __m512bh pairs = _mm512_cvtne2ps_pbh(high.v, low.v);
    Vec units;
    __builtin_memcpy(&units, &pairs, sizeof(units));
    return units;
  }
  template <int R, int T>
  static INLINE void step(
      const std::uint16_t* const (&w)[T], std::int64_t pair, const float* x, Vec (&sum)[T][R]
  ) {
    __m512bh weights[T];
#pragma GCC unroll 2
    for (int t = 0; t < T; ++t) __builtin_memcpy(&weights[t], w[t] + 32 * pair, sizeof(__m512bh));
#pragma GCC unroll 12
    for (int r = 0; r < R; ++r) {
      const Vec unit = broadcast(x[r]);
      __m512bh both;
      __builtin_memcpy(&both, &unit, sizeof(both));
#pragma GCC unroll 2
      for (int t = 0; t < T; ++t) sum[t][r].v = _mm512_dpbf16_ps(sum[t][r].v, weights[t], both);
    }
  }
};
#include "tensor/ops/matmul_bf16.inc"
}  // namespace

const Bf16Kernels kTable = {matmul_bf16, pack_bf16, kBf16Rows, static_cast<int>(kPairUnits)};

}  // namespace artery::tensor::ops::avx512_bf16
