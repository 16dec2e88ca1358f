#pragma once
// The byte-level BPE of the GPT-2 family behind the Tokenizer interface. Private to the room.

#include <memory>
#include <vector>

#include "base/result.h"
#include "codec/added_tokens.h"
#include "codec/bpe/pre_tokenizer.h"
#include "codec/hf/text_pipeline.h"
#include "codec/tokenizer.h"

namespace artery::codec {

// `data` with as many kinds as tokens. kBadFile: no merges, or one without a space; kUnsupported:
// unknown `pre`.
Result<std::unique_ptr<Tokenizer>> make_byte_level_bpe(VocabData data);

// Two tokens that join to a third; their place in a list is their rank.
struct IdMerge {
  TokenId left = -1, right = -1, joined = -1;
};

// The same from a tokenizer.json: merges by id, tokens matched as whole texts as its own rules say.
struct ByteLevelParts {
  VocabData data;  // `merges` and `pre` are not read
  PreTokenizer pre;
  std::unique_ptr<const TextPipeline> pipeline;  // null: `pre` says all
  AddedTokens added;
  std::vector<IdMerge> merges;  // of equal pairs the last counts; all ids are tokens of `data`
  // What a byte without a token becomes, with fuse_unk once for a run of them; -1: nothing.
  TokenId missing_byte = -1;
  bool fuse_missing = false;
};
std::unique_ptr<Tokenizer> make_byte_level_bpe(ByteLevelParts parts);

}  // namespace artery::codec
