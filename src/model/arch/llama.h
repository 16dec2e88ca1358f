#pragma once
// The "llama" family of GGUF files: Llama 1 to 3, SmolLM2, Mistral, TinyStories. Pure, any thread.

#include "base/result.h"
#include "model/arch/decoder_spec.h"
#include "model/format/model_file.h"

namespace artery::model {

// Keys "llama.*". kBadFile, kUnsupported.
Result<DecoderSpec> llama_spec(const ModelFile& file);

}  // namespace artery::model
