#include "tensor/quant/decode.h"

#include <algorithm>
#include <array>

#include "base/check.h"
#include "tensor/quant/blocks.h"
#include "tensor/quant/integers.h"

namespace artery::tensor::quant {
namespace {

using IntegerDecoder = void (*)(const std::uint8_t* in, std::size_t blocks, Integers out);

IntegerDecoder integer_decoder_of(DType type) {
  switch (type) {
    case DType::kQ2_K:
      return integers_q2_k;
    case DType::kQ3_K:
      return integers_q3_k;
    case DType::kQ8_K:
      return integers_q8_k;
    case DType::kIQ1_S:
      return integers_iq1_s;
    case DType::kIQ1_M:
      return integers_iq1_m;
    case DType::kIQ2_XXS:
      return integers_iq2_xxs;
    case DType::kIQ2_XS:
      return integers_iq2_xs;
    case DType::kIQ2_S:
      return integers_iq2_s;
    case DType::kIQ3_XXS:
      return integers_iq3_xxs;
    case DType::kIQ3_S:
      return integers_iq3_s;
    case DType::kTQ1_0:
      return integers_tq1_0;
    case DType::kTQ2_0:
      return integers_tq2_0;
    case DType::kNVFP4:
      return integers_nvfp4;
    case DType::kQ1_0:
      return integers_q1_0;
    case DType::kQ2_0:
      return integers_q2_0;
    default:
      return nullptr;
  }
}

using Decoder = void (*)(const std::uint8_t* in, std::size_t blocks, float* out);

Decoder decoder_of(DType type) {
  switch (type) {
    case DType::kF32:
      return decode_f32;
    case DType::kF16:
      return decode_f16;
    case DType::kBF16:
      return decode_bf16;
    case DType::kQ4_0:
      return decode_q4_0;
    case DType::kQ4_1:
      return decode_q4_1;
    case DType::kQ5_0:
      return decode_q5_0;
    case DType::kQ5_1:
      return decode_q5_1;
    case DType::kQ8_0:
      return decode_q8_0;
    case DType::kQ4_K:
      return decode_q4_k;
    case DType::kQ5_K:
      return decode_q5_k;
    case DType::kQ6_K:
      return decode_q6_k;
    case DType::kIQ4_NL:
      return decode_iq4_nl;
    case DType::kIQ4_XS:
      return decode_iq4_xs;
    case DType::kMXFP4:
      return decode_mxfp4;
    case DType::kF8E4M3:
      return decode_f8_e4m3;
    default:
      return nullptr;
  }
}

void check_size(DType type, std::size_t bytes, std::size_t values) {
  const auto wanted = row_bytes(type, static_cast<std::int64_t>(values));
  CHECK(
      bytes == static_cast<std::size_t>(wanted),
      "{} values of {} take {} bytes, not {}",
      values,
      name(type),
      wanted,
      bytes
  );
}

// The float32 values of the types whose blocks are integers and scales.
void decode_from_integers(DType type, std::span<const std::byte> bytes, std::span<float> out) {
  constexpr std::size_t kRun = 256;
  std::array<std::int8_t, kRun> q;
  std::array<float, kRun / kScaleValues> scale;
  std::array<float, kRun / kScaleValues> minimum;
  const bool minimums = has_minimums(type);
  for (std::size_t at = 0; at < out.size(); at += kRun) {
    const std::size_t n = std::min(kRun, out.size() - at);
    const auto run_bytes = static_cast<std::size_t>(row_bytes(type, static_cast<std::int64_t>(n)));
    const std::size_t subs = n / kScaleValues;
    const std::span mins(minimum.data(), minimums ? subs : 0);
    const auto run = bytes.first(run_bytes);
    decode_integers(type, run, std::span(q).first(n), std::span(scale).first(subs), mins);
    bytes = bytes.subspan(run_bytes);
    for (std::size_t i = 0; i < n; ++i) {
      const float s = scale[i / kScaleValues];
      out[at + i] =
          minimums ? s * to_float(q[i] - 1) - minimum[i / kScaleValues] : s * to_float(q[i]);
    }
  }
}

}  // namespace

bool has_integers(DType type) { return integer_decoder_of(type) != nullptr; }
bool has_minimums(DType type) { return type == DType::kQ2_K; }

void decode_integers(
    DType type,
    std::span<const std::byte> bytes,
    std::span<std::int8_t> q,
    std::span<float> scale,
    std::span<float> minimum
) {
  const IntegerDecoder decode = integer_decoder_of(type);
  CHECK(decode != nullptr, "{} has no integers", name(type));
  check_size(type, bytes.size(), q.size());
  CHECK(scale.size() == q.size() / kScaleValues, "{} scales", scale.size());
  CHECK(!has_minimums(type) || minimum.size() == scale.size(), "{} minimums", minimum.size());
  const std::size_t blocks = q.size() / static_cast<std::size_t>(traits(type).block_values);
  decode(
      reinterpret_cast<const std::uint8_t*>(bytes.data()),
      blocks,
      {q.data(), scale.data(), has_minimums(type) ? minimum.data() : nullptr}
  );
}

void decode_row(DType type, std::span<const std::byte> bytes, std::span<float> out) {
  check_size(type, bytes.size(), out.size());
  if (has_integers(type)) return decode_from_integers(type, bytes, out);
  const Decoder decode = decoder_of(type);
  CHECK(decode != nullptr, "{} is not a weight type", name(type));
  const std::size_t blocks = out.size() / static_cast<std::size_t>(traits(type).block_values);
  decode(reinterpret_cast<const std::uint8_t*>(bytes.data()), blocks, out.data());
}

}  // namespace artery::tensor::quant
