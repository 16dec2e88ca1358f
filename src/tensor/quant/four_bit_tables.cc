// Types whose four bits index a table of 16 values.
//   IQ4_NL  d, q[16]                     32 values, the non-linear table
//   IQ4_XS  d, high u16, low[4], q[128]  256 values; 6-bit scales minus 32 of parts of 32
//   MXFP4   e (E8M0), q[16]              32 values, E2M1 table (OCP Microscaling v1.0)
//   NVFP4   s[4] (E4M3), q[32]           64 values, one scale byte for each 16
// The E2M1 tables hold doubled values, so both fp4 scales are halved. In a part of n values, byte i
// holds value i in its low half and value i + n / 2 in its high half.

#include <array>

#include "tensor/quant/blocks.h"

namespace artery::tensor::quant {
namespace {

constexpr float kNonLinear[16] = {
    -127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113
};

// Code 8 is +0 here although E2M1 says -0: the tables of ggml are integers, and a negative scale
// does not exist.
constexpr std::int8_t kE2M1Integers[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
constexpr float kE2M1Doubled[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

// 2^(code - 128), half of E8M0's 2^(code - 127). Code 255 is not NaN in GGUF files.
float half_of_e8m0(std::uint32_t code) {
  const std::uint32_t bits = code < 2 ? 0x00200000u << code : (code - 1) << 23;
  return std::bit_cast<float>(bits);
}

// Half of E4M3 with bit 7 ignored, except that 0x7F is zero while 0xFF is 480 / 2.
constexpr std::array<float, 256> make_half_of_e4m3() {
  std::array<float, 256> table{};
  for (int code = 0; code < 256; ++code) {
    const int exponent = (code >> 3) & 15;
    const int mantissa = code & 7;
    // In units of 2^-10, half of the smallest E4M3 step.
    const int units = exponent == 0 ? mantissa : (8 + mantissa) << (exponent - 1);
    const float value = static_cast<float>(units) * 0x1p-10f;
    table[static_cast<std::size_t>(code)] = code == 0x7F ? 0.0f : value;
  }
  return table;
}
constexpr std::array<float, 256> kHalfOfE4M3 = make_half_of_e4m3();

template <int kValues>
inline void decode_part(
    const std::uint8_t* __restrict q, float scale, const float* table, float* __restrict out
) {
  for (int i = 0; i < kValues / 2; ++i) {
    out[i] = scale * table[q[i] & 15];
    out[i + kValues / 2] = scale * table[q[i] >> 4];
  }
}

}  // namespace

void decode_iq4_nl(const std::uint8_t* in, std::size_t blocks, float* out) {
  for (; blocks > 0; --blocks, in += 18, out += 32) {
    decode_part<32>(in + 2, load_f16(in), kNonLinear, out);
  }
}

void decode_iq4_xs(const std::uint8_t* in, std::size_t blocks, float* out) {
  for (; blocks > 0; --blocks, in += 136, out += 256) {
    const float d = load_f16(in);
    const int scales_high = load_u16(in + 2);
    for (int part = 0; part < 8; ++part) {
      const int low = (in[4 + part / 2] >> (part % 2 * 4)) & 15;
      const int high = (scales_high >> (2 * part)) & 3;
      const float scale = d * to_float((low | high << 4) - 32);
      decode_part<32>(in + 8 + part * 16, scale, kNonLinear, out + part * 32);
    }
  }
}

void decode_mxfp4(const std::uint8_t* in, std::size_t blocks, float* out) {
  for (; blocks > 0; --blocks, in += 17, out += 32) {
    decode_part<32>(in + 1, half_of_e8m0(in[0]), kE2M1Doubled, out);
  }
}

void integers_nvfp4(const std::uint8_t* in, std::size_t blocks, Integers out) {
  for (; blocks > 0; --blocks, in += 36, out.advance(64)) {
    for (int part = 0; part < 4; ++part) {
      out.scale[part] = kHalfOfE4M3[in[part]];
      const std::uint8_t* q = in + 4 + part * 8;
      std::int8_t* to = out.q + part * 16;
      for (int i = 0; i < 8; ++i) {
        to[i] = kE2M1Integers[q[i] & 15];
        to[i + 8] = kE2M1Integers[q[i] >> 4];
      }
    }
  }
}

}  // namespace artery::tensor::quant
