#pragma once
// The fast twin of split_words: the same words by the same rules, handed out one by one without a
// list of them, with a table for ASCII. Pure functions, any thread; linear, no recursion, no
// allocation (but for kDefault, whose rule needs several passes).

#include <cstddef>
#include <string_view>
#include <vector>

#include "codec/bpe/kind_scanner.h"
#include "codec/bpe/pre_tokenizer.h"
#include "codec/bpe/word_scanner_text.h"
#include "codec/unicode.h"

namespace artery::codec {

namespace scan {

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
    case SplitRule::kO200k:
      return scan::each_word(text, scan::o200k_end<3, true>, visit);
    case SplitRule::kTekken:
      return scan::each_word(text, scan::o200k_end<1, false>, visit);
    case SplitRule::kDeepSeekV3:
      return scan::deepseek_words(text, visit);
    case SplitRule::kDefault:
      std::vector<std::string_view> words;
      split_words(rule, text, words);
      for (std::string_view word : words) visit(word);
  }
}

}  // namespace artery::codec
