#include <immintrin.h>

#include "bench/peak_kernels.h"

namespace artery::bench::avx512 {

float fp32_fma(std::int64_t rounds) {
  __m512 sums[10];
  const __m512 a = _mm512_set1_ps(0.999f);
  const __m512 b = _mm512_set1_ps(1e-3f);
  for (__m512& sum : sums) sum = b;
  for (std::int64_t r = 0; r < rounds; ++r) {
#pragma GCC unroll 10
    for (int i = 0; i < 10; ++i) sums[i] = _mm512_fmadd_ps(sums[i], a, b);
  }
  for (int i = 1; i < 10; ++i) sums[0] = _mm512_add_ps(sums[0], sums[i]);
  return _mm512_cvtss_f32(sums[0]);
}

float int8_dot(std::int64_t rounds) {
  __m512i sums[10];
  const __m512i a = _mm512_set1_epi8(3);
  const __m512i b = _mm512_set1_epi8(1);
  for (__m512i& sum : sums) sum = a;
  for (std::int64_t r = 0; r < rounds; ++r) {
#pragma GCC unroll 10
    for (int i = 0; i < 10; ++i) sums[i] = _mm512_dpbusd_epi32(sums[i], a, b);
  }
  for (int i = 1; i < 10; ++i) sums[0] = _mm512_add_epi32(sums[0], sums[i]);
  return static_cast<float>(_mm512_cvtsi512_si32(sums[0]));
}

}  // namespace artery::bench::avx512
