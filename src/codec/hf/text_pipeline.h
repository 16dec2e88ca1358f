#pragma once
// What the Hugging Face library does with a text before its model: normalizers, added tokens that
// are looked for in the normalized text, pre-tokenizers. The order and the meaning of the steps are
// those of its source (tokenizers 0.23: normalizers/, pre_tokenizers/, tokenizer/normalizer.rs).
// Immutable after construction, any thread; linear in the text but for what Regex says.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "codec/added_tokens.h"
#include "codec/bpe/pre_tokenizer.h"
#include "codec/hf/regex.h"
#include "codec/unicode.h"

namespace artery::codec {

struct TextPattern {
  std::string literal = {};  // when there is no regex
  std::optional<Regex> regex = {};
};

struct NormalizeStep {
  enum class Kind : std::uint8_t {
    kForm,
    kLowercase,
    kStrip,         // white space at `left`, `right`
    kStripAccents,  // marks go
    kPrepend,       // `content`
    kReplace        // `pattern` by `content`
  };
  Kind kind = Kind::kForm;
  NormalForm form = NormalForm::kNfc;
  bool left = true, right = true;
  TextPattern pattern;
  std::string content;
};

enum class SplitBehavior : std::uint8_t {
  kRemoved,
  kIsolated,
  kMergedWithPrevious,
  kMergedWithNext,
  kContiguous
};

struct CutStep {
  enum class Kind : std::uint8_t {
    kPattern,     // at the matches of `pattern`
    kRule,        // into the words of `rule`
    kNumbers,     // at each \p{N}
    kMarks,       // at each punctuation character
    kWhiteSpace,  // at each white space character
    kReplace,     // spaces by `content`
    kPrefix       // `content` before each piece that does not begin with it
  };
  Kind kind = Kind::kPattern;
  SplitBehavior behavior = SplitBehavior::kIsolated;
  bool invert = false;      // kPattern: matches are what lies between matches
  bool only_first = false;  // kPrefix: only where the piece is the start of the whole text
  SplitRule rule = SplitRule::kGpt2;
  TextPattern pattern = {};
  std::string content = {};
};

class TextPipeline {
 public:
  // `normalized`: tokens that are matched behind the normalizers.
  TextPipeline(
      std::vector<NormalizeStep> normalizers, AddedTokens normalized, std::vector<CutStep> cuts
  )
      : normalizers_(std::move(normalizers)),
        normalized_(std::move(normalized)),
        cuts_(std::move(cuts)) {}

  using OnWord = std::function<void(std::string_view)>;
  using OnToken = std::function<void(TokenId)>;
  // Calls on_word with each word of `text` and on_token with each token found in it, in order.
  // `at_start`: it is the start of the whole text. What is given lives as long as the call.
  void run(std::string_view text, bool at_start, const OnWord& on_word, const OnToken& on_token)
      const;
  // True when words given by one run() are views of one text, which lives until it returns.
  bool words_last() const;
  // What the normalizers make of `text`: it, or a view of `buffer`.
  std::string_view normalize(std::string_view text, std::string& buffer) const;

 private:
  void cut(std::string_view text, bool at_start, const OnWord& on_word) const;

  std::vector<NormalizeStep> normalizers_;
  AddedTokens normalized_;
  std::vector<CutStep> cuts_;
};

// `text` with each match of `pattern` replaced by `content`.
std::string replace_pattern(
    std::string_view text, const TextPattern& pattern, std::string_view content
);

}  // namespace artery::codec
