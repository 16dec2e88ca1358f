#pragma once
// Float32 to block types, for tiny models made by tests and tools; not a quantizer to publish
// models with. Pure functions, any thread, no allocation. Source: ggml's reference rule of each
// type.

#include <cstddef>
#include <span>

#include "tensor/dtype.h"

namespace artery::tensor::quant {

// F32, F16, BF16, Q4_0, Q4_1, Q8_0.
bool can_encode(DType type);

// Encodes `values` (a multiple of the type's block) into `out` (exactly row_bytes bytes). `type`
// must satisfy can_encode. Values should be finite and blocks' scales within half precision: a
// larger scale becomes infinity, as in any file of these types.
void encode_row(DType type, std::span<const float> values, std::span<std::byte> out);

}  // namespace artery::tensor::quant
