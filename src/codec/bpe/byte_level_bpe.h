#pragma once
// The byte-level BPE of the GPT-2 family behind the Tokenizer interface. Private to the room.

#include <memory>

#include "base/result.h"
#include "codec/tokenizer.h"

namespace artery::codec {

// `data` with as many kinds as tokens. kBadFile: no merges, or one without a space; kUnsupported:
// unknown `pre`.
Result<std::unique_ptr<Tokenizer>> make_byte_level_bpe(VocabData data);

}  // namespace artery::codec
