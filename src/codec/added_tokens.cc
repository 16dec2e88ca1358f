#include "codec/added_tokens.h"

#include "codec/unicode.h"

namespace artery::codec {
namespace {

// Where the character that ends at `end` > 0 begins; of invalid bytes one.
std::size_t previous_char(std::string_view text, std::size_t end) {
  constexpr std::size_t kBytesMax = 4;
  for (std::size_t bytes = 1; bytes <= kBytesMax && bytes <= end; ++bytes) {
    const Utf8Char c = decode_utf8(text, end - bytes);
    if (c.state == Utf8State::kValid && c.bytes == bytes) return end - bytes;
  }
  return end - 1;
}

bool is_word_at(std::string_view text, std::size_t pos) {
  const Utf8Char c = decode_utf8(text, pos);
  return c.state == Utf8State::kValid && is_word_char(c.code);
}

bool is_space_at(std::string_view text, std::size_t pos) {
  return classify(text, pos).char_class == CharClass::kSpace;
}

}  // namespace

void AddedTokens::add(
    std::string_view text, TokenId id, bool control, AddedRules rules, bool late
) {
  (late ? late_ : early_).add(text, id, control);
  has_late_ = has_late_ || late;
  if (!rules.lstrip && !rules.rstrip && !rules.single_word) return;
  const auto at = static_cast<std::size_t>(id);
  if (rules_.size() <= at) rules_.resize(at + 1);
  rules_[at] = rules;
}

SpecialMatch AddedTokens::with_rules(
    const SpecialTokens& tokens,
    SpecialMatch match,
    std::string_view text,
    std::size_t from,
    bool parse_control,
    std::span<const ByteRange> literal
) const {
  while (match.id >= 0) {
    const auto at = static_cast<std::size_t>(match.id);
    const AddedRules rules = at < rules_.size() ? rules_[at] : AddedRules{};
    const bool touched = rules.single_word &&
                         ((match.begin > 0 && is_word_at(text, previous_char(text, match.begin))) ||
                          (match.end < text.size() && is_word_at(text, match.end)));
    if (touched) {
      match = tokens.find(text, match.end, parse_control, literal);
      continue;
    }
    while (rules.lstrip && match.begin > from) {
      const std::size_t before = previous_char(text, match.begin);
      if (before < from || !is_space_at(text, before)) break;
      match.begin = before;
    }
    while (rules.rstrip && match.end < text.size() && is_space_at(text, match.end))
      match.end += classify(text, match.end).bytes;
    break;
  }
  return match;
}

}  // namespace artery::codec
