// The kernels for scalar. Everything but the table is in an anonymous namespace, so that no
// function compiled with these flags can be picked by the linker for another object.

#include "tensor/ops/kernel_table.h"
#include "tensor/ops/tile_layout.h"

#define INLINE inline __attribute__((always_inline))
#define PART inline __attribute__((noinline))  // the plain lanes would fill pages

namespace artery::tensor::ops::scalar {
namespace {
#include "tensor/ops/scalar_bits.inc"
//
#include "tensor/ops/vec_scalar.inc"
//
#include "tensor/ops/bf16_scalar.inc"
//
#include "tensor/ops/words_scalar.inc"
//
#include "tensor/ops/kernels.inc"
}  // namespace

const KernelTable kTable = {
#include "tensor/ops/table.inc"
};

}  // namespace artery::tensor::ops::scalar
