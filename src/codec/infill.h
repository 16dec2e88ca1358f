#pragma once
// Text insertion: which tokens mark the texts before and behind a gap (fill in the middle), over
// the families. Pure functions, any thread.

#include <vector>

#include "codec/tokenizer.h"
#include "codec/vocab.h"

namespace artery::codec {

// Fills data.infill by the well-known spellings, unless the file named all three tokens by key.
void find_infill_tokens(VocabData& data);

// [BOS] PREFIX-mark before SUFFIX-mark behind MIDDLE-mark, as the models were trained; what comes
// next fills the gap. All of both texts is data: the spelling of a mark or of a control token in
// them stays text. Only for vocabularies whose infill is known.
std::vector<TokenId> infill_prompt(
    const Tokenizer& tokenizer, std::string_view before, std::string_view behind
);

// Tokens behind which the gap is filled, beside the vocabulary's end tokens: the marks themselves,
// and those between files.
std::vector<TokenId> infill_ends(const VocabData& data);

}  // namespace artery::codec
