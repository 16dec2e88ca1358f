#pragma once
// The fast twin of split_words: the same words by the same rules, handed out one by one without a
// list of them, with a table for ASCII. Pure functions, any thread; linear, no recursion, no
// allocation (but for kDefault, whose rule needs several passes).

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "codec/bpe/pre_tokenizer.h"
#include "codec/unicode.h"

namespace artery::codec {

namespace scan {

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

// kGpt2, or with kSingleNumbers kSmolLm.
template <bool kSingleNumbers>
const char* gpt2_end(const Text& text, const char* p) {
  if (*p == '\'')
    if (const char* end = contraction<false>(text, p)) return end;
  ClassifiedChar first = text.at(p);
  const char* start = p;
  if (*p == ' ' && p + 1 != text.end) {
    const ClassifiedChar next = text.at(p + 1);
    const bool joins = next.char_class != CharClass::kSpace &&
                       !(kSingleNumbers && next.char_class == CharClass::kNumber);
    if (joins) {
      ++start;
      first = next;
    }
  }
  if (first.char_class == CharClass::kSpace) return spaces_end<kSingleNumbers>(text, p);
  if (kSingleNumbers && first.char_class == CharClass::kNumber) return start + first.bytes;
  return text.run_end(start + first.bytes, first.char_class);
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

// kQwen2 with kDigits 1, kLlama3 with 3.
template <int kDigits>
const char* qwen2_end(const Text& text, const char* p) {
  if (*p == '\'')
    if (const char* end = contraction<true>(text, p)) return end;
  const ClassifiedChar first = text.at(p);
  const char* second = p + first.bytes;
  if (first.char_class == CharClass::kLetter) return text.run_end<CharClass::kLetter>(second);
  if (first.char_class == CharClass::kNumber) {
    for (int i = 1; i < kDigits && second != text.end; ++i) {
      const ClassifiedChar c = text.at(second);
      if (c.char_class != CharClass::kNumber) break;
      second += c.bytes;
    }
    return second;
  }
  const CharClass next = second != text.end ? text.at(second).char_class : CharClass::kSpace;
  if (next == CharClass::kLetter && !is_line_end(*p))
    return text.run_end<CharClass::kLetter>(second);
  if (first.char_class == CharClass::kOther || (*p == ' ' && next == CharClass::kOther)) {
    const char* end = text.run_end<CharClass::kOther>(second);
    while (end != text.end && is_line_end(*end)) ++end;
    return end;
  }
  if (const char* end = lines_end(text, p)) return end;
  return spaces_end<false>(text, p);
}

template <typename End, typename Visit>
void each_word(std::string_view text, End word_end, Visit& visit) {
  const Text whole{text.data() + text.size()};
  for (const char* p = text.data(); p != whole.end;) {
    const char* end = word_end(whole, p);
    visit(std::string_view(p, static_cast<std::size_t>(end - p)));
    p = end;
  }
}

}  // namespace scan

// Calls visit(std::string_view) with each word of split_words(rule, text), in order.
template <typename Visit>
void for_each_word(SplitRule rule, std::string_view text, Visit visit) {
  switch (rule) {
    case SplitRule::kGpt2:
      return scan::each_word(text, scan::gpt2_end<false>, visit);
    case SplitRule::kSmolLm:
      return scan::each_word(text, scan::gpt2_end<true>, visit);
    case SplitRule::kQwen2:
      return scan::each_word(text, scan::qwen2_end<1>, visit);
    case SplitRule::kLlama3:
      return scan::each_word(text, scan::qwen2_end<3>, visit);
    case SplitRule::kDefault:
      std::vector<std::string_view> words;
      split_words(rule, text, words);
      for (std::string_view word : words) visit(word);
  }
}

}  // namespace artery::codec
