// Blocks of 32 values with one half-precision scale d, and in the _1 types a minimum m.
//   Q4_0  d, q[16]            value = d * (q - 8)
//   Q4_1  d, m, q[16]         value = d * q + m
//   Q5_0  d, high u32, q[16]  value = d * (q - 16); bit i of `high` is bit 4 of value i
//   Q5_1  d, m, high, q[16]   value = d * q + m
//   Q8_0  d, q[32] signed     value = d * q
// Byte i of q[16] holds value i in its low half and value i + 16 in its high half.

#include "tensor/quant/blocks.h"

namespace artery::tensor::quant {

void decode_q4_0(const std::uint8_t* __restrict in, std::size_t blocks, float* __restrict out) {
  for (; blocks > 0; --blocks, in += 18, out += 32) {
    const float d = load_f16(in);
    for (int i = 0; i < 16; ++i) {
      const int byte = in[2 + i];
      out[i] = d * to_float((byte & 15) - 8);
      out[i + 16] = d * to_float((byte >> 4) - 8);
    }
  }
}

void decode_q4_1(const std::uint8_t* __restrict in, std::size_t blocks, float* __restrict out) {
  for (; blocks > 0; --blocks, in += 20, out += 32) {
    const float d = load_f16(in);
    const float m = load_f16(in + 2);
    for (int i = 0; i < 16; ++i) {
      const int byte = in[4 + i];
      out[i] = d * to_float(byte & 15) + m;
      out[i + 16] = d * to_float(byte >> 4) + m;
    }
  }
}

void decode_q5_0(const std::uint8_t* __restrict in, std::size_t blocks, float* __restrict out) {
  for (; blocks > 0; --blocks, in += 22, out += 32) {
    const float d = load_f16(in);
    const std::uint32_t high = load_u32(in + 2);
    for (int i = 0; i < 16; ++i) {
      const int byte = in[6 + i];
      const int bit_low = static_cast<int>((high >> i) & 1u);
      const int bit_high = static_cast<int>((high >> (i + 16)) & 1u);
      out[i] = d * to_float(((byte & 15) | bit_low << 4) - 16);
      out[i + 16] = d * to_float(((byte >> 4) | bit_high << 4) - 16);
    }
  }
}

void decode_q5_1(const std::uint8_t* __restrict in, std::size_t blocks, float* __restrict out) {
  for (; blocks > 0; --blocks, in += 24, out += 32) {
    const float d = load_f16(in);
    const float m = load_f16(in + 2);
    const std::uint32_t high = load_u32(in + 4);
    for (int i = 0; i < 16; ++i) {
      const int byte = in[8 + i];
      const int bit_low = static_cast<int>((high >> i) & 1u);
      const int bit_high = static_cast<int>((high >> (i + 16)) & 1u);
      out[i] = d * to_float((byte & 15) | bit_low << 4) + m;
      out[i + 16] = d * to_float((byte >> 4) | bit_high << 4) + m;
    }
  }
}

void decode_q8_0(const std::uint8_t* __restrict in, std::size_t blocks, float* __restrict out) {
  for (; blocks > 0; --blocks, in += 34, out += 32) {
    const float d = load_f16(in);
    for (int i = 0; i < 32; ++i) out[i] = d * to_float(as_signed(in[2 + i]));
  }
}

}  // namespace artery::tensor::quant
