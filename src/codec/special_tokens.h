#pragma once
// Finds tokens that are matched as whole texts before any merging: control tokens (where asked for)
// and user-defined ones (always). Leftmost first, of those the longest. Immutable after
// construction, any thread; a search costs a table look-up at most places and never more than the
// longest such token at one.

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/ids.h"
#include "codec/tokenizer.h"

namespace artery::codec {

struct SpecialMatch {
  std::size_t begin = 0, end = 0;
  TokenId id = -1;  // -1: none, begin and end are the text's end
};

class SpecialTokens {
 public:
  // Empty texts are ignored; of equal ones the first added stays.
  void add(std::string_view text, TokenId id, bool control);

  // The first match at or after `from`. Control tokens only with `parse_control`, and none that
  // overlaps a range of `literal` (ascending, disjoint; those that end before `from` may be left
  // out).
  SpecialMatch find(
      std::string_view text,
      std::size_t from,
      bool parse_control,
      std::span<const ByteRange> literal
  ) const;

 private:
  struct Node {
    TokenId id = -1;
    bool control = false;
  };
  SpecialMatch longest_at(
      std::string_view text, std::size_t pos, bool parse_control, std::size_t control_end
  ) const;

  // A trie. The root's children are in a table, since most searches end there; the others are keyed
  // by node and byte.
  std::vector<Node> nodes_ = {Node{}};
  std::array<std::uint32_t, 256> roots_{};
  std::unordered_map<std::uint64_t, std::uint32_t> edges_;
};

}  // namespace artery::codec
