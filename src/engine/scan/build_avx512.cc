// The passes for avx512. Everything but the table is in an anonymous namespace, so that no function
// compiled with these flags can be picked by the linker for another object.

#include <immintrin.h>

#include "engine/scan/logit_scan.h"

#define SCAN_INLINE inline __attribute__((always_inline))

namespace artery::engine::scan {
namespace {
#include "engine/scan/logit_scan.inc"
}  // namespace

const Kernels avx512::kKernels = {block_max, sum_weights, count_above, noise_above};

}  // namespace artery::engine::scan
