// Super-blocks of 256 values: half-precision scales of the whole, small integer scales of parts.
//   Q2_K  sm[16], q[64], d, dmin        parts of 16: scale = low half of sm, minimum = high half
//   Q3_K  high[32], q[64], s[12], d     parts of 16, 6-bit scales minus 32
//   Q4_K  d, dmin, sm[12], q[128]       parts of 32, 6-bit scales and minima
//   Q5_K  d, dmin, sm[12], high[32], q[128]
//   Q6_K  low[128], high[64], s[16] signed, d
//   Q8_K  d (float32), q[256] signed, sums[16] of int16 (not needed to decode)
// Products are formed as (d * scale) * q - (dmin * minimum), each rounded.

#include <algorithm>

#include "tensor/quant/blocks.h"

namespace artery::tensor::quant {
namespace {

// The 6-bit scales and minima of Q4_K and Q5_K. The first four of each lie in bytes 0 to 3 and
// 4 to 7; the last four have their low halves in bytes 8 to 11 and their upper two bits at the top
// of bytes 0 to 7.
struct PartScales {
  float scale[8];
  float minimum[8];
};

PartScales unpack_part_scales(const std::uint8_t* in) {
  const float d = load_f16(in);
  const float dmin = load_f16(in + 2);
  const std::uint8_t* packed = in + 4;
  PartScales parts;
  for (int i = 0; i < 4; ++i) {
    const int scale = packed[i];
    const int minimum = packed[4 + i];
    const int both = packed[8 + i];
    parts.scale[i] = d * to_float(scale & 63);
    parts.minimum[i] = dmin * to_float(minimum & 63);
    parts.scale[4 + i] = d * to_float((both & 15) | (scale >> 6) << 4);
    parts.minimum[4 + i] = dmin * to_float((both >> 4) | (minimum >> 6) << 4);
  }
  return parts;
}

}  // namespace

void integers_q2_k(const std::uint8_t* __restrict in, std::size_t blocks, Integers out) {
  for (; blocks > 0; --blocks, in += 84, out.advance(256)) {
    const float d = load_f16(in + 80);
    const float dmin = load_f16(in + 82);
    for (int part = 0; part < 16; ++part) {
      out.scale[part] = d * to_float(in[part] & 15);
      out.minimum[part] = dmin * to_float(in[part] >> 4);
      // 32 bytes hold 128 values: two bits each of values l, 32 + l, 64 + l, 96 + l.
      const std::uint8_t* q = in + 16 + part / 8 * 32 + part % 2 * 16;
      const int shift = part % 8 / 2 * 2;
      put_bits(q, shift, 0, out.q + part * 16);
    }
  }
}

void integers_q3_k(const std::uint8_t* __restrict in, std::size_t blocks, Integers out) {
  for (; blocks > 0; --blocks, in += 110, out.advance(256)) {
    const float d = load_f16(in + 108);
    const std::uint8_t* packed = in + 96;
    for (int part = 0; part < 16; ++part) {
      const int low = (packed[part % 8] >> (part / 8 * 4)) & 15;
      const int upper = (packed[8 + part % 4] >> (part / 4 * 2)) & 3;
      out.scale[part] = d * to_float((low | upper << 4) - 32);
      const std::uint8_t* high = in + part % 2 * 16;
      const std::uint8_t* q = in + 32 + part / 8 * 32 + part % 2 * 16;
      const int shift = part % 8 / 2 * 2;
      const int high_shift = part / 2;
      // A set high bit means no offset of 4.
      for (int i = 0; i < 16; i += 8) {
        const std::uint64_t two = (load_u64(q + i) >> shift) & 3 * kEveryByte;
        const std::uint64_t third = (load_u64(high + i) >> high_shift) & kEveryByte;
        const std::uint64_t value = minus_each(two | third << 2, 4);
        std::memcpy(out.q + part * 16 + i, &value, sizeof value);
      }
    }
  }
}

void decode_q4_k(const std::uint8_t* __restrict in, std::size_t blocks, float* __restrict out) {
  for (; blocks > 0; --blocks, in += 144, out += 256) {
    const PartScales parts = unpack_part_scales(in);
    for (int part = 0; part < 8; ++part) {
      const std::uint8_t* q = in + 16 + part / 2 * 32;
      const int shift = part % 2 * 4;
      const float scale = parts.scale[part];
      const float minimum = parts.minimum[part];
      for (int i = 0; i < 32; ++i) {
        out[part * 32 + i] = scale * to_float((q[i] >> shift) & 15) - minimum;
      }
    }
  }
}

void decode_q5_k(const std::uint8_t* __restrict in, std::size_t blocks, float* __restrict out) {
  for (; blocks > 0; --blocks, in += 176, out += 256) {
    const PartScales parts = unpack_part_scales(in);
    const std::uint8_t* high = in + 16;
    for (int part = 0; part < 8; ++part) {
      const std::uint8_t* q = in + 48 + part / 2 * 32;
      const int shift = part % 2 * 4;
      const float scale = parts.scale[part];
      const float minimum = parts.minimum[part];
      for (int i = 0; i < 32; ++i) {
        const int value = ((q[i] >> shift) & 15) | ((high[i] >> part) & 1) << 4;
        out[part * 32 + i] = scale * to_float(value) - minimum;
      }
    }
  }
}

void decode_q6_k(const std::uint8_t* __restrict in, std::size_t blocks, float* __restrict out) {
  for (; blocks > 0; --blocks, in += 210, out += 256) {
    const float d = load_f16(in + 208);
    for (int part = 0; part < 16; ++part) {
      const float scale = d * to_float(as_signed(in[192 + part]));
      const int quarter = part % 8 / 2;  // of the 128 values of this half
      const int column = part % 2 * 16;
      const std::uint8_t* low = in + part / 8 * 64 + quarter % 2 * 32 + column;
      const std::uint8_t* high = in + 128 + part / 8 * 32 + column;
      const int low_shift = quarter / 2 * 4;
      const int high_shift = quarter * 2;
      for (int i = 0; i < 16; ++i) {
        const int value = ((low[i] >> low_shift) & 15) | ((high[i] >> high_shift) & 3) << 4;
        out[part * 16 + i] = scale * to_float(value - 32);
      }
    }
  }
}

void integers_q8_k(const std::uint8_t* in, std::size_t blocks, Integers out) {
  for (; blocks > 0; --blocks, in += 292, out.advance(256)) {
    std::fill_n(out.scale, 16, std::bit_cast<float>(load_u32(in)));
    std::memcpy(out.q, in + 4, 256);
  }
}

}  // namespace artery::tensor::quant
