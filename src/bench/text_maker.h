#pragma once
// Prompts of an exact number of tokens for any tokenizer: common words whose cost is asked of the
// tokenizer once, put together by that cost, and the end fitted by asking again. A text of words
// costs the sum of its words wherever words are split before merging (byte-level BPE) or start with
// a marker (SentencePiece), so parts can be shared between prompts as a prefix cache sees them.
// One thread.

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "bench/workload.h"

namespace artery::bench {

struct MadeText {
  std::string text;
  std::int64_t tokens = 0;  // counted; with no counter, one a word
};

class TextMaker {
 public:
  // `counter` null: each word is taken for one token, and nothing is checked. Otherwise asks it
  // about 70 times; its errors are returned.
  static Result<TextMaker> make(TokenCounter* counter);

  // Random words, exactly `tokens` tokens whenever the tokenizer allows it, at least the one or two
  // that cannot be left out.
  Result<MadeText> make_text(std::int64_t tokens, Dice& dice);
  // The words of block `id`: the same for the same id, whatever else was made. Every block must be
  // asked for in the same size.
  std::string block(std::uint64_t id, std::int64_t tokens) const;
  // `blocks` one after the other under the common start of all prompts, cut or filled up with words
  // of `dice` to exactly `tokens`.
  Result<MadeText> join(const std::vector<std::string>& blocks, std::int64_t tokens, Dice& dice);

  bool counts() const { return counter_ != nullptr; }

 private:
  struct Word {
    std::string text;  // with its leading space
    std::int64_t cost = 1;
  };
  TextMaker() = default;
  // Appends words worth at most `tokens`; returns what could not be filled.
  std::int64_t append_words(std::string& text, std::int64_t tokens, Dice& dice) const;
  Result<std::int64_t> count(const std::string& text);
  Result<MadeText> fit(std::string text, std::int64_t tokens, Dice& dice);
  Result<MadeText> fit_end(std::string text, std::int64_t tokens);

  TokenCounter* counter_ = nullptr;
  std::vector<Word> words_;      // cheapest first
  std::int64_t start_cost_ = 1;  // of the text every prompt begins with
};

}  // namespace artery::bench
