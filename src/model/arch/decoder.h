#pragma once
// The forward pass of the pre-norm decoder families, and the two calls a family needs to be in the
// registry. Loading runs on any thread; forward on the engine thread.

#include <memory>

#include "base/result.h"
#include "model/arch/decoder_spec.h"
#include "model/format/model_file.h"
#include "model/load.h"
#include "model/model.h"
#include "tensor/backend.h"

namespace artery::model {

// Checks the file's tensors against `spec`. weights_digest stays empty; tensors of the file that
// the model does not use are named in `warnings`. kBadFile, kUnsupported.
Result<ModelInfo> check_decoder(const ModelFile& file, const DecoderSpec& spec);

// `info`: what check_decoder gave, its context_length perhaps lowered: the model serves positions
// below it. `backend` outlives the model; the file may be closed afterwards. Progress in bytes of
// the tensors used. kBadFile (RoPE divisors out of range), kOutOfMemory, kIo.
Result<std::unique_ptr<Model>> load_decoder(
    const ModelFile& file,
    const DecoderSpec& spec,
    ModelInfo info,
    tensor::Backend& backend,
    const LoadOptions& options
);

}  // namespace artery::model
