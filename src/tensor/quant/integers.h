#pragma once
// Block types as what they are made of: small integers, float32 scales and minimums, for the
// kernels that multiply integers. Exact: scale * integer, rounded once (then + minimum, rounded
// again), is what decode_row gives, but for the sign of zero. Only for types without an interleaved
// tile. Pure functions, any thread, no allocation. Source of the formats: decode.h.

#include <cstddef>
#include <cstdint>
#include <span>

#include "tensor/dtype.h"

namespace artery::tensor::quant {

constexpr std::size_t kScaleValues = 16;  // that share one scale

// Whether decode_integers knows the type.
bool has_integers(DType type);
// Whether the type has minimums; then its integers are stored + 1 and are never negative.
bool has_minimums(DType type);

// Decodes q.size() values (a multiple of the type's block) from `bytes`: value i is
// scale[i / 16] * q[i], or scale[i / 16] * (q[i] - 1) - minimum[i / 16]. scale has q.size() / 16
// elements, minimum as many where the type has minimums.
void decode_integers(
    DType type,
    std::span<const std::byte> bytes,
    std::span<std::int8_t> q,
    std::span<float> scale,
    std::span<float> minimum
);

}  // namespace artery::tensor::quant
