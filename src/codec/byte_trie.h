#pragma once
// Texts to ids, byte by byte: which of them begin at a place. Immutable once filled, any thread.

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "codec/byte_hash.h"

namespace artery::codec {

class ByteTrie {
 public:
  static constexpr std::uint32_t kNone = 0;  // no node

  // Of equal texts the first added stays; true for it. `text` is not empty, `id` >= 0.
  bool add(std::string_view text, TokenId id);

  // The node of the one-byte text, of a node's text with `byte` behind it; kNone when no text
  // begins so.
  std::uint32_t first(std::uint8_t byte) const { return roots_[byte]; }
  std::uint32_t next(std::uint32_t node, std::uint8_t byte) const {
    const std::uint64_t key = edge_key(node, byte);
    for (std::size_t at = slot_of(key);; at = (at + 1) & (edges_.size() - 1))
      if (edges_[at].child == 0 || edges_[at].key == key) return edges_[at].child;
  }
  // The id of a node's text, -1 when that is only a beginning.
  TokenId id(std::uint32_t node) const { return ids_[node]; }

 private:
  struct Edge {
    std::uint64_t key = 0;    // node and byte; the root's edges are not here, so 0 is none
    std::uint32_t child = 0;  // 0: an empty slot
  };
  static std::uint64_t edge_key(std::uint32_t node, std::uint8_t byte) {
    return (std::uint64_t{node} << 8) | byte;
  }
  std::size_t slot_of(std::uint64_t key) const { return hash_number(key) & (edges_.size() - 1); }
  std::uint32_t& add_edge(std::uint32_t node, std::uint8_t byte);
  void grow_edges();

  // The root's children are in a table, since most searches end there; the others are keyed by node
  // and byte.
  std::array<std::uint32_t, 256> roots_{};
  std::vector<TokenId> ids_ = {-1};                  // [nodes]
  std::vector<Edge> edges_ = std::vector<Edge>(64);  // open addressing, at most half full
  std::size_t edge_count_ = 0;
};

}  // namespace artery::codec
