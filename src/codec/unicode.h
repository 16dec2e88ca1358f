#pragma once
// UTF-8 and the few facts of Unicode that tokenizers need. Owns nothing, pure functions, any
// thread. Text from clients may be any bytes: nothing here assumes valid UTF-8.

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace artery::codec {

enum class Utf8State : std::uint8_t {
  kValid,
  kInvalid,  // `bytes` is a maximal subpart (The Unicode Standard, 3.9, definition D93b)
  kCut       // a good beginning, but the text ends before the character does
};

struct Utf8Char {
  char32_t code = 0;  // 0 unless valid
  std::uint8_t bytes = 0;
  Utf8State state = Utf8State::kInvalid;
};

// The character at `pos` < text.size(). Well-formed as in table 3-7: no surrogates, no overlong
// forms, at most U+10FFFF.
Utf8Char decode_utf8(std::string_view text, std::size_t pos);

void append_utf8(std::string& out, char32_t code);

enum class CharClass : std::uint8_t {
  kLetter,  // \p{L}
  kNumber,  // \p{N}
  kSpace,   // \s, the White_Space property
  kOther    // everything else, bytes of invalid UTF-8 included
};

struct ClassifiedChar {
  CharClass char_class = CharClass::kOther;
  std::uint8_t bytes = 1;
};

inline constexpr std::array<CharClass, 128> kAsciiClasses = [] {
  std::array<CharClass, 128> classes{};
  for (std::size_t i = 0; i < classes.size(); ++i) {
    const bool letter = (i >= 'a' && i <= 'z') || (i >= 'A' && i <= 'Z');
    classes[i] = letter                            ? CharClass::kLetter
                 : i >= '0' && i <= '9'            ? CharClass::kNumber
                 : i == ' ' || (i >= 9 && i <= 13) ? CharClass::kSpace
                                                   : CharClass::kOther;
  }
  return classes;
}();

// The class of the character at `pos` < text.size(). Invalid bytes count one by one.
ClassifiedChar classify(std::string_view text, std::size_t pos);

// \p{P}.
bool is_punctuation(char32_t code);

// Canonical composition (NFC) of every valid stretch; invalid bytes stay where they are. Gives
// `text` itself when nothing changes, else a view of `buffer`. Time is linear up to the sort of one
// run of combining marks.
std::string_view to_nfc(std::string_view text, std::string& buffer);

}  // namespace artery::codec
