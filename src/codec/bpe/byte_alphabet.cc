#include "codec/bpe/byte_alphabet.h"

#include <array>
#include <cstddef>

#include "codec/unicode.h"

namespace artery::codec {
namespace {

constexpr std::size_t kCodesMax = 256 + 68;  // 68 bytes are not printable

struct Alphabet {
  std::array<char32_t, 256> code_of{};
  std::array<std::int16_t, kCodesMax> byte_of{};
};

constexpr Alphabet make_alphabet() {
  Alphabet a;
  for (auto& b : a.byte_of) b = -1;
  char32_t next = 256;
  for (std::size_t byte = 0; byte < 256; ++byte) {
    const bool printable =
        (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
    const char32_t code = printable ? static_cast<char32_t>(byte) : next++;
    a.code_of[byte] = code;
    a.byte_of[code] = static_cast<std::int16_t>(byte);
  }
  return a;
}

constexpr Alphabet kAlphabet = make_alphabet();

}  // namespace

std::string visible_byte(std::uint8_t byte) {
  std::string out;
  append_utf8(out, kAlphabet.code_of[byte]);
  return out;
}

void bytes_of_visible(std::string_view text, std::string& out) {
  out.clear();
  for (std::size_t pos = 0; pos < text.size();) {
    const Utf8Char c = decode_utf8(text, pos);
    const bool known =
        c.state == Utf8State::kValid && c.code < kCodesMax && kAlphabet.byte_of[c.code] >= 0;
    if (!known) {
      out = text;
      return;
    }
    out.push_back(static_cast<char>(kAlphabet.byte_of[c.code]));
    pos += c.bytes;
  }
}

std::string bytes_of_visible(std::string_view text) {
  std::string out;
  bytes_of_visible(text, out);
  return out;
}

}  // namespace artery::codec
