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
// Order of operations: (d * scale) first, then * entry, then the sign.

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

// Four or eight values of a grid entry; `signs` has one bit for each, lowest first.
template <std::size_t kValues>
inline void put_signed(
    const std::array<std::int8_t, kValues>& entry,
    float scale,
    std::uint32_t signs,
    float* __restrict out
) {
  for (std::size_t i = 0; i < kValues; ++i) {
    const float magnitude = scale * to_float(entry[i]);
    const std::uint32_t sign = ((signs >> i) & 1u) << 31;
    out[i] = std::bit_cast<float>(std::bit_cast<std::uint32_t>(magnitude) ^ sign);
  }
}

// Eight values of -1, 0 or 1, all shifted by an eighth.
inline void put_shifted(unsigned index, float scale, float shift, float* __restrict out) {
  const std::array<std::int8_t, 8>& entry = kIq1Grid[index];
  for (std::size_t i = 0; i < 8; ++i) out[i] = scale * (to_float(entry[i]) + shift);
}

// (d * (0.5 + scale)) / 4, the scale rule of the IQ2 types.
inline float quarter_scale(float d, int scale) { return d * (0.5f + to_float(scale)) * 0.25f; }

constexpr float kIq1Shift = 0.125f;

}  // namespace

void decode_iq2_xxs(const std::uint8_t* in, std::size_t blocks, float* out) {
  for (; blocks > 0; --blocks, in += 66) {
    const float d = load_f16(in);
    for (int part = 0; part < 8; ++part, out += 32) {
      const std::uint8_t* index = in + 2 + part * 8;
      const std::uint32_t word = load_u32(index + 4);
      const float scale = quarter_scale(d, static_cast<int>(word >> 28));
      for (int k = 0; k < 4; ++k) {
        put_signed(kIq2XxsGrid[index[k]], scale, kSignBytes[(word >> (7 * k)) & 127u], out + 8 * k);
      }
    }
  }
}

void decode_iq2_xs(const std::uint8_t* in, std::size_t blocks, float* out) {
  for (; blocks > 0; --blocks, in += 74) {
    const float d = load_f16(in);
    for (int part = 0; part < 16; ++part) {
      const float scale = quarter_scale(d, (in[66 + part / 2] >> (part % 2 * 4)) & 15);
      for (int k = 0; k < 2; ++k, out += 8) {
        const unsigned code = load_u16(in + 2 + part * 4 + k * 2);
        put_signed(kIq2XsGrid[code & 511u], scale, kSignBytes[code >> 9], out);
      }
    }
  }
}

void decode_iq2_s(const std::uint8_t* in, std::size_t blocks, float* out) {
  for (; blocks > 0; --blocks, in += 82) {
    const float d = load_f16(in);
    for (int entry = 0; entry < 32; ++entry, out += 8) {
      const int part = entry / 2;
      const float scale = quarter_scale(d, (in[74 + part / 2] >> (part % 2 * 4)) & 15);
      const unsigned high = (in[66 + entry / 4] >> (entry % 4 * 2)) & 3u;
      put_signed(kIq2SGrid[in[2 + entry] | high << 8], scale, in[34 + entry], out);
    }
  }
}

void decode_iq3_xxs(const std::uint8_t* in, std::size_t blocks, float* out) {
  for (; blocks > 0; --blocks, in += 98) {
    const float d = load_f16(in);
    for (int part = 0; part < 8; ++part) {
      const std::uint8_t* index = in + 2 + part * 8;
      const std::uint32_t word = load_u32(in + 66 + part * 4);
      const float scale = d * (0.5f + to_float(static_cast<int>(word >> 28))) * 0.5f;
      for (int k = 0; k < 4; ++k, out += 8) {
        const std::uint32_t signs = kSignBytes[(word >> (7 * k)) & 127u];
        put_signed(kIq3XxsGrid[index[2 * k]], scale, signs, out);
        put_signed(kIq3XxsGrid[index[2 * k + 1]], scale, signs >> 4, out + 4);
      }
    }
  }
}

void decode_iq3_s(const std::uint8_t* in, std::size_t blocks, float* out) {
  for (; blocks > 0; --blocks, in += 110) {
    const float d = load_f16(in);
    for (int part = 0; part < 8; ++part) {
      const float scale = d * to_float(1 + 2 * ((in[106 + part / 2] >> (part % 2 * 4)) & 15));
      const std::uint8_t* index = in + 2 + part * 8;
      const unsigned high = in[66 + part];
      for (int k = 0; k < 4; ++k, out += 8) {
        const std::uint32_t signs = in[74 + part * 4 + k];
        const unsigned first = index[2 * k] | ((high >> (2 * k)) & 1u) << 8;
        const unsigned second = index[2 * k + 1] | ((high >> (2 * k + 1)) & 1u) << 8;
        put_signed(kIq3SGrid[first], scale, signs, out);
        put_signed(kIq3SGrid[second], scale, signs >> 4, out + 4);
      }
    }
  }
}

void decode_iq1_s(const std::uint8_t* in, std::size_t blocks, float* out) {
  for (; blocks > 0; --blocks, in += 50) {
    const float d = load_f16(in);
    for (int part = 0; part < 8; ++part) {
      const unsigned high = load_u16(in + 34 + part * 2);
      const float scale = d * to_float(static_cast<int>(2 * ((high >> 12) & 7u) + 1));
      const float shift = (high & 0x8000u) != 0 ? -kIq1Shift : kIq1Shift;
      for (int k = 0; k < 4; ++k, out += 8) {
        put_shifted(in[2 + part * 4 + k] | ((high >> (3 * k)) & 7u) << 8, scale, shift, out);
      }
    }
  }
}

void decode_iq1_m(const std::uint8_t* in, std::size_t blocks, float* out) {
  for (; blocks > 0; --blocks, in += 56) {
    unsigned d_bits = 0;
    for (int i = 0; i < 4; ++i) {
      const unsigned scales = load_u16(in + 48 + 2 * i);
      d_bits |= scales >> 12 << (4 * i);
    }
    const float d = f16_to_f32(static_cast<std::uint16_t>(d_bits));
    for (int entry = 0; entry < 32; ++entry, out += 8) {
      const int part = entry / 2;
      const unsigned scales = load_u16(in + 48 + part / 4 * 2);
      const unsigned high = (in[32 + entry / 2] >> (entry % 2 * 4)) & 15u;
      const float scale = d * to_float(static_cast<int>(2 * ((scales >> (part % 4 * 3)) & 7u) + 1));
      const float shift = (high & 8u) != 0 ? -kIq1Shift : kIq1Shift;
      put_shifted(in[entry] | (high & 7u) << 8, scale, shift, out);
    }
  }
}

}  // namespace artery::tensor::quant
