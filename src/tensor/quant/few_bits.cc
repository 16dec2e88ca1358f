// One and two bits, and ternary values, with one half-precision scale d per block.
//   TQ1_0  q[48], rest[4], d  256 values of -1, 0, 1; a byte is a fraction of 243 with five base-3
//                             digits, the first the most significant; `rest` has four digits each
//   TQ2_0  q[64], d           256 values, value = d * (q - 1), two bits each
//   Q2_0   d, q[16]           64 values, value = d * (q - 1), so -1, 0, 1 or 2
//   Q1_0   d, q[16]           128 values, bit set = d, clear = -d
// TQ1_0 and TQ2_0 interleave: digit n of 32 (16, 4) neighbouring bytes gives 32 (16, 4)
// neighbouring values. Q1_0 and Q2_0 go byte by byte, lowest bits first.

#include <algorithm>

#include "tensor/quant/blocks.h"

namespace artery::tensor::quant {
namespace {

template <int kBytes, int kDigits>
inline void put_digits(const std::uint8_t* __restrict in, std::int8_t* __restrict out) {
  unsigned power = 1;
  for (int digit = 0; digit < kDigits; ++digit, power *= 3, out += kBytes) {
    for (int i = 0; i < kBytes; ++i) {
      // The byte is ceil(n * 256 / 243): times 3^digit it drops the digits before (modulo 256), and
      // the next digit is the integer part of its triple.
      const unsigned fraction = (in[i] * power) & 255u;
      out[i] = static_cast<std::int8_t>(static_cast<int>(fraction * 3 >> 8) - 1);
    }
  }
}

}  // namespace

void integers_tq1_0(const std::uint8_t* in, std::size_t blocks, Integers out) {
  for (; blocks > 0; --blocks, in += 54, out.advance(256)) {
    std::fill_n(out.scale, 16, load_f16(in + 52));
    put_digits<32, 5>(in, out.q);
    put_digits<16, 5>(in + 32, out.q + 160);
    put_digits<4, 4>(in + 48, out.q + 240);
  }
}

void integers_tq2_0(const std::uint8_t* in, std::size_t blocks, Integers out) {
  for (; blocks > 0; --blocks, in += 66, out.advance(256)) {
    std::fill_n(out.scale, 16, load_f16(in + 64));
    for (int part = 0; part < 16; ++part) {
      const std::uint8_t* q = in + part / 8 * 32 + part % 2 * 16;
      put_bits(q, part % 8 / 2 * 2, 2, out.q + part * 16);
    }
  }
}

void integers_q1_0(const std::uint8_t* in, std::size_t blocks, Integers out) {
  for (; blocks > 0; --blocks, in += 18, out.advance(128)) {
    std::fill_n(out.scale, 8, load_f16(in));
    for (int i = 0; i < 128; ++i) {
      out.q[i] = static_cast<std::int8_t>(2 * ((in[2 + i / 8] >> (i % 8)) & 1) - 1);
    }
  }
}

void integers_q2_0(const std::uint8_t* in, std::size_t blocks, Integers out) {
  for (; blocks > 0; --blocks, in += 18, out.advance(64)) {
    std::fill_n(out.scale, 4, load_f16(in));
    for (int i = 0; i < 64; ++i) {
      out.q[i] = static_cast<std::int8_t>(((in[2 + i / 4] >> (i % 4 * 2)) & 3) - 1);
    }
  }
}

}  // namespace artery::tensor::quant
