#pragma once
// Word scanners of the patterns that tell more than letters, numbers and spaces apart: o200k
// (gpt-oss), Tekken (Mistral) and DeepSeek V3. For word_scanner.h; the patterns are in
// pre_tokenizer.h. Pure functions, any thread; linear, no recursion, no allocation.

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "codec/bpe/word_scanner_text.h"
#include "codec/unicode.h"

namespace artery::codec::scan {

inline KindOfChar kind_at(const Text& text, const char* p) {
  const auto byte = static_cast<std::uint8_t>(*p);
  if (byte < 0x80) return {kAsciiKinds[byte], 1};
  return kind_of_char(std::string_view(p, static_cast<std::size_t>(text.end - p)), 0);
}

inline bool is_caseless(CharKind kind) {
  return kind == CharKind::kOtherLetter || kind == CharKind::kMark;
}

// [^\r\n\p{L}\p{N}]
inline bool may_precede_letters(const char* p, CharKind kind) {
  return !is_letter(kind) && kind != CharKind::kNumber && !is_line_end(*p);
}

// [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+ at `p`, else
// [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*; nullptr when neither matches.
// `only_capitals`: it took the second. The first, after its greedy run of capitals, gives back
// until a caseless character is left for its second part: so it ends behind the last of those.
struct CasedRun {
  const char* end = nullptr;
  bool only_capitals = false;
};
inline CasedRun cased_run(const Text& text, const char* p) {
  const char* after_caseless = nullptr;
  const char* const begin = p;
  while (p != text.end) {
    const KindOfChar c = kind_at(text, p);
    if (c.kind != CharKind::kUpper && !is_caseless(c.kind)) {
      if (c.kind != CharKind::kLower) break;
      do {
        p += kind_at(text, p).bytes;
        if (p == text.end) break;
        const CharKind next = kind_at(text, p).kind;
        if (next != CharKind::kLower && !is_caseless(next)) break;
      } while (true);
      return {p, false};
    }
    p += c.bytes;
    if (is_caseless(c.kind)) after_caseless = p;
  }
  if (after_caseless != nullptr) return {after_caseless, false};
  return p == begin ? CasedRun{} : CasedRun{p, true};
}

// The two alternatives with letters. The optional character before them may be a mark, which then
// may be the caseless character that the first alternative needs.
inline const char* cased_word(const Text& text, const char* p) {
  const KindOfChar first = kind_at(text, p);
  if (!may_precede_letters(p, first.kind))
    return is_letter(first.kind) ? cased_run(text, p).end : nullptr;
  const CasedRun run = cased_run(text, p + first.bytes);
  const bool mark = first.kind == CharKind::kMark;
  if (mark && (run.end == nullptr || run.only_capitals)) return p + first.bytes;
  return run.end;
}

// kO200k with kDigits 3 and contractions, kTekken with 1 and none.
template <int kDigits, bool kContractions>
const char* o200k_end(const Text& text, const char* p) {
  if (const char* end = cased_word(text, p)) {
    if (kContractions && end != text.end && *end == '\'')
      if (const char* after = contraction<true>(text, end)) return after;
    return end;
  }
  const ClassifiedChar first = text.at(p);
  const char* second = p + first.bytes;
  if (first.char_class == CharClass::kNumber) {
    for (int i = 1; i < kDigits && second != text.end; ++i) {
      const ClassifiedChar c = text.at(second);
      if (c.char_class != CharClass::kNumber) break;
      second += c.bytes;
    }
    return second;
  }
  const CharClass next = second != text.end ? text.at(second).char_class : CharClass::kSpace;
  if (first.char_class == CharClass::kOther || (*p == ' ' && next == CharClass::kOther)) {
    const char* end = text.run_end<CharClass::kOther>(second);
    while (end != text.end && (is_line_end(*end) || *end == '/')) ++end;
    return end;
  }
  if (const char* end = lines_end(text, p)) return end;
  return spaces_end<false>(text, p);
}

// [\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]: bytes of the character at `p`, 0 when it is another.
inline std::size_t cjk_bytes(const Text& text, const char* p) {
  if (static_cast<std::uint8_t>(*p) < 0xE3 || static_cast<std::uint8_t>(*p) > 0xE9) return 0;
  const Utf8Char c = decode_utf8({p, static_cast<std::size_t>(text.end - p)}, 0);
  const bool inside =
      (c.code >= 0x4E00 && c.code <= 0x9FA5) || (c.code >= 0x3040 && c.code <= 0x30FF);
  return inside ? c.bytes : 0;
}

inline bool is_ascii_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
inline bool is_sign(CharKind kind) {
  return kind == CharKind::kPunctuation || kind == CharKind::kSymbol;
}
inline bool is_letter_or_mark(CharKind kind) { return is_letter(kind) || kind == CharKind::kMark; }

// The third pattern of DeepSeek V3 at `p`; nullptr where it does not match.
inline const char* deepseek_match(const Text& text, const char* p) {
  const KindOfChar first = kind_at(text, p);
  const char* second = p + first.bytes;
  const auto letters_end = [&](const char* at) {
    while (at != text.end) {
      const KindOfChar c = kind_at(text, at);
      if (!is_letter_or_mark(c.kind)) break;
      at += c.bytes;
    }
    return at;
  };
  const auto signs_end = [&](const char* at) {
    while (at != text.end) {
      const KindOfChar c = kind_at(text, at);
      if (!is_sign(c.kind)) break;
      at += c.bytes;
    }
    while (at != text.end && is_line_end(*at)) ++at;
    return at;
  };
  if (is_sign(first.kind)) {
    if (first.bytes > 1 || second == text.end || !is_ascii_letter(*second)) return signs_end(p);
    while (second != text.end && is_ascii_letter(*second)) ++second;
    return second;
  }
  if (is_letter(first.kind)) return letters_end(second);
  const CharKind next = second != text.end ? kind_at(text, second).kind : CharKind::kRest;
  if (is_letter_or_mark(next) && !is_line_end(*p)) return letters_end(second);
  if (first.kind == CharKind::kMark) return second;
  if (*p == ' ' && is_sign(next)) return signs_end(second);
  if (first.kind != CharKind::kSpace) return nullptr;
  if (const char* end = lines_end(text, p)) return end;
  return spaces_end<false>(text, p);
}

// Calls visit with the words of kDeepSeekV3: numbers, CJK, then the third pattern in what is left,
// whose end counts as the end of the text.
template <typename Visit>
void deepseek_words(std::string_view all, Visit& visit) {
  const Text whole{all.data() + all.size()};
  const auto give = [&](const char* begin, const char* end) {
    if (begin != end) visit(std::string_view(begin, static_cast<std::size_t>(end - begin)));
  };
  const auto stretch_end = [&](const char* p) {
    while (p != whole.end) {
      const ClassifiedChar c = whole.at(p);
      if (c.char_class == CharClass::kNumber || cjk_bytes(whole, p) > 0) break;
      p += c.bytes;
    }
    return p;
  };
  for (const char* p = all.data(); p != whole.end;) {
    const char* begin = p;
    if (whole.at(p).char_class == CharClass::kNumber) {
      for (int i = 0; i < 3 && p != whole.end; ++i) {
        const ClassifiedChar c = whole.at(p);
        if (c.char_class != CharClass::kNumber) break;
        p += c.bytes;
      }
      give(begin, p);
      continue;
    }
    for (std::size_t bytes = 0; p != whole.end && (bytes = cjk_bytes(whole, p)) > 0;) p += bytes;
    if (p != begin) {
      give(begin, p);
      continue;
    }
    const Text stretch{stretch_end(p)};
    const char* gap = p;
    while (p != stretch.end) {
      const char* end = deepseek_match(stretch, p);
      if (end == nullptr) {
        p += kind_at(stretch, p).bytes;
        continue;
      }
      give(gap, p);
      give(p, end);
      gap = p = end;
    }
    give(gap, p);
  }
}

}  // namespace artery::codec::scan
