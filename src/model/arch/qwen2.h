#pragma once
// The "qwen2" family of GGUF files: Qwen2, Qwen2.5 and their Coder forms (dense). Pure, any thread.

#include "base/result.h"
#include "model/arch/decoder_spec.h"
#include "model/format/model_file.h"

namespace artery::model {

// Keys "qwen2.*". kBadFile, kUnsupported.
Result<DecoderSpec> qwen2_spec(const ModelFile& file);

}  // namespace artery::model
