#pragma once
// Tokenizers of a tokenizer.json whose models work on characters: BPE by merges and Unigram, both
// with byte fallback. Private to the room. The tokenizers made are immutable, any thread.

#include <cstddef>
#include <memory>
#include <vector>

#include "base/result.h"
#include "codec/added_tokens.h"
#include "codec/bpe/byte_level_bpe.h"
#include "codec/hf/text_pipeline.h"
#include "codec/tokenizer.h"

namespace artery::codec {

struct PieceParts {
  VocabData data;              // kinds: kByte for the tokens of byte fallback
  std::vector<bool> in_model;  // [tokens]: tokens of the model, not only added
  std::unique_ptr<const TextPipeline> pipeline;
  AddedTokens added;
  TokenId unknown = -1;  // what a character without a token becomes; -1: nothing
  bool spaces = true;    // U+2581 in a token is a space in texts
  bool byte_fallback = false;
  bool fuse_unknown = false;
  bool ignore_merges = false;   // BPE: a word that is a token is that token
  std::vector<IdMerge> merges;  // BPE: of equal pairs the last counts
  std::vector<double> scores;   // Unigram, [tokens]; only those in_model are read
};

// Neighbouring symbols, at first characters, are joined by the merges: lowest rank first, of equal
// ones the leftmost.
std::unique_ptr<Tokenizer> make_char_bpe(PieceParts parts);

// The segmentation with the largest sum of scores (Viterbi); a character without a token counts 10
// below the lowest score. kUnsupported: a token over kUnigramBytesMax, each of which would be
// looked for at each place.
constexpr std::size_t kUnigramBytesMax = 1024;
Result<std::unique_ptr<Tokenizer>> make_unigram(PieceParts parts);

}  // namespace artery::codec
