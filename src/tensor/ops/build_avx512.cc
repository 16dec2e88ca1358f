// The kernels for avx512. Everything but the table is in an anonymous namespace, so that no
// function compiled with these flags can be picked by the linker for another object.

#if defined(__GNUC__) && !defined(__clang__)
// g++ 12's own header initialises a variable with itself in _mm512_undefined_ps.
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <immintrin.h>

#include "tensor/ops/kernel_table.h"
#include "tensor/ops/tile_layout.h"

#define INLINE inline __attribute__((always_inline))
#define PART INLINE

namespace artery::tensor::ops::avx512 {
namespace {
#include "tensor/ops/scalar_bits.inc"
//
#include "tensor/ops/vec_avx512.inc"
//
#include "tensor/ops/bf16_avx512.inc"
//
#include "tensor/ops/words_avx512.inc"
//
#include "tensor/ops/kernels.inc"
}  // namespace

const KernelTable kTable = {
#include "tensor/ops/table.inc"
};

}  // namespace artery::tensor::ops::avx512
