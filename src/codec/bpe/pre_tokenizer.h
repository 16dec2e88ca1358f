#pragma once
// Cuts text into the words that byte-level BPE works on. The rules are the split patterns of the
// model families, written by hand: linear, no recursion, no regular expressions, so that no text
// can make them slow or deep. Owns nothing, pure functions, any thread.

#include <string_view>
#include <vector>

#include "base/result.h"

namespace artery::codec {

enum class SplitRule {
  // 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
  kGpt2,
  kSmolLm,  // every \p{N} on its own, kGpt2 between them
  // (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|
  // \s*[\r\n]+|\s+(?!\S)|\s+
  kQwen2,
  kLlama3,  // kQwen2 with \p{N}{1,3}
  // Runs of [\p{P}$+<=>^~|], then kGpt2, then \p{N}+, then [0-9][0-9][0-9]; each between the
  // matches
  // of the one before. What llama.cpp does for files that name no rule.
  kDefault
};

struct PreTokenizer {
  SplitRule rule = SplitRule::kDefault;
  bool nfc = false;          // the text is normalized to NFC first
  bool whole_words = false;  // a word that is a token is that token, without merging
  bool add_bos = false;      // what the family does when the file does not say
};

// By tokenizer.ggml.pre; empty means "default". kUnsupported names `pre` and the known ones.
Result<PreTokenizer> find_pre_tokenizer(std::string_view pre);

// Appends the words of `text` in order; joined they are `text`. Views into `text`.
void split_words(SplitRule rule, std::string_view text, std::vector<std::string_view>& words);

}  // namespace artery::codec
