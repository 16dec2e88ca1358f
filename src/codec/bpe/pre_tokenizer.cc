#include "codec/bpe/pre_tokenizer.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <cstddef>
#include <string>
#include <utility>

#include "base/check.h"
#include "codec/hf/regex.h"
#include "codec/unicode.h"

namespace artery::codec {
namespace {

struct Family {
  std::string_view name;
  PreTokenizer pre;
};

// Which name means which pattern: the table of llama.cpp's llama-vocab.cpp, which wrote the names.
constexpr PreTokenizer kGpt2Family{SplitRule::kGpt2, false, false, false};
constexpr PreTokenizer kSmolLmFamily{SplitRule::kSmolLm, false, false, false};
constexpr PreTokenizer kQwen2Family{SplitRule::kQwen2, true, false, false};
constexpr PreTokenizer kLlama3Family{SplitRule::kLlama3, false, true, true};
constexpr PreTokenizer kLlama3Pattern{SplitRule::kLlama3, false, false, false};
constexpr PreTokenizer kO200kFamily{SplitRule::kO200k, false, true, false};
constexpr PreTokenizer kTekkenFamily{SplitRule::kTekken, false, true, true};
constexpr PreTokenizer kDeepSeekV3Family{SplitRule::kDeepSeekV3, false, false, true};
constexpr std::array kFamilies{
    Family{"default", {SplitRule::kDefault, false, false, false}},
    Family{"gpt-2", kGpt2Family},
    Family{"phi-2", kGpt2Family},
    Family{"mpt", kGpt2Family},
    Family{"olmo", kGpt2Family},
    Family{"jais", kGpt2Family},
    Family{"smollm", kSmolLmFamily},
    Family{"starcoder", kSmolLmFamily},
    Family{"refact", kSmolLmFamily},
    Family{"command-r", kSmolLmFamily},
    Family{"codeshell", kSmolLmFamily},
    Family{"qwen2", kQwen2Family},
    Family{"deepseek-r1-qwen", kQwen2Family},
    Family{"llama-bpe", kLlama3Family},
    Family{"llama3", kLlama3Family},
    Family{"llama-v3", kLlama3Family},
    Family{"dbrx", kLlama3Pattern},
    Family{"smaug-bpe", kLlama3Pattern},
    Family{"gpt-4o", kO200kFamily},
    Family{"tekken", kTekkenFamily},
    Family{"deepseek-v3", kDeepSeekV3Family},
};

// Past the run of one class that starts at `pos`.
std::size_t run_end(std::string_view text, std::size_t pos, CharClass wanted) {
  while (pos < text.size()) {
    const ClassifiedChar c = classify(text, pos);
    if (c.char_class != wanted) break;
    pos += c.bytes;
  }
  return pos;
}

// U+017F, the long s, is an s to a pattern that ignores case.
constexpr std::string_view kLongS = "\xC5\xBF";

// Length of 's 't 're 've 'm 'll 'd at `pos`, 0 when there is none.
std::size_t contraction(std::string_view text, std::size_t pos, bool ignore_case) {
  if (text[pos] != '\'') return 0;
  const auto lower = [&](std::size_t i) {
    if (i >= text.size()) return '\0';
    const char c = text[i];
    return ignore_case && c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  };
  const char first = lower(pos + 1);
  if (first == 's' || first == 't' || first == 'm' || first == 'd') return 2;
  const char second = lower(pos + 2);
  if ((first == 'r' || first == 'v') && second == 'e') return 3;
  if (first == 'l' && second == 'l') return 3;
  if (ignore_case && text.substr(pos + 1, 2) == kLongS) return 3;
  return 0;
}

// \s+(?!\S)|\s+ at a space: all of a run that ends the text, else all but its last character, else
// that one.
std::size_t match_spaces(std::string_view text, std::size_t pos) {
  std::size_t end = pos, last = pos;
  while (end < text.size()) {
    const ClassifiedChar c = classify(text, end);
    if (c.char_class != CharClass::kSpace) break;
    last = end;
    end += c.bytes;
  }
  return (end == text.size() || last == pos ? end : last) - pos;
}

std::size_t match_gpt2(std::string_view text, std::size_t pos) {
  if (const std::size_t length = contraction(text, pos, false)) return length;
  std::size_t start = pos;
  CharClass first = classify(text, pos).char_class;
  if (text[pos] == ' ' && pos + 1 < text.size()) {
    const CharClass next = classify(text, pos + 1).char_class;
    if (next != CharClass::kSpace) {
      start = pos + 1;
      first = next;
    }
  }
  if (first == CharClass::kSpace) return match_spaces(text, pos);
  return run_end(text, start, first) - pos;
}

bool is_line_end(char c) { return c == '\r' || c == '\n'; }

std::size_t match_number(std::string_view text, std::size_t pos, int digits_max) {
  std::size_t end = pos;
  for (int i = 0; i < digits_max && end < text.size(); ++i) {
    const ClassifiedChar c = classify(text, end);
    if (c.char_class != CharClass::kNumber) break;
    end += c.bytes;
  }
  return end - pos;
}

// \s*[\r\n]+ reaches to the last line end of the run of spaces. 0 when it has none.
std::size_t match_lines(std::string_view text, std::size_t pos) {
  std::size_t after_line_end = pos;
  for (std::size_t end = pos; end < text.size();) {
    const ClassifiedChar c = classify(text, end);
    if (c.char_class != CharClass::kSpace) break;
    end += c.bytes;
    if (is_line_end(text[end - 1])) after_line_end = end;
  }
  return after_line_end - pos;
}

std::size_t match_qwen2(std::string_view text, std::size_t pos, int digits_max) {
  if (const std::size_t length = contraction(text, pos, true)) return length;
  const ClassifiedChar first = classify(text, pos);
  if (first.char_class == CharClass::kLetter) return run_end(text, pos, CharClass::kLetter) - pos;
  if (first.char_class == CharClass::kNumber) return match_number(text, pos, digits_max);
  const std::size_t second = pos + first.bytes;
  const bool has_second = second < text.size();
  const CharClass next = has_second ? classify(text, second).char_class : CharClass::kSpace;
  if (next == CharClass::kLetter && !is_line_end(text[pos]))
    return run_end(text, second, CharClass::kLetter) - pos;
  const bool space_first = text[pos] == ' ' && next == CharClass::kOther;
  if (first.char_class == CharClass::kOther || space_first) {
    std::size_t end = run_end(text, space_first ? second : pos, CharClass::kOther);
    while (end < text.size() && is_line_end(text[end])) ++end;
    return end - pos;
  }
  if (const std::size_t length = match_lines(text, pos)) return length;
  return match_spaces(text, pos);
}

std::size_t match_marks(std::string_view text, std::size_t pos) {
  std::size_t end = pos;
  while (end < text.size()) {
    const Utf8Char c = decode_utf8(text, end);
    if (c.state != Utf8State::kValid) break;
    const bool symbol =
        c.code < 0x80 &&
        std::string_view("$+<=>^~|").find(static_cast<char>(c.code)) != std::string_view::npos;
    if (!symbol && !is_punctuation(c.code)) break;
    end += c.bytes;
  }
  return end - pos;
}

std::size_t match_three_digits(std::string_view text, std::size_t pos) {
  const auto digit = [&](std::size_t i) {
    return i < text.size() && text[i] >= '0' && text[i] <= '9';
  };
  return digit(pos) && digit(pos + 1) && digit(pos + 2) ? 3 : 0;
}

// Cuts `text` at the matches of one pattern; what lies between two matches stays one piece.
// `match(text, pos)` gives the length at `pos`, 0 for none, which must not need a long look.
template <typename Match>
void cut(std::string_view text, std::vector<std::string_view>& out, Match match) {
  std::size_t gap = 0;
  for (std::size_t pos = 0; pos < text.size();) {
    const std::size_t length = match(text, pos);
    if (length == 0) {
      pos += classify(text, pos).bytes;
      continue;
    }
    if (gap < pos) out.push_back(text.substr(gap, pos - gap));
    out.push_back(text.substr(pos, length));
    pos += length;
    gap = pos;
  }
  if (gap < text.size()) out.push_back(text.substr(gap));
}

template <typename Match>
std::vector<std::string_view> cut_all(const std::vector<std::string_view>& pieces, Match match) {
  std::vector<std::string_view> out;
  out.reserve(pieces.size());
  for (std::string_view piece : pieces) cut(piece, out, match);
  return out;
}

std::size_t match_one_number(std::string_view text, std::size_t pos) {
  return match_number(text, pos, 1);
}

std::size_t match_numbers(std::string_view text, std::size_t pos) {
  return run_end(text, pos, CharClass::kNumber) - pos;
}

}  // namespace

Result<PreTokenizer> find_pre_tokenizer(std::string_view pre) {
  if (pre.empty()) pre = "default";
  std::string known;
  for (const Family& family : kFamilies) {
    if (family.name == pre) return family.pre;
    known += known.empty() ? "" : ", ";
    known += family.name;
  }
  return fail(
      Code::kUnsupported,
      "tokenizer.ggml.pre '{}' is not supported by this build; it knows {}",
      pre,
      known
  );
}

std::vector<std::string_view> patterns_of(SplitRule rule) {
  switch (rule) {
    case SplitRule::kGpt2:
      return {R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)"};
    case SplitRule::kQwen2:
      return {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|)"
              R"( ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"};
    case SplitRule::kLlama3:
      return {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|)"
              R"( ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"};
    case SplitRule::kO200k:
      return {R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
              R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
              R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)"
              R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
              R"(\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)"};
    case SplitRule::kTekken:
      return {R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|)"
              R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|)"
              R"(\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)"};
    case SplitRule::kDeepSeekV3:
      return {
          R"(\p{N}{1,3})",
          "[\xE4\xB8\x80-\xE9\xBE\xA5\xE3\x81\x80-\xE3\x82\x9F\xE3\x82\xA0-\xE3\x83\xBF]+",
          "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|"
          "[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*|"
          "\\s*[\r\n]+|\\s+(?!\\S)|\\s+",
      };
    case SplitRule::kSmolLm:
    case SplitRule::kDefault:
      return {};
  }
  return {};
}

