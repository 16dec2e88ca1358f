#include "model/arch/families.h"

namespace artery::model {

Result<DecoderSpec> qwen2_spec(const ModelFile& file) {
  // q and k stay as in the checkpoint: halves are rotated. A Qwen2 without q, k, v biases is cut.
  DecoderSpec spec = TRY(read_decoder_spec(file, "qwen2", tensor::RopeStyle::kHalves));
  spec.qkv_bias_required = true;
  const HyperParameters hyper(file, "qwen2");
  TRY(read_windows(hyper, kOnlyListed, spec));
  TRY(refuse_the_rest(hyper, spec));
  return spec;
}

}  // namespace artery::model
