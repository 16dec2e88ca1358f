#pragma once
// SentencePiece's BPE (pieces with scores, byte fallback) behind the Tokenizer interface. Private
// to the room.

#include <memory>

#include "base/result.h"
#include "codec/tokenizer.h"

namespace artery::codec {

// `data` with as many kinds and scores as tokens; others were refused before.
Result<std::unique_ptr<Tokenizer>> make_sentence_piece(VocabData data);

}  // namespace artery::codec
