#include "model/arch/families.h"

namespace artery::model {

Result<DecoderSpec> phi3_spec(const ModelFile& file) {
  DecoderSpec spec = TRY(read_decoder_spec(file, "phi3", tensor::RopeStyle::kHalves));
  const HyperParameters hyper(file, "phi3");
  spec.fused = true;
  TRY(read_windows(hyper, 0, spec));  // 0 in a file of Phi-4: none
  TRY(refuse_the_rest(hyper, spec));
  return spec;
}

}  // namespace artery::model