namespace {

std::vector<Regex> compile_patterns(SplitRule rule) {
  std::vector<Regex> regexes;
  for (std::string_view pattern : patterns_of(rule)) {
    Result<Regex> regex = Regex::compile(pattern);
    CHECK(regex.has_value());  // the patterns are our own
    regexes.push_back(regex.take());
  }
  return regexes;
}

const std::vector<Regex>& regexes_of(SplitRule rule) {
  static const std::vector<Regex> o200k = compile_patterns(SplitRule::kO200k);
  static const std::vector<Regex> tekken = compile_patterns(SplitRule::kTekken);
  static const std::vector<Regex> deepseek = compile_patterns(SplitRule::kDeepSeekV3);
  if (rule == SplitRule::kO200k) return o200k;
  return rule == SplitRule::kTekken ? tekken : deepseek;
}

// The matches of each pattern between those of the one before.
void split_by_patterns(
    SplitRule rule, std::string_view text, std::vector<std::string_view>& words
) {
  std::vector<std::string_view> pieces = {text};
  for (const Regex& regex : regexes_of(rule)) {
    std::vector<std::string_view> cut_pieces;
    for (std::string_view piece : pieces) {
      std::size_t gap = 0;
      regex.each_match(piece, [&](std::size_t begin, std::size_t end) {
        if (gap < begin) cut_pieces.push_back(piece.substr(gap, begin - gap));
        if (begin < end) cut_pieces.push_back(piece.substr(begin, end - begin));
        gap = end;
      });
      if (gap < piece.size()) cut_pieces.push_back(piece.substr(gap));
    }
    pieces = std::move(cut_pieces);
  }
  words.insert(words.end(), pieces.begin(), pieces.end());
}

}  // namespace

void split_words(SplitRule rule, std::string_view text, std::vector<std::string_view>& words) {
  switch (rule) {
    case SplitRule::kGpt2:
      cut(text, words, match_gpt2);
      return;
    case SplitRule::kQwen2:
      cut(text, words, [](auto t, auto pos) { return match_qwen2(t, pos, 1); });
      return;
    case SplitRule::kLlama3:
      cut(text, words, [](auto t, auto pos) { return match_qwen2(t, pos, 3); });
      return;
    case SplitRule::kO200k:
    case SplitRule::kTekken:
    case SplitRule::kDeepSeekV3:
      split_by_patterns(rule, text, words);
      return;
    case SplitRule::kSmolLm: {
      std::vector<std::string_view> pieces;
      cut(text, pieces, match_one_number);
      for (std::string_view piece : pieces) cut(piece, words, match_gpt2);
      return;
    }
    case SplitRule::kDefault: {
      std::vector<std::string_view> pieces;
      cut(text, pieces, match_marks);
      pieces = cut_all(cut_all(pieces, match_gpt2), match_numbers);
      for (std::string_view piece : pieces) cut(piece, words, match_three_digits);
      return;
    }
  }
}

}  // namespace artery::codec
