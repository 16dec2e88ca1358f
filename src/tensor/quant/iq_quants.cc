// Super-blocks of 256 values that are entries of a codebook ("grid") times signs and a scale.
//   IQ2_XXS  d, {index[4] u8, word}[8]         word: four 7-bit sign codes, scale in the top 4 bits
//   IQ2_XS   d, code[32] u16, scale[8]         code: 9-bit index, 7-bit sign code
//   IQ2_S    d, index[32], sign[32], high[8], scale[8]
//   IQ3_XXS  d, index[64], word[8]             word as in IQ2_XXS
//   IQ3_S    d, index[64], high[8], sign[32], scale[4]
//   IQ1_S    d, index[32], high[8] u16         high: four 3-bit index tops, 3-bit scale, shift sign
//   IQ1_M    index[32], high[16], scale[4] u16 d in the top 4 bits of each scale, then 3-bit scales
// An entry has 8 values in the IQ1 and IQ2 types, 4 in IQ3. A sign byte has bit i set where value i
// is negative; a 7-bit sign code is such a byte whose bit 7 makes the count of set bits even.
// Order of operations: (d * scale) first, then times the signed entry.

#include <array>

#include "tensor/quant/blocks.h"
#include "tensor/quant/iq_grids.h"

namespace artery::tensor::quant {
namespace {

constexpr std::array<std::uint8_t, 128> make_sign_bytes() {
  std::array<std::uint8_t, 128> bytes{};
  for (unsigned code = 0; code < 128; ++code) {
    const unsigned odd = static_cast<unsigned>(std::popcount(code)) & 1u;
    bytes[code] = static_cast<std::uint8_t>(code | odd << 7);
  }
  return bytes;
}
constexpr std::array<std::uint8_t, 128> kSignBytes = make_sign_bytes();

// Eight bytes, 1 where the sign bit of that value is set.
constexpr std::array<std::uint64_t, 256> make_sign_ones() {
  std::array<std::uint64_t, 256> ones{};
  for (unsigned byte = 0; byte < 256; ++byte) {
    for (unsigned i = 0; i < 8; ++i) {
      ones[byte] |= static_cast<std::uint64_t>((byte >> i) & 1u) << (8 * i);
    }
  }
  return ones;
}
constexpr std::array<std::uint64_t, 256> kSignOnes = make_sign_ones();

// Negates the chosen bytes of eight magnitudes from 1 to 127: no carry crosses a byte.
inline void put_signed(std::uint64_t magnitudes, unsigned signs, std::int8_t* out) {
  const std::uint64_t ones = kSignOnes[signs];
  const std::uint64_t q = (magnitudes ^ ones * 255u) + ones;
  std::memcpy(out, &q, sizeof q);
}
inline void put_signed(const std::array<std::int8_t, 8>& entry, unsigned signs, std::int8_t* out) {
  put_signed(std::bit_cast<std::uint64_t>(entry), signs, out);
}
inline void put_signed(
    const std::array<std::int8_t, 4>& first,
    const std::array<std::int8_t, 4>& second,
    unsigned signs,
    std::int8_t* out
) {
  const std::uint64_t upper = std::bit_cast<std::uint32_t>(second);
  put_signed(std::bit_cast<std::uint32_t>(first) | upper << 32, signs, out);
}

// Eight values of -1, 0 or 1, all shifted by an eighth, in eighths.
inline void put_shifted(unsigned index, int shift, std::int8_t* __restrict out) {
  const std::array<std::int8_t, 8>& entry = kIq1Grid[index];
  for (std::size_t i = 0; i < 8; ++i) out[i] = static_cast<std::int8_t>(8 * entry[i] + shift);
}

// (d * (0.5 + scale)) / 4, the scale rule of the IQ2 types.
inline float quarter_scale(float d, int scale) { return d * (0.5f + to_float(scale)) * 0.25f; }

// Exact: the scale of an eighth, so that shifted values are integers.
inline float eighth(float scale) { return scale * 0.125f; }

}  // namespace

void integers_iq2_xxs(const std::uint8_t* in, std::size_t blocks, Integers out) {
  for (; blocks > 0; --blocks, in += 66, out.advance(256)) {
    const float d = load_f16(in);
    for (int part = 0; part < 8; ++part) {
      const std::uint8_t* index = in + 2 + part * 8;
      const std::uint32_t word = load_u32(index + 4);
      out.set_scale32(part, quarter_scale(d, static_cast<int>(word >> 28)));
      std::int8_t* q = out.q + 32 * part;
      for (int k = 0; k < 4; ++k) {
        put_signed(kIq2XxsGrid[index[k]], kSignBytes[(word >> (7 * k)) & 127u], q + 8 * k);
      }
    }
  }
}

void integers_iq2_xs(const std::uint8_t* in, std::size_t blocks, Integers out) {
  for (; blocks > 0; --blocks, in += 74, out.advance(256)) {
    const float d = load_f16(in);
    for (int part = 0; part < 16; ++part) {
      out.scale[part] = quarter_scale(d, (in[66 + part / 2] >> (part % 2 * 4)) & 15);
      for (int k = 0; k < 2; ++k) {
        const unsigned code = load_u16(in + 2 + part * 4 + k * 2);
        put_signed(kIq2XsGrid[code & 511u], kSignBytes[code >> 9], out.q + 16 * part + 8 * k);
      }
    }
  }
}

void integers_iq2_s(const std::uint8_t* in, std::size_t blocks, Integers out) {
  for (; blocks > 0; --blocks, in += 82, out.advance(256)) {
    const float d = load_f16(in);
    for (int part = 0; part < 16; ++part) {
      out.scale[part] = quarter_scale(d, (in[74 + part / 2] >> (part % 2 * 4)) & 15);
    }
    for (int entry = 0; entry < 32; ++entry) {
      const unsigned high = (in[66 + entry / 4] >> (entry % 4 * 2)) & 3u;
      put_signed(kIq2SGrid[in[2 + entry] | high << 8], in[34 + entry], out.q + 8 * entry);
    }
  }
}

void integers_iq3_xxs(const std::uint8_t* in, std::size_t blocks, Integers out) {
  for (; blocks > 0; --blocks, in += 98, out.advance(256)) {
    const float d = load_f16(in);
    for (int part = 0; part < 8; ++part) {
      const std::uint8_t* index = in + 2 + part * 8;
      const std::uint32_t word = load_u32(in + 66 + part * 4);
      out.set_scale32(part, d * (0.5f + to_float(static_cast<int>(word >> 28))) * 0.5f);
      std::int8_t* q = out.q + 32 * part;
      for (int k = 0; k < 4; ++k) {
        const unsigned signs = kSignBytes[(word >> (7 * k)) & 127u];
        put_signed(kIq3XxsGrid[index[2 * k]], kIq3XxsGrid[index[2 * k + 1]], signs, q + 8 * k);
      }
    }
  }
}

void integers_iq3_s(const std::uint8_t* in, std::size_t blocks, Integers out) {
  for (; blocks > 0; --blocks, in += 110, out.advance(256)) {
    const float d = load_f16(in);
    for (int part = 0; part < 8; ++part) {
      const int scale = 1 + 2 * ((in[106 + part / 2] >> (part % 2 * 4)) & 15);
      out.set_scale32(part, d * to_float(scale));
      const std::uint8_t* index = in + 2 + part * 8;
      const unsigned high = in[66 + part];
      std::int8_t* q = out.q + 32 * part;
      for (int k = 0; k < 4; ++k) {
        const unsigned first = index[2 * k] | ((high >> (2 * k)) & 1u) << 8;
        const unsigned second = index[2 * k + 1] | ((high >> (2 * k + 1)) & 1u) << 8;
        put_signed(kIq3SGrid[first], kIq3SGrid[second], in[74 + part * 4 + k], q + 8 * k);
      }
    }
  }
}

void integers_iq1_s(const std::uint8_t* in, std::size_t blocks, Integers out) {
  for (; blocks > 0; --blocks, in += 50, out.advance(256)) {
    const float d = load_f16(in);
    for (int part = 0; part < 8; ++part) {
      const unsigned high = load_u16(in + 34 + part * 2);
      const float scale = d * to_float(static_cast<int>(2 * ((high >> 12) & 7u) + 1));
      out.set_scale32(part, eighth(scale));
      const int shift = (high & 0x8000u) != 0 ? -1 : 1;
      std::int8_t* q = out.q + 32 * part;
      for (int k = 0; k < 4; ++k) {
        put_shifted(in[2 + part * 4 + k] | ((high >> (3 * k)) & 7u) << 8, shift, q + 8 * k);
      }
    }
  }
}

void integers_iq1_m(const std::uint8_t* in, std::size_t blocks, Integers out) {
  for (; blocks > 0; --blocks, in += 56, out.advance(256)) {
    unsigned d_bits = 0;
    for (int i = 0; i < 4; ++i) {
      const unsigned scales = load_u16(in + 48 + 2 * i);
      d_bits |= scales >> 12 << (4 * i);
    }
    const float d = f16_to_f32(static_cast<std::uint16_t>(d_bits));
    for (int part = 0; part < 16; ++part) {
      const unsigned scales = load_u16(in + 48 + part / 4 * 2);
      const auto scale = static_cast<int>(2 * ((scales >> (part % 4 * 3)) & 7u) + 1);
      out.scale[part] = eighth(d * to_float(scale));
    }
    for (int entry = 0; entry < 32; ++entry) {
      const unsigned high = (in[32 + entry / 2] >> (entry % 2 * 4)) & 15u;
      const int shift = (high & 8u) != 0 ? -1 : 1;
      put_shifted(in[entry] | (high & 7u) << 8, shift, out.q + 8 * entry);
    }
  }
}

}  // namespace artery::tensor::quant
