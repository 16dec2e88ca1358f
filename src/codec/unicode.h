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

// General categories, as fine as the split patterns of the families tell them apart.
enum class CharKind : std::uint8_t {
  kUpper,        // Lu, Lt
  kLower,        // Ll
  kOtherLetter,  // Lm, Lo
  kMark,         // \p{M}
  kNumber,       // \p{N}
  kSpace,        // \s, the White_Space property
  kPunctuation,  // \p{P}
  kSymbol,       // \p{S}
  kRest          // control, format, private, unassigned; bytes of invalid UTF-8
};

struct KindOfChar {
  CharKind kind = CharKind::kRest;
  std::uint8_t bytes = 1;
};

inline constexpr std::array<CharKind, 128> kAsciiKinds = [] {
  std::array<CharKind, 128> kinds{};
  for (std::size_t i = 0; i < kinds.size(); ++i) {
    const auto c = static_cast<char>(i);
    const bool symbol = c == '$' || c == '+' || c == '<' || c == '=' || c == '>' || c == '^' ||
                        c == '`' || c == '|' || c == '~';
    kinds[i] = c >= 'A' && c <= 'Z'              ? CharKind::kUpper
               : c >= 'a' && c <= 'z'            ? CharKind::kLower
               : c >= '0' && c <= '9'            ? CharKind::kNumber
               : c == ' ' || (c >= 9 && c <= 13) ? CharKind::kSpace
               : symbol                          ? CharKind::kSymbol
               : c > ' ' && i != 127             ? CharKind::kPunctuation
                                                 : CharKind::kRest;
  }
  return kinds;
}();

// The kind of the character at `pos` < text.size(). Invalid bytes count one by one.
KindOfChar kind_of_char(std::string_view text, std::size_t pos);
CharKind kind_of_code(char32_t code);
inline bool is_letter(CharKind kind) { return kind <= CharKind::kOtherLetter; }

// \w of Rust's regular expressions: letters, marks, decimal digits, letter numbers, connectors.
bool is_word_char(char32_t code);

// Canonical composition (NFC) of every valid stretch; invalid bytes stay where they are. Gives
// `text` itself when nothing changes, else a view of `buffer`. Time is linear up to the sort of one
// run of combining marks.
std::string_view to_nfc(std::string_view text, std::string& buffer);

// True for characters that no normal form changes or moves here, though later versions of Unicode
// say so: see kLeftAlone.
bool normal_forms_leave(char32_t code);

enum class NormalForm { kNfc, kNfd, kNfkc, kNfkd };
// The same for any form; not as fast as to_nfc for kNfc's usual texts.
std::string_view to_normal_form(NormalForm form, std::string_view text, std::string& buffer);

// Full lower case of one character (Unicode's, without conditions): one or two characters.
void append_lower(std::string& out, char32_t code);

}  // namespace artery::codec
