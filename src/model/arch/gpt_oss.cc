#include "model/arch/families.h"

namespace artery::model {

Result<DecoderSpec> gpt_oss_spec(const ModelFile& file) {
  DecoderSpec spec = TRY(read_decoder_spec(file, "gpt-oss", tensor::RopeStyle::kHalves));
  const HyperParameters hyper(file, "gpt-oss");
  // Every other layer has a window, the first too; all have sinks (model card, section 2.2).
  TRY(hyper.count("attention.sliding_window", INT32_MAX));
  // YaRN's ramp is not rounded to whole indexes: the checkpoints say "truncate": false.
  spec.rope.yarn.truncated = TRY(hyper.flag_or("rope.scaling.yarn_truncate", false));
  TRY(read_windows(hyper, 2, spec));
  spec.sinks = true;
  spec.qkv_bias_required = true;
  TRY(hyper.count("expert_count", INT32_MAX));  // there is no dense form
  TRY(read_experts(hyper, {.softmax_over_chosen = true}, spec));
  spec.gating = tensor::Gating::kClamped;
  spec.post_attention_is_ffn_norm = true;
  TRY(refuse_the_rest(hyper, spec));
  return spec;
}

}  // namespace artery::model
