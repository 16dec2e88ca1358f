#pragma once
// The regular expressions of a tokenizer.json, which are written for Oniguruma, run by PCRE2. Only
// patterns that mean the same in both, or can be rewritten to, are taken. A match has a limit of
// effort, so that no pattern and text can hang or overflow a stack. Immutable after construction,
// any thread.

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"

namespace artery::codec {

class Regex {
 public:
  // kUnsupported: what PCRE2 can't compile or would read otherwise; names the place in the pattern.
  static Result<Regex> compile(std::string_view pattern);

  using Visit = std::function<void(std::size_t begin, std::size_t end)>;
  // Calls visit(begin, end) with the matches in order: leftmost, none overlapping; empty ones only
  // inside what lies between others. Bytes of invalid UTF-8 are control characters. Where a match
  // takes more effort than the limit the rest of `text` counts as without a match, and false is
  // returned. A text over kSoftBytes is matched in parts, cut before a space behind a letter or
  // digit, or after kHardBytes where there is none: only patterns that take time by the square of
  // their subject need that, but those would hold a thread for hours.
  bool each_match(std::string_view text, const Visit& visit) const;

  static constexpr std::size_t kPatternBytesMax = 16 * 1024;
  static constexpr std::size_t kSoftBytes = 8 * 1024, kHardBytes = 32 * 1024;

 private:
  struct Compiled;
  explicit Regex(std::shared_ptr<const Compiled> compiled) : compiled_(std::move(compiled)) {}

  std::shared_ptr<const Compiled> compiled_;
};

// The same expression in PCRE2's words. kUnsupported as for compile().
Result<std::string> pcre2_of_oniguruma(std::string_view pattern);

}  // namespace artery::codec
