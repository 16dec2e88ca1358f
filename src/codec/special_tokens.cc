#include "codec/special_tokens.h"

namespace artery::codec {
namespace {

std::uint64_t edge_key(std::uint32_t node, std::uint8_t byte) {
  return (std::uint64_t{node} << 8) | byte;
}

}  // namespace

void SpecialTokens::add(std::string_view text, TokenId id, bool control) {
  if (text.empty()) return;
  std::uint32_t node = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<std::uint8_t>(text[i]);
    std::uint32_t& child = i == 0 ? roots_[byte] : edges_[edge_key(node, byte)];
    if (child == 0) {
      child = static_cast<std::uint32_t>(nodes_.size());
      nodes_.emplace_back();
    }
    node = child;
  }
  if (nodes_[node].id < 0) nodes_[node] = Node{id, control};
}

SpecialMatch SpecialTokens::longest_at(
    std::string_view text, std::size_t pos, bool parse_control, std::size_t control_end
) const {
  SpecialMatch best{text.size(), text.size(), -1};
  std::uint32_t node = roots_[static_cast<std::uint8_t>(text[pos])];
  for (std::size_t end = pos + 1; node != 0; ++end) {
    const Node& here = nodes_[node];
    if (here.id >= 0 && (!here.control || (parse_control && end <= control_end)))
      best = {pos, end, here.id};
    if (end == text.size()) break;
    const auto edge = edges_.find(edge_key(node, static_cast<std::uint8_t>(text[end])));
    node = edge == edges_.end() ? 0 : edge->second;
  }
  return best;
}

SpecialMatch SpecialTokens::find(
    std::string_view text, std::size_t from, bool parse_control, std::span<const ByteRange> literal
) const {
  std::size_t range = 0;
  for (std::size_t pos = from; pos < text.size(); ++pos) {
    if (roots_[static_cast<std::uint8_t>(text[pos])] == 0) continue;
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
