#include <immintrin.h>

#include "bench/peak_kernels.h"

namespace artery::bench::avx2 {

float fp32_fma(std::int64_t rounds) {
  __m256 sums[10];
  const __m256 a = _mm256_set1_ps(0.999f);
  const __m256 b = _mm256_set1_ps(1e-3f);
  for (__m256& sum : sums) sum = b;
  for (std::int64_t r = 0; r < rounds; ++r) {
#pragma GCC unroll 10
    for (int i = 0; i < 10; ++i) sums[i] = _mm256_fmadd_ps(sums[i], a, b);
  }
  for (int i = 1; i < 10; ++i) sums[0] = _mm256_add_ps(sums[0], sums[i]);
  return _mm256_cvtss_f32(sums[0]);
}

float int8_dot(std::int64_t rounds) {
  __m256i sums[8];
  const __m256i one16 = _mm256_set1_epi16(1);
  const __m256i weights = _mm256_set1_epi8(1);
  for (__m256i& sum : sums) sum = one16;
  for (std::int64_t r = 0; r < rounds; ++r) {
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) {
      // The sum is the left factor, so that no product is the same twice and none can be hoisted.
      const __m256i pairs = _mm256_maddubs_epi16(sums[i], weights);
      sums[i] = _mm256_add_epi32(sums[i], _mm256_madd_epi16(pairs, one16));
    }
  }
  for (int i = 1; i < 8; ++i) sums[0] = _mm256_add_epi32(sums[0], sums[i]);
  return static_cast<float>(_mm256_cvtsi256_si32(sums[0]));
}

std::uint64_t read_all(const void* base, std::size_t bytes) {
  const auto* at = static_cast<const __m256i*>(base);
  __m256i a = _mm256_setzero_si256(), b = a;
  for (std::size_t i = 0; i < bytes / sizeof *at; i += 4) {
    a = _mm256_or_si256(
        a, _mm256_or_si256(_mm256_load_si256(at + i), _mm256_load_si256(at + i + 1))
    );
    b = _mm256_or_si256(
        b, _mm256_or_si256(_mm256_load_si256(at + i + 2), _mm256_load_si256(at + i + 3))
    );
  }
  alignas(32) std::uint64_t words[4];  // all of them are used, so no load can be narrowed
  _mm256_store_si256(reinterpret_cast<__m256i*>(words), _mm256_or_si256(a, b));
  return words[0] | words[1] | words[2] | words[3];
}

}  // namespace artery::bench::avx2
