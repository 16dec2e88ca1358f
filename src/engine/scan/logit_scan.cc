#include "engine/scan/logit_scan.h"

#include "tensor/isa.h"

namespace artery::engine::scan {

const Kernels& kernels() {
#if defined(ARTERY_X86_KERNELS)
  switch (tensor::best_isa()) {
    case tensor::Isa::kAvx512:
      return avx512::kKernels;
    case tensor::Isa::kAvx2:
      return avx2::kKernels;
    case tensor::Isa::kScalar:
      break;
  }
#endif
  return scalar::kKernels;
}

}  // namespace artery::engine::scan
