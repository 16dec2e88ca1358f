#include "tensor/quant/decode.h"

#include "base/check.h"
#include "tensor/quant/blocks.h"

namespace artery::tensor::quant {
namespace {

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
    case DType::kQ2_K:
      return decode_q2_k;
    case DType::kQ3_K:
      return decode_q3_k;
    case DType::kQ4_K:
      return decode_q4_k;
    case DType::kQ5_K:
      return decode_q5_k;
    case DType::kQ6_K:
      return decode_q6_k;
    case DType::kQ8_K:
      return decode_q8_k;
    case DType::kIQ1_S:
      return decode_iq1_s;
    case DType::kIQ1_M:
      return decode_iq1_m;
    case DType::kIQ2_XXS:
      return decode_iq2_xxs;
    case DType::kIQ2_XS:
      return decode_iq2_xs;
    case DType::kIQ2_S:
      return decode_iq2_s;
    case DType::kIQ3_XXS:
      return decode_iq3_xxs;
    case DType::kIQ3_S:
      return decode_iq3_s;
    case DType::kIQ4_NL:
      return decode_iq4_nl;
    case DType::kIQ4_XS:
      return decode_iq4_xs;
    case DType::kMXFP4:
      return decode_mxfp4;
    case DType::kNVFP4:
      return decode_nvfp4;
    case DType::kTQ1_0:
      return decode_tq1_0;
    case DType::kTQ2_0:
      return decode_tq2_0;
    case DType::kQ1_0:
      return decode_q1_0;
    case DType::kQ2_0:
      return decode_q2_0;
    case DType::kQ8_1:
    case DType::kI8:
    case DType::kI16:
    case DType::kI32:
    case DType::kI64:
    case DType::kF64:
      return nullptr;
  }
  return nullptr;
}

}  // namespace

void decode_row(DType type, std::span<const std::byte> bytes, std::span<float> out) {
  const TypeTraits& of = traits(type);
  const Decoder decode = decoder_of(type);
  CHECK(decode != nullptr, "{} is not a weight type", of.name);
  const auto bytes_wanted = row_bytes(type, static_cast<std::int64_t>(out.size()));
  CHECK(
      bytes.size() == static_cast<std::size_t>(bytes_wanted),
      "{} values of {} take {} bytes, not {}",
      out.size(),
      of.name,
      bytes_wanted,
      bytes.size()
  );
  const std::size_t blocks = out.size() / static_cast<std::size_t>(of.block_values);
  decode(reinterpret_cast<const std::uint8_t*>(bytes.data()), blocks, out.data());
}

}  // namespace artery::tensor::quant
