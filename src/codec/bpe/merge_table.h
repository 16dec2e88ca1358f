#pragma once
// Merges by rank: which two neighbouring tokens join to which third, and how early. And the joining
// of one word, in n log n. Immutable once filled, any thread.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/ids.h"
#include "codec/byte_hash.h"

namespace artery::codec {

class MergeTable {
 public:
  static constexpr std::uint32_t kNoRank = 0xFFFFFFFF;
  struct Merge {
    std::uint32_t rank = kNoRank;
    TokenId joined = -1;
  };

  explicit MergeTable(std::size_t merges_max);
  // Of a pair given twice the first stays. At most `merges_max` calls; ids are >= 0.
  void add(TokenId left, TokenId right, std::uint32_t rank, TokenId joined);
  Merge find(TokenId left, TokenId right) const {
    const std::uint64_t pair = pair_key(left, right);
    for (std::size_t at = slot_of(pair);; at = (at + 1) & mask_) {
      if (slots_[at].pair == pair) return slots_[at].merge;
      if (slots_[at].pair == kEmpty) return {};
    }
  }

 private:
  struct Slot {
    std::uint64_t pair = kEmpty;
    Merge merge;
  };
  static constexpr std::uint64_t kEmpty = ~std::uint64_t{0};
  static std::uint64_t pair_key(TokenId left, TokenId right) {
    return (std::uint64_t{static_cast<std::uint32_t>(left)} << 32) |
           static_cast<std::uint32_t>(right);
  }
  std::size_t slot_of(std::uint64_t pair) const { return hash_number(pair) & mask_; }
  std::vector<Slot> slots_;  // open addressing, a power of two, never full
  std::size_t mask_;
};

// Joins the tokens of one word until no pair is in the table: lowest rank first, of equal ranks the
// leftmost. Buffers are kept between words. One per call, not shared.
class WordMerger {
 public:
  explicit WordMerger(const MergeTable& table) : table_(&table) {}
  // `word` [symbols], fewer than 2^32; joined in place.
  void merge(std::vector<TokenId>& word) {
    word.size() <= kShort ? merge_short(word) : merge_by_heap(word);
  }

  // The two ways of merge(), with equal results: looking for the lowest rank anew for each merge,
  // for at most kShort symbols; and n log n for any number.
  static constexpr std::size_t kShort = 40;
  void merge_short(std::vector<TokenId>& word) const;
  void merge_by_heap(std::vector<TokenId>& word);

 private:
  struct Symbol {
    TokenId id;
    std::uint32_t previous, next;
    std::uint32_t rank;  // of the pair with `next`, kNoRank when it does not join or is gone
    TokenId joined;      // what that pair becomes
  };
  void rate(std::uint32_t at);

  const MergeTable* table_;
  std::vector<Symbol> symbols_;
  std::vector<std::uint64_t> heap_;  // rank, then place, smallest on top; stale entries are skipped
};

}  // namespace artery::codec
