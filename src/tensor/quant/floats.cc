// Plain float types, where a block is one value.

#include "tensor/quant/blocks.h"

namespace artery::tensor::quant {
namespace {

// In runs of a fixed length first: compilers vectorize those even at -O2.
template <float (*kConvert)(std::uint16_t)>
inline void convert(const std::uint8_t* __restrict in, std::size_t count, float* __restrict out) {
  constexpr std::size_t kRun = 32;
  for (; count >= kRun; count -= kRun, in += 2 * kRun, out += kRun) {
    for (std::size_t i = 0; i < kRun; ++i) out[i] = kConvert(load_u16(in + 2 * i));
  }
  for (std::size_t i = 0; i < count; ++i) out[i] = kConvert(load_u16(in + 2 * i));
}

}  // namespace

void decode_f32(const std::uint8_t* in, std::size_t blocks, float* out) {
  if (blocks > 0) std::memcpy(out, in, blocks * sizeof(float));
}

void decode_f16(const std::uint8_t* in, std::size_t blocks, float* out) {
  convert<f16_to_f32>(in, blocks, out);
}

void decode_bf16(const std::uint8_t* in, std::size_t blocks, float* out) {
  convert<bf16_to_f32>(in, blocks, out);
}

}  // namespace artery::tensor::quant
