#pragma once
// Internal to quant/: one decoder per block type, to float32 or to integers and scales, for
// `blocks` blocks back to back. `in` needs no alignment and must not overlap `out`. Each family's
// file states its layouts, as the ggml block structures define them; all numbers are little-endian.
// No allocation, no state, any thread.

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "tensor/quant/half.h"

namespace artery::tensor::quant {

static_assert(std::endian::native == std::endian::little, "blocks are read in place");

inline std::uint16_t load_u16(const std::uint8_t* in) {
  std::uint16_t value;
  std::memcpy(&value, in, sizeof value);
  return value;
}
inline std::uint32_t load_u32(const std::uint8_t* in) {
  std::uint32_t value;
  std::memcpy(&value, in, sizeof value);
  return value;
}
inline float load_f16(const std::uint8_t* in) { return f16_to_f32(load_u16(in)); }
inline int as_signed(std::uint8_t byte) { return static_cast<std::int8_t>(byte); }
inline float to_float(int value) { return static_cast<float>(value); }

// Where the integers of quant/integers.h go.
struct Integers {
  std::int8_t* q;
  float* scale;    // of each 16
  float* minimum;  // of each 16, or null

  void advance(std::size_t values) {
    q += values;
    scale += values / 16;
    if (minimum != nullptr) minimum += values / 16;
  }
  void set_scale32(int part, float value) {
    scale[2 * part] = value;
    scale[2 * part + 1] = value;
  }
};

// Eight bytes at a time: compilers widen loops over bytes to 32 bits.
constexpr std::uint64_t kEveryByte = 0x0101010101010101u;
inline std::uint64_t load_u64(const std::uint8_t* in) {
  std::uint64_t value;
  std::memcpy(&value, in, sizeof value);
  return value;
}
// Bytes below 128 minus n below 128, each for itself.
inline std::uint64_t minus_each(std::uint64_t bytes, unsigned n) {
  return ((bytes | 0x80 * kEveryByte) - n * kEveryByte) ^ 0x80 * kEveryByte;
}

// Two bits of each of 16 bytes, + 1 - below.
inline void put_bits(const std::uint8_t* in, int shift, unsigned below, std::int8_t* out) {
  for (int i = 0; i < 16; i += 8) {
    const std::uint64_t bits = (load_u64(in + i) >> shift) & 3 * kEveryByte;
    const std::uint64_t q = minus_each(bits + kEveryByte, below);
    std::memcpy(out + i, &q, sizeof q);
  }
}

// floats.cc; a block is one value
void decode_f32(const std::uint8_t* in, std::size_t blocks, float* out);
void decode_f16(const std::uint8_t* in, std::size_t blocks, float* out);
void decode_bf16(const std::uint8_t* in, std::size_t blocks, float* out);
void decode_f8_e4m3(const std::uint8_t* in, std::size_t blocks, float* out);  // of 128
// blocks_32.cc
void decode_q4_0(const std::uint8_t* in, std::size_t blocks, float* out);
void decode_q4_1(const std::uint8_t* in, std::size_t blocks, float* out);
void decode_q5_0(const std::uint8_t* in, std::size_t blocks, float* out);
void decode_q5_1(const std::uint8_t* in, std::size_t blocks, float* out);
void decode_q8_0(const std::uint8_t* in, std::size_t blocks, float* out);
// k_quants.cc
void integers_q2_k(const std::uint8_t* in, std::size_t blocks, Integers out);
void integers_q3_k(const std::uint8_t* in, std::size_t blocks, Integers out);
void decode_q4_k(const std::uint8_t* in, std::size_t blocks, float* out);
void decode_q5_k(const std::uint8_t* in, std::size_t blocks, float* out);
void decode_q6_k(const std::uint8_t* in, std::size_t blocks, float* out);
void integers_q8_k(const std::uint8_t* in, std::size_t blocks, Integers out);
// iq_quants.cc
void integers_iq1_s(const std::uint8_t* in, std::size_t blocks, Integers out);
void integers_iq1_m(const std::uint8_t* in, std::size_t blocks, Integers out);
void integers_iq2_xxs(const std::uint8_t* in, std::size_t blocks, Integers out);
void integers_iq2_xs(const std::uint8_t* in, std::size_t blocks, Integers out);
void integers_iq2_s(const std::uint8_t* in, std::size_t blocks, Integers out);
void integers_iq3_xxs(const std::uint8_t* in, std::size_t blocks, Integers out);
void integers_iq3_s(const std::uint8_t* in, std::size_t blocks, Integers out);
// four_bit_tables.cc
void decode_iq4_nl(const std::uint8_t* in, std::size_t blocks, float* out);
void decode_iq4_xs(const std::uint8_t* in, std::size_t blocks, float* out);
void decode_mxfp4(const std::uint8_t* in, std::size_t blocks, float* out);
void integers_nvfp4(const std::uint8_t* in, std::size_t blocks, Integers out);
// few_bits.cc
void integers_tq1_0(const std::uint8_t* in, std::size_t blocks, Integers out);
void integers_tq2_0(const std::uint8_t* in, std::size_t blocks, Integers out);
void integers_q1_0(const std::uint8_t* in, std::size_t blocks, Integers out);
void integers_q2_0(const std::uint8_t* in, std::size_t blocks, Integers out);

}  // namespace artery::tensor::quant
