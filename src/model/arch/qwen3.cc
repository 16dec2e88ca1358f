#include "model/arch/families.h"

namespace artery::model {

Result<DecoderSpec> qwen3_spec(const ModelFile& file) {
  DecoderSpec spec = TRY(read_decoder_spec(file, "qwen3", tensor::RopeStyle::kHalves));
  spec.qk_norms = true;  // in the place of Qwen2's biases (Qwen3 technical report, section 2)
  const HyperParameters hyper(file, "qwen3");
  TRY(read_windows(hyper, kOnlyListed, spec));
  TRY(refuse_the_rest(hyper, spec));
  return spec;
}

}  // namespace artery::model
