#include "model/arch/families.h"

namespace artery::model {

Result<DecoderSpec> llama_spec(const ModelFile& file) {
  // The converters permute q and k of this family for the rotation of adjacent pairs (the original
  // Llama code's order), also where the checkpoint had halves.
  DecoderSpec spec = TRY(read_decoder_spec(file, "llama", tensor::RopeStyle::kAdjacentPairs));
  const HyperParameters hyper(file, "llama");
  // All layers of Mistral 7B (Jiang et al. 2023, section 2).
  TRY(read_windows(hyper, 0, spec));
  // Mixtral: softmax over the chosen (Jiang et al. 2024, section 2.1).
  TRY(read_experts(hyper, {.softmax_over_chosen = true}, spec));
  TRY(refuse_the_rest(hyper, spec));
  return spec;
}

}  // namespace artery::model
