// Plain float types, where a block is one value.

#include "tensor/quant/blocks.h"

namespace artery::tensor::quant {

void decode_f32(const std::uint8_t* in, std::size_t blocks, float* out) {
  if (blocks > 0) std::memcpy(out, in, blocks * sizeof(float));
}

void decode_f16(const std::uint8_t* __restrict in, std::size_t blocks, float* __restrict out) {
  for (std::size_t i = 0; i < blocks; ++i) out[i] = load_f16(in + 2 * i);
}

void decode_bf16(const std::uint8_t* __restrict in, std::size_t blocks, float* __restrict out) {
  for (std::size_t i = 0; i < blocks; ++i) out[i] = bf16_to_f32(load_u16(in + 2 * i));
}

}  // namespace artery::tensor::quant
