#include "codec/special_tokens.h"

#include <cstring>
#include <utility>

#include "codec/byte_hash.h"

namespace artery::codec {
namespace {

std::uint64_t edge_key(std::uint32_t node, std::uint8_t byte) {
  return (std::uint64_t{node} << 8) | byte;
}

std::size_t edge_slot(std::uint64_t key, std::size_t slots) {
  return hash_number(key) & (slots - 1);
}

}  // namespace

std::uint32_t SpecialTokens::child_of(std::uint32_t node, std::uint8_t byte) const {
  const std::uint64_t key = edge_key(node, byte);
  for (std::size_t at = edge_slot(key, edges_.size());; at = (at + 1) & (edges_.size() - 1))
    if (edges_[at].child == 0 || edges_[at].key == key) return edges_[at].child;
}

void SpecialTokens::grow_edges() {
  std::vector<Edge> old(edges_.size() * 2);
  std::swap(old, edges_);
  for (const Edge& edge : old) {
    if (edge.child == 0) continue;
    std::size_t at = edge_slot(edge.key, edges_.size());
    while (edges_[at].child != 0) at = (at + 1) & (edges_.size() - 1);
    edges_[at] = edge;
  }
}

std::uint32_t& SpecialTokens::add_child(std::uint32_t node, std::uint8_t byte) {
  if ((edge_count_ + 1) * 2 > edges_.size()) grow_edges();
  const std::uint64_t key = edge_key(node, byte);
  std::size_t at = edge_slot(key, edges_.size());
  while (edges_[at].child != 0 && edges_[at].key != key) at = (at + 1) & (edges_.size() - 1);
  if (edges_[at].child == 0) ++edge_count_;
  edges_[at].key = key;
  return edges_[at].child;
}

void SpecialTokens::add(std::string_view text, TokenId id, bool control) {
  if (text.empty()) return;
  std::uint32_t node = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<std::uint8_t>(text[i]);
    std::uint32_t& child = i == 0 ? roots_[byte] : add_child(node, byte);
    if (child == 0) {
      child = static_cast<std::uint32_t>(nodes_.size());
      nodes_.emplace_back();
    }
    node = child;
  }
  note_beginning(static_cast<std::uint8_t>(text[0]), control ? kControls : kOthers);
  if (nodes_[node].id < 0) nodes_[node] = Node{id, control};
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
  std::uint32_t node = roots_[static_cast<std::uint8_t>(text[pos])];
  for (std::size_t end = pos + 1; node != 0; ++end) {
    const Node& here = nodes_[node];
    if (here.id >= 0 && (!here.control || (parse_control && end <= control_end)))
      best = {pos, end, here.id};
    if (end == text.size()) break;
    node = child_of(node, static_cast<std::uint8_t>(text[end]));
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
