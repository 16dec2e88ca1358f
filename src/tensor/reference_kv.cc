#include "tensor/reference_kv.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "tensor/quant/half.h"

namespace artery::tensor {
namespace {

// The constants of ops/attention_int16_kv.inc.
constexpr double kVectorNorm = 46000;
constexpr double kWordMax = 32767;
constexpr double kByteMax = 127;
constexpr double kSmallestVector = 1e-26;
constexpr float kStepOfZero = 1e-30f;

template <typename T>
T read(const std::byte* base, std::int64_t index) {
  T value;
  std::memcpy(&value, base + index * static_cast<std::int64_t>(sizeof(T)), sizeof(T));
  return value;
}
template <typename T>
void write(std::byte* base, std::int64_t index, T value) {
  std::memcpy(base + index * static_cast<std::int64_t>(sizeof(T)), &value, sizeof(T));
}

double get(const std::byte* base, KvType type, std::int64_t index) {
  switch (type) {
    case KvType::kF64:
      return read<double>(base, index);
    case KvType::kF32:
      return static_cast<double>(read<float>(base, index));
    case KvType::kF16:
      return static_cast<double>(quant::f16_to_f32(read<std::uint16_t>(base, index)));
    case KvType::kI16:
      return read<std::int16_t>(base, index);
    case KvType::kI16V8:
      return read<std::int8_t>(base, index);
  }
  return 0;
}

void put(std::byte* base, KvType type, std::int64_t index, double value) {
  switch (type) {
    case KvType::kF64:
      return write(base, index, value);
    case KvType::kF32:
      return write(base, index, static_cast<float>(value));
    case KvType::kF16:
      return write(base, index, quant::f32_to_f16(static_cast<float>(value)));
    case KvType::kI16:
      return write(base, index, static_cast<std::int16_t>(value));
    case KvType::kI16V8:
      return write(base, index, static_cast<std::int8_t>(value));
  }
}

// V of kI16V8 is the one that the name says, its K is as kI16's.
KvType key_type(KvType type) { return type == KvType::kI16V8 ? KvType::kI16 : type; }

// In elements; the scales of integers follow the last one.
std::int64_t key_index(const KvGeometry& g, int lane, int d) {
  if (is_integer(g.type)) return (std::int64_t{d / 2} * kPageTokens + lane) * 2 + d % 2;
  return std::int64_t{d} * kPageTokens + lane;
}
std::int64_t value_index(const KvGeometry& g, int lane, int d) {
  const int n = g.type == KvType::kI16V8 ? 4 : 2;
  if (is_integer(g.type)) return (std::int64_t{lane / n} * g.head_dim + d) * n + lane % n;
  return std::int64_t{lane} * g.head_dim + d;
}
std::int64_t key_scale_at(const KvGeometry& g) { return g.k_bytes() - g.scale_bytes(); }
std::int64_t value_scale_at(const KvGeometry& g) { return g.v_bytes() - g.scale_bytes(); }

float step_of(std::span<const double> x, double most, bool by_norm) {
  double top = 0;
  for (const double v : x) {
    if (!std::isfinite(v)) return std::numeric_limits<float>::quiet_NaN();
    top = std::max(top, std::fabs(v));
  }
  if (top < kSmallestVector) return kStepOfZero;
  double squares = 0;
  for (const double v : x) squares += (v / top) * (v / top);
  const double part = by_norm ? std::max(std::sqrt(squares) / kVectorNorm, 1 / most) : 1 / most;
  return static_cast<float>(top * part);
}

double word_of(double x, float step, double most) {
  if (!(step > kStepOfZero)) return 0;
  return std::clamp(std::nearbyint(x / static_cast<double>(step)), -most, most);
}

}  // namespace

double kv_key(const std::byte* keys, const KvGeometry& g, int lane, int d) {
  const double value = get(keys, key_type(g.type), key_index(g, lane, d));
  if (!is_integer(g.type)) return value;
  return value * static_cast<double>(read<float>(keys + key_scale_at(g), lane));
}

double kv_value(const std::byte* values, const KvGeometry& g, int lane, int d) {
  const double value = get(values, g.type, value_index(g, lane, d));
  if (!is_integer(g.type)) return value;
  return value * static_cast<double>(read<float>(values + value_scale_at(g), lane));
}

void put_key(std::byte* keys, const KvGeometry& g, int lane, std::span<const double> k) {
  const bool words = is_integer(g.type);
  const float step = words ? step_of(k, kWordMax, true) : 0;
  for (int d = 0; d < g.head_dim; ++d) {
    const double value = k[static_cast<std::size_t>(d)];
    put(keys,
        key_type(g.type),
        key_index(g, lane, d),
        words ? word_of(value, step, kWordMax) : value);
  }
  if (!words) return;
  if (g.head_dim % 2 != 0) put(keys, key_type(g.type), key_index(g, lane, g.head_dim), 0);
  write(keys + key_scale_at(g), lane, step);
}

void put_value(std::byte* values, const KvGeometry& g, int lane, std::span<const double> v) {
  const bool words = is_integer(g.type);
  const double most = g.type == KvType::kI16V8 ? kByteMax : kWordMax;
  const float step = words ? step_of(v, most, false) : 0;
  for (int d = 0; d < g.head_dim; ++d) {
    const double value = v[static_cast<std::size_t>(d)];
    put(values, g.type, value_index(g, lane, d), words ? word_of(value, step, most) : value);
  }
  if (words) write(values + value_scale_at(g), lane, step);
}

}  // namespace artery::tensor
