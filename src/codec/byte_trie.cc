#include "codec/byte_trie.h"

#include <utility>

namespace artery::codec {

void ByteTrie::grow_edges() {
  std::vector<Edge> old(edges_.size() * 2);
  std::swap(old, edges_);
  for (const Edge& edge : old) {
    if (edge.child == 0) continue;
    std::size_t at = slot_of(edge.key);
    while (edges_[at].child != 0) at = (at + 1) & (edges_.size() - 1);
    edges_[at] = edge;
  }
}

std::uint32_t& ByteTrie::add_edge(std::uint32_t node, std::uint8_t byte) {
  if ((edge_count_ + 1) * 2 > edges_.size()) grow_edges();
  const std::uint64_t key = edge_key(node, byte);
  std::size_t at = slot_of(key);
  while (edges_[at].child != 0 && edges_[at].key != key) at = (at + 1) & (edges_.size() - 1);
  if (edges_[at].child == 0) ++edge_count_;
  edges_[at].key = key;
  return edges_[at].child;
}

bool ByteTrie::add(std::string_view text, TokenId id) {
  std::uint32_t node = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<std::uint8_t>(text[i]);
    std::uint32_t& child = i == 0 ? roots_[byte] : add_edge(node, byte);
    if (child == 0) {
      child = static_cast<std::uint32_t>(ids_.size());
      ids_.push_back(-1);
    }
    node = child;
  }
  if (ids_[node] >= 0) return false;
  ids_[node] = id;
  return true;
}

}  // namespace artery::codec
