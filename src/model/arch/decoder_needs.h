#pragma once
// Memory of a decoder before it is loaded (model/memory_needs.h): its tensors as packed, its KV
// layout and the scratch of its forward. Pure, any thread.

#include "base/result.h"
#include "model/arch/decoder_spec.h"
#include "model/format/model_file.h"
#include "model/memory_needs.h"

namespace artery::model {

// kBadFile, kUnsupported: as check_decoder.
Result<MemoryNeeds> decoder_needs(
    const ModelFile& file, const DecoderSpec& spec, const NeedsWish& wish
);

}  // namespace artery::model
