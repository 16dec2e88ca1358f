#pragma once
// What is known of single tokens over the families: their kind, and which end what a model says.
// Pure functions, any thread.

#include <string_view>

#include "codec/vocab.h"

namespace artery::codec {

// Adds to data.end_of_generation the control tokens that are known to end a turn or a document,
// then sorts it and drops what is there twice.
void collect_end_tokens(VocabData& data);

// The kind of an added token of a tokenizer.json. Texts that look like control tokens (<|...|>,
// <unused1> and the like) are that whatever the file calls them, by the list of llama.cpp's
// converter (does_token_look_special), which made the types in GGUF files: some files flag not even
// the tokens that begin a turn, and no user's text may become those. Exceptions: marks of code
// infilling, which clients write in their prompts, are what the file says; Gemma's two marks
// around an image are user-defined in its SentencePiece model.
TokenKind kind_of_added_token(std::string_view text, bool special);

}  // namespace artery::codec
