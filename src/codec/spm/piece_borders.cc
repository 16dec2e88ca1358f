#include "codec/spm/piece_borders.h"

namespace artery::codec {
namespace {

constexpr std::uint32_t kSpaceMark = 0x2581;  // U+2581 stands for a space
constexpr std::uint32_t kInvalid = 0x110000;

}  // namespace

// The space mark shares the place of the space, which texts do not have by now, so that most pairs
// of a Latin text are in the small table.
PieceBorders::Char PieceBorders::char_at(std::string_view text, std::size_t pos) {
  const auto first = static_cast<std::uint8_t>(text[pos]);
  if (first < kAscii) return {first, 1};
  const Utf8Char c = decode_utf8(text, pos);
  if (c.state != Utf8State::kValid) return {kInvalid + first, 1};
  return {c.code == kSpaceMark ? std::uint32_t{' '} : static_cast<std::uint32_t>(c.code), c.bytes};
}

std::size_t PieceBorders::hashed(Char left, Char right) {
  const std::uint64_t pair = (std::uint64_t{left.code} << 32) | right.code;
  return (pair * 0x9E3779B97F4A7C15U >> 40) & (kHashedBits - 1);
}

bool PieceBorders::may_join(Char left, Char right) const {
  if (left.code < kAscii && right.code < kAscii) return ascii_[left.code * kAscii + right.code];
  const std::size_t bit = hashed(left, right);
  return (hashed_[bit / 64] >> (bit % 64) & 1) != 0;
}

void PieceBorders::add(std::string_view piece) {
  if (piece.empty()) return;
  Char left = char_at(piece, 0);
  for (std::size_t pos = left.bytes; pos < piece.size(); pos += left.bytes) {
    const Char right = char_at(piece, pos);
    if (left.code < kAscii && right.code < kAscii) {
      ascii_[left.code * kAscii + right.code] = true;
    } else {
      const std::size_t bit = hashed(left, right);
      hashed_[bit / 64] |= std::uint64_t{1} << (bit % 64);
    }
    left = right;
  }
}

std::size_t PieceBorders::part_bytes(std::string_view text) const {
  Char left = char_at(text, 0);
  std::size_t pos = left.bytes;
  while (pos < text.size()) {
    const Char right = char_at(text, pos);
    if (!may_join(left, right)) break;
    pos += right.bytes;
    left = right;
  }
  return pos;
}

}  // namespace artery::codec
