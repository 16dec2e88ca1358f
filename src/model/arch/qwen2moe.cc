#include "model/arch/families.h"

namespace artery::model {

Result<DecoderSpec> qwen2moe_spec(const ModelFile& file) {
  DecoderSpec spec = TRY(read_decoder_spec(file, "qwen2moe", tensor::RopeStyle::kHalves));
  const HyperParameters hyper(file, "qwen2moe");
  spec.qkv_bias_required = true;
  TRY(hyper.count("expert_count", INT32_MAX));  // there is no dense form
  // The weights of the chosen stay shares of all (Qwen2 technical report, section 2.2.2).
  TRY(read_experts(hyper, {}, spec));
  // One more expert that all rows take, times a sigmoid of its own router.
  constexpr std::int64_t kSizeMax = std::int64_t{1} << 32;
  spec.experts.shared_feed_forward =
      TRY(hyper.count_or("expert_shared_feed_forward_length", kSizeMax, spec.feed_forward));
  TRY(read_windows(hyper, kOnlyListed, spec));
  TRY(refuse_the_rest(hyper, spec));
  return spec;
}

}  // namespace artery::model
