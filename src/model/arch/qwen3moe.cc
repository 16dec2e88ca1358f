#include "model/arch/families.h"

namespace artery::model {

Result<DecoderSpec> qwen3moe_spec(const ModelFile& file) {
  DecoderSpec spec = TRY(read_decoder_spec(file, "qwen3moe", tensor::RopeStyle::kHalves));
  const HyperParameters hyper(file, "qwen3moe");
  spec.qk_norms = true;
  TRY(hyper.count("expert_count", INT32_MAX));  // there is no dense form
  // The checkpoints' norm_topk_prob is true; a file may say otherwise.
  TRY(read_experts(hyper, {.renormalize = true}, spec));
  TRY(read_windows(hyper, kOnlyListed, spec));
  TRY(refuse_the_rest(hyper, spec));
  return spec;
}

}  // namespace artery::model
