#pragma once
// Exact conversion between float32 and the two 16-bit floats and from the 8-bit one, on bit
// patterns. Pure functions, any
// thread; nothing here depends on the processor's half instructions or on its handling of
// subnormal numbers. Source of the formats: IEEE 754-2008 section 3.4 (binary16); bfloat16 is the
// upper half of binary32; E4M3 is Micikevicius et al. 2022, "FP8 formats for deep learning".

#include <bit>
#include <cstdint>

namespace artery::tensor::quant {

// Exact. A NaN keeps its sign and payload.
inline float f16_to_f32(std::uint16_t half) {
  const std::uint32_t magnitude = half & 0x7FFFu;
  const std::uint32_t sign = static_cast<std::uint32_t>(half & 0x8000u) << 16;
  constexpr std::uint32_t kBiasStep = 112u << 23;  // difference of the exponent biases, 127 - 15
  const std::uint32_t special = magnitude >= 0x7C00u ? kBiasStep : 0u;
  const std::uint32_t normal = (magnitude << 13) + kBiasStep + special;
  // Through an integer and not by scaling a subnormal float32, which flush-to-zero would lose.
  const std::uint32_t subnormal =
      std::bit_cast<std::uint32_t>(static_cast<float>(static_cast<int>(magnitude)) * 0x1p-24f);
  // A mask and not a choice: compilers turn the choice into a branch, which keeps loops scalar.
  const std::uint32_t is_subnormal = 0u - static_cast<std::uint32_t>(magnitude < 0x0400u);
  return std::bit_cast<float>(sign | (subnormal & is_subnormal) | (normal & ~is_subnormal));
}

// Rounds to nearest, ties to even; beyond 65520 gives infinity. A NaN stays a (quiet) NaN.
inline std::uint16_t f32_to_f16(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = (bits >> 16) & 0x8000u;
  const std::uint32_t magnitude = bits & 0x7FFFFFFFu;
  std::uint32_t half;
  if (magnitude > 0x7F800000u) {
    half = 0x7E00u | ((magnitude >> 13) & 0x03FFu);
  } else if (magnitude >= 0x47800000u) {  // 65536 and above
    half = 0x7C00u;
  } else if (magnitude < 0x38800000u) {  // below 2^-14: a subnormal half
    // One unit in the last place of [0.5, 1) is 2^-24, the step of subnormal halves, so this sum
    // rounds in the right place.
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    half = std::bit_cast<std::uint32_t>(shifted) - 0x3F000000u;
  } else {
    half = (magnitude - (112u << 23) + 0x0FFFu + ((magnitude >> 13) & 1u)) >> 13;
  }
  return static_cast<std::uint16_t>(sign | half);
}

// Exact.
inline float bf16_to_f32(std::uint16_t half) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(half) << 16);
}

// Rounds to nearest, ties to even. A NaN stays a (quiet) NaN.
inline std::uint16_t f32_to_bf16(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t rounded = (bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16;
  const std::uint32_t quiet = (bits >> 16) | 0x0040u;
  return static_cast<std::uint16_t>((bits & 0x7FFFFFFFu) > 0x7F800000u ? quiet : rounded);
}

// Exact. 0x7F and 0xFF are NaN; there is no infinity.
inline float f8_e4m3_to_f32(std::uint8_t code) {
  const std::uint32_t magnitude = code & 0x7Fu;
  const std::uint32_t half = (code & 0x80u) << 8 | magnitude << 7;  // 2^8 too small
  const std::uint32_t nan = magnitude == 0x7Fu ? 0x7E00u : 0u;
  return f16_to_f32(static_cast<std::uint16_t>(half | nan)) * 256.0f;
}

}  // namespace artery::tensor::quant
