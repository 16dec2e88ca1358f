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

std::uint64_t read_all(const void* base, std::size_t bytes) {
  const auto* at = static_cast<const char*>(base);
  __m512i a = _mm512_setzero_si512(), b = a;
  for (std::size_t i = 0; i < bytes; i += 128) {
    a = _mm512_or_si512(a, _mm512_load_si512(at + i));
    b = _mm512_or_si512(b, _mm512_load_si512(at + i + 64));
  }
  alignas(64) std::uint64_t words[8];  // all of them are used, so no load can be narrowed
  _mm512_store_si512(words, _mm512_or_si512(a, b));
  std::uint64_t all = 0;
  for (const std::uint64_t word : words) all |= word;
  return all;
}

}  // namespace artery::bench::avx512
