#pragma once
// Drafts from the text itself (prompt lookup): where the last tokens of a text stood before, what
// followed then is proposed now. Costs no model; pays where text repeats, as in edited code. Facts:
// Saxena 2023, "Prompt Lookup Decoding"; vLLM's method "ngram" names the two lengths.
//
// One per choice, engine thread only. Reads the choice's tokens, which only grow: time per new
// token is constant, a proposal looks at a bounded number of earlier places.

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/ids.h"

namespace artery::engine {

class NgramIndex {
 public:
  // A proposal needs `match_min` equal tokens; of the places with more, the longest match up to
  // `match_max` wins, of equal ones the latest. 1 <= match_min <= match_max.
  NgramIndex(int match_min, int match_max);

  // `count` tokens: what followed the best earlier place of the end of `text`, and where that
  // reaches the end, the same again, as a text that goes round would. Empty when there is no such
  // place. Valid until the next call. `text` begins with the text of the call before.
  std::span<const TokenId> propose(std::span<const TokenId> text, int count);

 private:
  void extend(std::span<const TokenId> text);
  std::uint64_t hash_before(std::span<const TokenId> text, std::size_t end) const;

  const std::size_t match_min_;
  const std::size_t match_max_;
  // Places are ends: the n-gram is text[end - match_min, end).
  std::unordered_map<std::uint64_t, std::int32_t> last_;  // by hash of the n-gram
  std::vector<std::int32_t> before_;  // [end] the place before with the same hash, -1: none
  std::vector<TokenId> draft_;
};

}  // namespace artery::engine
