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
#include <vector>

#include "base/ids.h"
#include "codec/byte_trie.h"
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
  struct Token {
    TokenId id = -1;
    bool control = false;
  };
  // Which tokens begin with a byte.
  enum Beginning : std::uint8_t { kNothing = 0, kControls = 1, kOthers = 2 };

  SpecialMatch longest_at(
      std::string_view text, std::size_t pos, bool parse_control, std::size_t control_end
  ) const;
  void note_beginning(std::uint8_t byte, Beginning kind);
  // The first place at or after `pos` whose byte begins a token of the `wanted` kinds.
  std::size_t next_beginning(std::string_view text, std::size_t pos, std::uint8_t wanted) const;

  ByteTrie texts_;  // to places in tokens_
  std::vector<Token> tokens_;
  std::array<std::uint8_t, 256> beginnings_{};  // of Beginning
  struct FirstBytes {
    int count = 0;
    std::uint8_t last = 0;
  };
  std::array<FirstBytes, 4> first_bytes_{};  // by wanted kinds: different bytes in beginnings_
};

}  // namespace artery::codec
