#include "model/arch/llama.h"

namespace artery::model {

Result<DecoderSpec> llama_spec(const ModelFile& file) {
  // The converters permute q and k of this family for the rotation of adjacent pairs (the original
  // Llama code's order), also where the checkpoint had halves.
  return read_decoder_spec(file, "llama", tensor::RopeStyle::kAdjacentPairs);
}

}  // namespace artery::model
