#pragma once
// The joining of one text by the scores of pieces: neighbours are joined while the joined text is a
// piece, best score first, of equal ones the leftmost. Private to the room. One per call, not
// shared.

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "codec/token_index.h"

namespace artery::codec {

class PieceMerger {
 public:
  struct Symbol {
    std::uint32_t begin, bytes;  // 0 bytes: joined to the one before
    std::uint32_t previous, next;
    TokenId id;  // -1: not a piece
  };
  static constexpr std::uint32_t kNone = 0xFFFFFFFF;

  // `order` [tokens]: the smaller, the earlier joined. Both outlive the merger.
  PieceMerger(const TokenIndex& pieces, const std::vector<std::uint32_t>& order)
      : pieces_(&pieces), order_(&order) {}

  // The symbols left of `text` (not empty, below 2^32 bytes), in a chain from symbol 0 along
  // `next`. Valid until the next call.
  const std::vector<Symbol>& merge(std::string_view text);
  // The same, in n log n for any length; merge() takes it for long texts.
  const std::vector<Symbol>& merge_by_heap(std::string_view text);

 private:
  struct Candidate {
    std::uint64_t key;  // order of the score, then place
    std::uint32_t bytes;
    TokenId id;
    bool operator>(const Candidate& other) const { return key > other.key; }
  };
  struct Pair {
    std::uint64_t order;  // kNoPair: not a piece
    TokenId id;
  };
  static constexpr std::uint64_t kNoPair = ~std::uint64_t{0};
  static constexpr std::size_t kShort = 32;

  void split_characters(std::string_view text);
  void rate(std::uint32_t at);
  Pair pair_at(std::uint32_t at) const;

  const TokenIndex* pieces_;
  const std::vector<std::uint32_t>* order_;
  std::string_view text_;
  std::vector<Symbol> symbols_;
  std::vector<Candidate> heap_;
};

}  // namespace artery::codec
