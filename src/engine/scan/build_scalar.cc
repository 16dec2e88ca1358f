// The passes for scalar. Everything but the table is in an anonymous namespace, so that no function
// compiled with these flags can be picked by the linker for another object.

#include "engine/scan/logit_scan.h"

#define SCAN_INLINE inline __attribute__((always_inline))

namespace artery::engine::scan {
namespace {
#include "engine/scan/logit_scan.inc"
}  // namespace

const Kernels scalar::kKernels = {block_max, sum_weights, count_above, noise_above};

float weight(float x, float max, float scale) {
  weigh<float, std::int32_t>(x, max, scale);
  return x;
}

}  // namespace artery::engine::scan
