#pragma once
// Exact decoding of every GGUF block type to float32: the plain twin of the fast kernels, and the
// way all types without a fast kernel run. Pure functions, any thread, no allocation. Source: the
// GGUF/ggml block layouts; judged bit for bit by golden/models/quant.

#include <cstddef>
#include <cstdint>
#include <span>

#include "tensor/dtype.h"

namespace artery::tensor::quant {

// Decodes `out.size()` values (a multiple of the type's block) from `bytes` (exactly
// row_bytes(type, out.size())). float32 arithmetic, one rounding per operation, no fused
// multiply-add. `type` must be a weight type.
void decode_row(DType type, std::span<const std::byte> bytes, std::span<float> out);

}  // namespace artery::tensor::quant
