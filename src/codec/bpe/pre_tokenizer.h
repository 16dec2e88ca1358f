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
  // A word is capitals then small letters, with one character before it and, in kO200k (gpt-oss), a
  // contraction behind it; kTekken (Mistral) has single numbers. See patterns_of().
  kO200k,
  kTekken,
  // \p{N}{1,3}, then runs of ideographs and kana, then a pattern for the rest; each between the
  // matches of the one before.
  kDeepSeekV3,
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

// The regular expressions of a rule as the families' tokenizer.json files have them, each to be
// applied between the matches of the one before; empty for kSmolLm and kDefault.
std::vector<std::string_view> patterns_of(SplitRule rule);

// Appends the words of `text` in order; joined they are `text`. Views into `text`. For kO200k,
// kTekken and kDeepSeekV3 the patterns themselves are run (hf/regex.h): the plain twin of the
// scanners.
void split_words(SplitRule rule, std::string_view text, std::vector<std::string_view>& words);

}  // namespace artery::codec
