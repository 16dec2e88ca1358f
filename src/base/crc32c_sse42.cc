// CRC-32C by the crc32 instruction, which takes 8 bytes a cycle but 3 cycles to answer: three parts
// of a block go side by side and are joined by a carry-less product.

#include <nmmintrin.h>
#include <wmmintrin.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace artery::crc32c_sse42 {

std::uint32_t update(const unsigned char* at, std::size_t bytes, std::uint32_t crc);

namespace {

// x^n modulo the polynomial; bits reversed: bit 31 is x^0.
constexpr std::uint32_t power_of_x(std::size_t n) {
  std::uint32_t v = 0x80000000;
  for (; n > 0; --n) v = (v >> 1) ^ ((v & 1) != 0 ? 0x82F63B78 : 0);
  return v;
}

std::uint64_t load(const unsigned char* at) {
  std::uint64_t word = 0;
  std::memcpy(&word, at, 8);
  return word;
}

// `crc` after `Bytes` zero bytes, which is crc * x^(8 Bytes). The product of two reversed values
// stands one place off and the instruction multiplies by x^32: hence 33 less.
template <std::size_t Bytes>
std::uint64_t shifted(std::uint64_t crc) {
  constexpr std::uint32_t kFactor = power_of_x(8 * Bytes - 33);
  const __m128i product = _mm_clmulepi64_si128(
      _mm_cvtsi64_si128(static_cast<long long>(crc)),
      _mm_cvtsi32_si128(static_cast<int>(kFactor)),
      0
  );
  return _mm_crc32_u64(0, static_cast<std::uint64_t>(_mm_cvtsi128_si64(product)));
}

// Takes blocks of three parts of `Part` bytes while they last.
template <std::size_t Part>
std::uint64_t blocks(const unsigned char*& at, std::size_t& bytes, std::uint64_t crc) {
  for (; bytes >= 3 * Part; bytes -= 3 * Part, at += 3 * Part) {
    std::uint64_t b = 0;
    std::uint64_t c = 0;
    for (std::size_t i = 0; i < Part; i += 8) {
      crc = _mm_crc32_u64(crc, load(at + i));
      b = _mm_crc32_u64(b, load(at + Part + i));
      c = _mm_crc32_u64(c, load(at + 2 * Part + i));
    }
    crc = shifted<2 * Part>(crc) ^ shifted<Part>(b) ^ c;
  }
  return crc;
}

}  // namespace

std::uint32_t update(const unsigned char* at, std::size_t bytes, std::uint32_t crc) {
  std::uint64_t wide = blocks<4096>(at, bytes, crc);
  wide = blocks<256>(at, bytes, wide);
  for (; bytes >= 8; bytes -= 8, at += 8) wide = _mm_crc32_u64(wide, load(at));
  auto narrow = static_cast<std::uint32_t>(wide);
  for (; bytes > 0; --bytes, ++at) narrow = _mm_crc32_u8(narrow, *at);
  return narrow;
}

}  // namespace artery::crc32c_sse42
