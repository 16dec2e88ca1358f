#pragma once
// The tokenizer's part of a GGUF file as a codec::VocabData. Owns nothing; pure functions of the
// file, any thread. Never guesses a tokenizer: what it does not know is refused.

#include <string>
#include <vector>

#include "base/result.h"
#include "codec/vocab.h"
#include "model/format/model_file.h"

namespace artery::cli {

// Reads tokenizer.ggml.* (keys as in ggml/docs/gguf.md). kBadFile: a key missing, of the wrong
// type, or lists whose lengths differ; kUnsupported: a tokenizer model or `pre` that this build
// lacks. Every message starts with the file's path. What is odd but harmless (equal tokens, a BOS
// outside the vocabulary, which is dropped) is one line each in `warnings`, or in the log without
// one.
Result<codec::VocabData> load_vocab(
    const model::ModelFile& file, std::vector<std::string>* warnings = nullptr
);

}  // namespace artery::cli
