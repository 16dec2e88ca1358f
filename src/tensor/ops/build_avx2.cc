// The kernels for avx2. Everything but the table is in an anonymous namespace, so that no function
// compiled with these flags can be picked by the linker for another object.

#include <immintrin.h>

#include "tensor/ops/kernel_table.h"
#include "tensor/ops/tile_layout.h"

#define INLINE inline __attribute__((always_inline))
#define PART INLINE

namespace artery::tensor::ops::avx2 {
namespace {
#include "tensor/ops/scalar_bits.inc"
//
#include "tensor/ops/vec_avx2.inc"
//
#include "tensor/ops/bf16_avx2.inc"
//
#include "tensor/ops/words_avx2.inc"
//
#include "tensor/ops/kernels.inc"
}  // namespace

const KernelTable kTable = {
#include "tensor/ops/table.inc"
};

}  // namespace artery::tensor::ops::avx2
