#include "codec/special_tokens.h"

#include <cstring>

namespace artery::codec {

void SpecialTokens::add(std::string_view text, TokenId id, bool control) {
  if (text.empty()) return;
  note_beginning(static_cast<std::uint8_t>(text[0]), control ? kControls : kOthers);
  if (texts_.add(text, static_cast<TokenId>(tokens_.size()))) tokens_.push_back({id, control});
}

void SpecialTokens::note_beginning(std::uint8_t byte, Beginning kind) {
  const std::uint8_t before = beginnings_[byte];
  beginnings_[byte] = static_cast<std::uint8_t>(before | kind);
  for (std::size_t wanted = 1; wanted < first_bytes_.size(); ++wanted) {
    if ((before & wanted) != 0 || (kind & wanted) == 0) continue;
    ++first_bytes_[wanted].count;
    first_bytes_[wanted].last = byte;
  }
}

SpecialMatch SpecialTokens::longest_at(
    std::string_view text, std::size_t pos, bool parse_control, std::size_t control_end
) const {
  SpecialMatch best{text.size(), text.size(), -1};
  std::uint32_t node = texts_.first(static_cast<std::uint8_t>(text[pos]));
  for (std::size_t end = pos + 1; node != ByteTrie::kNone; ++end) {
    if (const TokenId at = texts_.id(node); at >= 0) {
      const Token& here = tokens_[static_cast<std::size_t>(at)];
      if (!here.control || (parse_control && end <= control_end)) best = {pos, end, here.id};
    }
    if (end == text.size()) break;
    node = texts_.next(node, static_cast<std::uint8_t>(text[end]));
  }
  return best;
}

std::size_t SpecialTokens::next_beginning(
    std::string_view text, std::size_t pos, std::uint8_t wanted
) const {
  const FirstBytes& first = first_bytes_[wanted];
  if (first.count == 0 || pos >= text.size()) return text.size();
  // In most vocabularies they all begin with the same byte, and the library finds that quickly.
  if (first.count == 1) {
    const void* found = std::memchr(text.data() + pos, first.last, text.size() - pos);
    if (found == nullptr) return text.size();
    return static_cast<std::size_t>(static_cast<const char*>(found) - text.data());
  }
  while (pos < text.size() && (beginnings_[static_cast<std::uint8_t>(text[pos])] & wanted) == 0)
    ++pos;
  return pos;
}

SpecialMatch SpecialTokens::find(
    std::string_view text, std::size_t from, bool parse_control, std::span<const ByteRange> literal
) const {
  const auto wanted = static_cast<std::uint8_t>(parse_control ? kControls | kOthers : kOthers);
  std::size_t range = 0;
  for (std::size_t pos = from; (pos = next_beginning(text, pos, wanted)) < text.size(); ++pos) {
    while (range < literal.size() &&
           (literal[range].end <= pos || literal[range].end <= literal[range].begin))
      ++range;
    // A control token that starts here must end where the next literal range begins.
    const std::size_t control_end = range < literal.size() ? literal[range].begin : text.size();
    const SpecialMatch match = longest_at(text, pos, parse_control, control_end);
    if (match.id >= 0) return match;
  }
  return {text.size(), text.size(), -1};
}

}  // namespace artery::codec
