#pragma once
// Where a text of SentencePiece's BPE can be cut without changing a token: between two characters
// that stand side by side in no piece, since a merge over that place would make such a piece.
// Filled from the vocabulary; then immutable, any thread.

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "codec/unicode.h"

namespace artery::codec {

class PieceBorders {
 public:
  void add(std::string_view piece);

  // Bytes of the part of `text` (not empty) before the first sure border, all of it without one.
  std::size_t part_bytes(std::string_view text) const;

 private:
  static constexpr std::size_t kAscii = 128;
  static constexpr std::size_t kHashedBits = std::size_t{1} << 20;

  struct Char {
    std::uint32_t code;  // beyond Unicode for a byte of invalid UTF-8
    std::uint32_t bytes;
  };
  static Char char_at(std::string_view text, std::size_t pos);
  static std::size_t hashed(Char left, Char right);
  bool may_join(Char left, Char right) const;

  std::array<bool, kAscii * kAscii> ascii_{};
  // A pair may share its bit with another one: then a border is missed, and the part is longer.
  std::vector<std::uint64_t> hashed_ = std::vector<std::uint64_t>(kHashedBits / 64);
};

}  // namespace artery::codec
