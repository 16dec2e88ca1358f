#include "model/arch/families.h"

namespace artery::model {

Result<DecoderSpec> gemma3_spec(const ModelFile& file) {
  DecoderSpec spec = TRY(read_decoder_spec(file, "gemma3", tensor::RopeStyle::kHalves));
  const HyperParameters hyper(file, "gemma3");
  // Five layers with a window to one without; the windows' RoPE has its own base and no scaling
  // (Gemma 3 technical report, section 2). Norm weights have 1 added in the file.
  TRY(hyper.count("attention.sliding_window", INT32_MAX));
  TRY(read_windows(hyper, 6, spec));
  spec.window_rope = RopeSpec();
  spec.window_rope.style = spec.rope.style;
  spec.window_rope.dims = spec.rope.dims;
  spec.window_rope.base = TRY(hyper.number_or("rope.freq_base_swa", 10000));
  spec.gating = tensor::Gating::kGeluTanh;
  spec.qk_norms = true;
  spec.post_norms = true;
  const auto size = static_cast<double>(spec.embedding);
  spec.embedding_scale = static_cast<float>(__builtin_sqrt(size));
  // The 27B scales q.k by its embedding over its heads; its files do not say so.
  constexpr std::int64_t kLayersOf27B = 62;
  if (spec.layers == kLayersOf27B && !hyper.has("attention.scale")) {
    const double heads = static_cast<double>(spec.heads);
    spec.attention_scale = static_cast<float>(1 / __builtin_sqrt(size / heads));
  }
  TRY(refuse_the_rest(hyper, spec));
  return spec;
}

}  // namespace artery::model
