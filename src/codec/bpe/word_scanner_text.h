#pragma once
// What the word scanners share: characters of a text by class, and the alternatives that all the
// families' patterns have. Private to the room. Pure functions, any thread.

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "codec/unicode.h"

namespace artery::codec::scan {

struct Text {
  const char* end;

  ClassifiedChar at(const char* p) const {
    const auto byte = static_cast<std::uint8_t>(*p);
    if (byte < 0x80) return {kAsciiClasses[byte], 1};
    return classify(std::string_view(p, static_cast<std::size_t>(end - p)), 0);
  }

  template <CharClass kWanted>
  const char* run_end(const char* p) const {
    while (p != end) {
      const ClassifiedChar c = at(p);
      if (c.char_class != kWanted) break;
      p += c.bytes;
    }
    return p;
  }

  const char* run_end(const char* p, CharClass wanted) const {
    if (wanted == CharClass::kLetter) return run_end<CharClass::kLetter>(p);
    if (wanted == CharClass::kOther) return run_end<CharClass::kOther>(p);
    return run_end<CharClass::kNumber>(p);
  }
};

inline bool is_line_end(char c) { return c == '\r' || c == '\n'; }

// Past 's 't 're 've 'm 'll 'd at `p`, which is an apostrophe; nullptr when there is none.
template <bool kIgnoreCase>
const char* contraction(const Text& text, const char* p) {
  const auto letter = [&](const char* at) {
    if (at >= text.end) return '\0';
    return kIgnoreCase && *at >= 'A' && *at <= 'Z' ? static_cast<char>(*at - 'A' + 'a') : *at;
  };
  const char first = letter(p + 1);
  if (first == 's' || first == 't' || first == 'm' || first == 'd') return p + 2;
  if (first == 'r' || first == 'v' || first == 'l') {
    const char second = letter(p + 2);
    if (second == (first == 'l' ? 'l' : 'e')) return p + 3;
  }
  // U+017F, the long s, is an s to a pattern that ignores case.
  if (kIgnoreCase && text.end - p >= 3 && p[1] == '\xC5' && p[2] == '\xBF') return p + 3;
  return nullptr;
}

// \s+(?!\S)|\s+: all of a run that ends the text, else all but its last character, else that one.
// kNumbersEnd: a number ends the text too, because it was cut off before.
template <bool kNumbersEnd>
const char* spaces_end(const Text& text, const char* begin) {
  const char* last = begin;
  const char* p = begin;
  while (p != text.end) {
    const ClassifiedChar c = text.at(p);
    if (c.char_class != CharClass::kSpace) {
      if (kNumbersEnd && c.char_class == CharClass::kNumber) return p;
      return last == begin ? p : last;
    }
    last = p;
    p += c.bytes;
  }
  return p;
}

// Past the last line end of the run of spaces at `p`; nullptr when it has none.
inline const char* lines_end(const Text& text, const char* p) {
  const char* after = nullptr;
  while (p != text.end) {
    const ClassifiedChar c = text.at(p);
    if (c.char_class != CharClass::kSpace) break;
    p += c.bytes;
    if (is_line_end(p[-1])) after = p;
  }
  return after;
}

}  // namespace artery::codec::scan
