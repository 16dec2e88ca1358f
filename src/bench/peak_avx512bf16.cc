#include <immintrin.h>

#include "bench/peak_kernels.h"

namespace artery::bench::avx512bf16 {

float bf16_dot(std::int64_t rounds) {
  __m512 sums[10];
  // 0x3f80 is 1 as bfloat16.
  const __m512bh a = (__m512bh)_mm512_set1_epi16(0x3f80);
  const __m512bh b = (__m512bh)_mm512_set1_epi16(0x3f80);
  for (__m512& sum : sums) sum = _mm512_set1_ps(1.0f);
  for (std::int64_t r = 0; r < rounds; ++r) {
#pragma GCC unroll 10
    for (int i = 0; i < 10; ++i) sums[i] = _mm512_dpbf16_ps(sums[i], a, b);
  }
  for (int i = 1; i < 10; ++i) sums[0] = _mm512_add_ps(sums[0], sums[i]);
  return _mm512_cvtss_f32(sums[0]);
}

}  // namespace artery::bench::avx512bf16
