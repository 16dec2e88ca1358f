#include "tensor/quant/encode.h"

#include <cmath>
#include <cstdint>
#include <cstring>

#include "base/check.h"
#include "tensor/quant/half.h"

namespace artery::tensor::quant {
namespace {

constexpr int kBlock = 32;  // values in a block of Q4_0, Q4_1 and Q8_0

void store_u16(std::uint16_t value, std::uint8_t* out) { std::memcpy(out, &value, sizeof value); }

float reciprocal_or_zero(float d) { return d != 0.0f ? 1.0f / d : 0.0f; }

// The integer part, held within 0 to 15; NaN gives 0.
unsigned four_bits(float value) {
  if (!(value > 0.0f)) return 0;
  return value < 15.0f ? static_cast<unsigned>(value) : 15u;
}

// Scale: the value of largest magnitude becomes -8, so that the range -8 to 7 is used fully on its
// side.
void encode_q4_0(const float* values, std::uint8_t* out) {
  float extreme = 0.0f;
  for (int i = 0; i < kBlock; ++i) {
    if (std::fabs(values[i]) > std::fabs(extreme)) extreme = values[i];
  }
  const float d = extreme / -8.0f;
  const float inverse = reciprocal_or_zero(d);
  store_u16(f32_to_f16(d), out);
  for (int i = 0; i < kBlock / 2; ++i) {
    const unsigned low = four_bits(values[i] * inverse + 8.5f);
    const unsigned high = four_bits(values[i + kBlock / 2] * inverse + 8.5f);
    out[2 + i] = static_cast<std::uint8_t>(low | high << 4);
  }
}

void encode_q4_1(const float* values, std::uint8_t* out) {
  float min = values[0];
  float max = values[0];
  for (int i = 1; i < kBlock; ++i) {
    if (values[i] < min) min = values[i];
    if (values[i] > max) max = values[i];
  }
  const float d = (max - min) / 15.0f;
  const float inverse = reciprocal_or_zero(d);
  store_u16(f32_to_f16(d), out);
  store_u16(f32_to_f16(min), out + 2);
  for (int i = 0; i < kBlock / 2; ++i) {
    const unsigned low = four_bits((values[i] - min) * inverse + 0.5f);
    const unsigned high = four_bits((values[i + kBlock / 2] - min) * inverse + 0.5f);
    out[4 + i] = static_cast<std::uint8_t>(low | high << 4);
  }
}

// To the nearest integer, halves away from zero, held within a byte; NaN gives 0.
std::uint8_t signed_byte(float value) {
  if (std::isnan(value)) return 0;
  const float rounded = std::round(value);
  if (rounded >= 127.0f) return 127;
  return static_cast<std::uint8_t>(rounded <= -127.0f ? -127 : static_cast<int>(rounded));
}

void encode_q8_0(const float* values, std::uint8_t* out) {
  float largest = 0.0f;
  for (int i = 0; i < kBlock; ++i) largest = std::fmax(largest, std::fabs(values[i]));
  const float d = largest / 127.0f;
  const float inverse = reciprocal_or_zero(d);
  store_u16(f32_to_f16(d), out);
  for (int i = 0; i < kBlock; ++i) out[2 + i] = signed_byte(values[i] * inverse);
}

void encode_f32(const float* value, std::uint8_t* out) { std::memcpy(out, value, sizeof *value); }
void encode_f16(const float* value, std::uint8_t* out) { store_u16(f32_to_f16(*value), out); }
void encode_bf16(const float* value, std::uint8_t* out) { store_u16(f32_to_bf16(*value), out); }

using BlockEncoder = void (*)(const float* values, std::uint8_t* out);

BlockEncoder encoder_of(DType type) {
  switch (type) {
    case DType::kF32:
      return encode_f32;
    case DType::kF16:
      return encode_f16;
    case DType::kBF16:
      return encode_bf16;
    case DType::kQ4_0:
      return encode_q4_0;
    case DType::kQ4_1:
      return encode_q4_1;
    case DType::kQ8_0:
      return encode_q8_0;
    default:
      return nullptr;
  }
}

}  // namespace

bool can_encode(DType type) { return encoder_of(type) != nullptr; }

void encode_row(DType type, std::span<const float> values, std::span<std::byte> out) {
  const TypeTraits& of = traits(type);
  const BlockEncoder encode = encoder_of(type);
  CHECK(encode != nullptr, "no encoder for {}", of.name);
  const auto bytes_wanted = row_bytes(type, static_cast<std::int64_t>(values.size()));
  CHECK(
      out.size() == static_cast<std::size_t>(bytes_wanted),
      "{} values of {} take {} bytes, not {}",
      values.size(),
      of.name,
      bytes_wanted,
      out.size()
  );
  auto* to = reinterpret_cast<std::uint8_t*>(out.data());
  const auto block_values = static_cast<std::size_t>(of.block_values);
  for (std::size_t first = 0; first < values.size(); first += block_values, to += of.block_bytes) {
    encode(values.data() + first, to);
  }
}

}  // namespace artery::tensor::quant
