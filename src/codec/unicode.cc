#include "codec/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

namespace artery::codec {
namespace {

bool is_white_space(char32_t code) {
  return (code >= 0x09 && code <= 0x0D) || code == 0x20 || code == 0x85 || code == 0xA0 ||
         code == 0x1680 || (code >= 0x2000 && code <= 0x200A) || code == 0x2028 || code == 0x2029 ||
         code == 0x202F || code == 0x205F || code == 0x3000;
}

CharClass classify_code(char32_t code) {
  if (is_white_space(code)) return CharClass::kSpace;
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(code))) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
      return CharClass::kLetter;
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_NO:
      return CharClass::kNumber;
    default:
      return CharClass::kOther;
  }
}

// What may follow a lead byte: length of the character and the range of its second byte.
struct LeadByte {
  std::uint8_t bytes, low, high;
};

LeadByte lead_byte(std::uint8_t b) {
  if (b >= 0xC2 && b <= 0xDF) return {2, 0x80, 0xBF};
  if (b == 0xE0) return {3, 0xA0, 0xBF};
  if (b == 0xED) return {3, 0x80, 0x9F};
  if (b >= 0xE1 && b <= 0xEF) return {3, 0x80, 0xBF};
  if (b == 0xF0) return {4, 0x90, 0xBF};
  if (b >= 0xF1 && b <= 0xF3) return {4, 0x80, 0xBF};
  if (b == 0xF4) return {4, 0x80, 0x8F};
  return {0, 0, 0};
}

int combining_class(char32_t code) {
  return utf8proc_get_property(static_cast<utf8proc_int32_t>(code))->combining_class;
}

struct CodeRange {
  char32_t first, last;
};

// Characters that NFC neither changes nor joins to what stands before them, by ranges that hold for
// every version of Unicode: Latin up to U+02FF, Cyrillic letters, punctuation, arrows and
// mathematics, boxes and symbols, CJK punctuation, kana letters, unified ideographs, Hangul
// syllables, full-width forms, pictographs.
constexpr std::array<CodeRange, 14> kStable{{
    {0x0000, 0x02FF},
    {0x0400, 0x0482},
    {0x048A, 0x052F},
    {0x2010, 0x2027},
    {0x2030, 0x205E},
    {0x2190, 0x2328},
    {0x2500, 0x27BF},
    {0x3000, 0x3029},
    {0x3041, 0x3096},
    {0x30A1, 0x30FA},
    {0x3400, 0x4DBF},
    {0x4E00, 0x9FFF},
    {0xAC00, 0xD7A3},
    {0xFF01, 0xFF60},
}};

bool surely_stable(char32_t code) {
  if (code < 0x300 || (code >= 0x1F300 && code <= 0x1FAFF)) return true;
  for (const CodeRange& range : kStable)
    if (code <= range.last) return code >= range.first;
  return false;
}

// What the Hugging Face library (0.23), whose tables of normal forms are those of Unicode 9, leaves
// as it is: characters that later versions gave a decomposition or a combining class, and the one
// that composes to such. Found by asking it for each character. Models were trained on its output.
constexpr std::array<CodeRange, 45> kLeftAlone{{
    {0x7FD, 0x7FD},     {0x898, 0x89F},     {0x8CA, 0x8D3},     {0x9FE, 0x9FE},
    {0xC3C, 0xC3C},     {0xD3B, 0xD3C},     {0xEBA, 0xEBA},     {0x1715, 0x1715},
    {0x1ABF, 0x1ACE},   {0x1DF6, 0x1DFA},   {0x32FF, 0x32FF},   {0xA7F2, 0xA7F4},
    {0xA82C, 0xA82C},   {0xAB69, 0xAB69},   {0x10781, 0x107BA}, {0x10D24, 0x10D27},
    {0x10EAB, 0x10EAC}, {0x10EFD, 0x10EFF}, {0x10F46, 0x10F50}, {0x10F82, 0x10F85},
    {0x11070, 0x11070}, {0x1133B, 0x1133B}, {0x1145E, 0x1145E}, {0x11839, 0x1183A},
    {0x11930, 0x11930}, {0x11938, 0x11938}, {0x1193D, 0x1193E}, {0x11943, 0x11943},
    {0x119E0, 0x119E0}, {0x11A34, 0x11A34}, {0x11A47, 0x11A47}, {0x11A99, 0x11A99},
    {0x11D42, 0x11D42}, {0x11D44, 0x11D45}, {0x11D97, 0x11D97}, {0x11F41, 0x11F42},
    {0x16FF0, 0x16FF1}, {0x1E030, 0x1E06D}, {0x1E08F, 0x1E08F}, {0x1E130, 0x1E136},
    {0x1E2AE, 0x1E2AE}, {0x1E2EC, 0x1E2EF}, {0x1E4EC, 0x1E4EF}, {0x1F16C, 0x1F16C},
    {0x1FBF0, 0x1FBF9},
}};

void append_decomposed(char32_t code, bool compatible, std::vector<utf8proc_int32_t>& out) {
  if (normal_forms_leave(code)) {
    out.push_back(static_cast<utf8proc_int32_t>(code));
    return;
  }
  // The longest canonical decomposition has 4 code points; 18 is utf8proc's longest of any kind.
  std::array<utf8proc_int32_t, 18> part;
  int boundary = 0;
  const auto options = static_cast<utf8proc_option_t>(
      UTF8PROC_DECOMPOSE | UTF8PROC_STABLE | (compatible ? UTF8PROC_COMPAT : 0)
  );
  const utf8proc_ssize_t count = utf8proc_decompose_char(
      static_cast<utf8proc_int32_t>(code),
      part.data(),
      static_cast<utf8proc_ssize_t>(part.size()),
      options,
      &boundary
  );
  if (count < 0 || static_cast<std::size_t>(count) > part.size()) {
    out.push_back(static_cast<utf8proc_int32_t>(code));
    return;
  }
  out.insert(out.end(), part.begin(), part.begin() + count);
}

// utf8proc orders marks by exchanging neighbours, which takes the square of a run's length: a
// megabyte of marks would hold a worker for hours. Hence our own sort, of keys of class, place (the
// order must be stable) and code point.
void order_marks(std::vector<utf8proc_int32_t>& codes) {
  constexpr int kCodeBits = 21, kPlaceBits = 35;
  std::vector<std::uint64_t> keys;
  const auto write_back = [&](std::size_t end) {
    std::sort(keys.begin(), keys.end());
    for (std::size_t i = 0; i < keys.size(); ++i)
      codes[end - keys.size() + i] =
          static_cast<utf8proc_int32_t>(keys[i] & ((std::uint64_t{1} << kCodeBits) - 1));
    keys.clear();
  };
  for (std::size_t i = 0; i < codes.size(); ++i) {
    const auto code = static_cast<char32_t>(codes[i]);
    const auto mark_class =
        static_cast<std::uint64_t>(normal_forms_leave(code) ? 0 : combining_class(code));
    if (mark_class == 0) {
      write_back(i);
    } else {
      keys.push_back(
          (mark_class << (kCodeBits + kPlaceBits)) | (std::uint64_t{keys.size()} << kCodeBits) |
          code
      );
    }
  }
  write_back(codes.size());
}

// Nothing composes with a character that is left alone, so `codes` may begin with one.
void append_composed(std::span<utf8proc_int32_t> codes, bool composes, std::string& out) {
  const std::size_t alone = normal_forms_leave(static_cast<char32_t>(codes.front())) ? 1 : 0;
  if (alone == 1) append_utf8(out, static_cast<char32_t>(codes.front()));
  codes = codes.subspan(alone);
  auto count = static_cast<utf8proc_ssize_t>(codes.size());
  const auto options = static_cast<utf8proc_option_t>(UTF8PROC_COMPOSE | UTF8PROC_STABLE);
  if (composes) count = utf8proc_normalize_utf32(codes.data(), count, options);
  for (utf8proc_ssize_t i = 0; i < count; ++i)
    append_utf8(out, static_cast<char32_t>(codes[static_cast<std::size_t>(i)]));
}

// Appends a normal form of a valid text. `codes` is memory to be used again.
void append_form(
    NormalForm form, std::string_view text, std::vector<utf8proc_int32_t>& codes, std::string& out
) {
  const bool compatible = form == NormalForm::kNfkc || form == NormalForm::kNfkd;
  codes.clear();
  for (std::size_t pos = 0; pos < text.size();) {
    const Utf8Char c = decode_utf8(text, pos);
    append_decomposed(c.code, compatible, codes);
    pos += c.bytes;
  }
  order_marks(codes);
  const bool composes = form == NormalForm::kNfc || form == NormalForm::kNfkc;
  const auto end = codes.size();
  for (std::size_t begin = 0; begin < end;) {
    std::size_t stop = begin + 1;
    while (stop < end && !normal_forms_leave(static_cast<char32_t>(codes[stop]))) ++stop;
    append_composed(std::span(codes).subspan(begin, stop - begin), composes, out);
    begin = stop;
  }
}

// Past the ASCII characters at `pos`, or some of them.
std::size_t skip_ascii(std::string_view text, std::size_t pos) {
  constexpr std::uint64_t kHighBits = 0x8080808080808080U;
  for (std::uint64_t eight = 0; text.size() - pos >= sizeof eight; pos += sizeof eight) {
    std::memcpy(&eight, text.data() + pos, sizeof eight);
    if ((eight & kHighBits) != 0) break;
  }
  return pos;
}

// A part of a text that NFC may change and that depends on nothing around it: characters that are
// not surely stable, with the stable one before them, which they may join.
struct Unstable {
  std::size_t begin, end;  // begin == end: none
};

Unstable next_unstable(std::string_view text, std::size_t pos) {
  const auto unstable = [](const Utf8Char& c) {
    return c.state == Utf8State::kValid && !surely_stable(c.code);
  };
  std::size_t base = pos;  // where the character before `pos` begins, if it is valid
  while (true) {
    const std::size_t after = skip_ascii(text, pos);
    if (after > pos) base = after - 1;
    pos = after;
    if (pos >= text.size()) return {pos, pos};
    const Utf8Char c = decode_utf8(text, pos);
    if (unstable(c)) break;
    base = c.state == Utf8State::kValid ? pos : pos + c.bytes;
    pos += c.bytes;
  }
  while (pos < text.size()) {
    const Utf8Char c = decode_utf8(text, pos);
    if (!unstable(c)) break;
    pos += c.bytes;
  }
  return {base, pos};
}

}  // namespace

bool normal_forms_leave(char32_t code) {
  if (code < kLeftAlone.front().first) return false;
  for (const CodeRange& range : kLeftAlone)
    if (code <= range.last) return code >= range.first;
  return false;
}

Utf8Char decode_utf8(std::string_view text, std::size_t pos) {
  const auto byte_at = [&](std::size_t i) { return static_cast<std::uint8_t>(text[i]); };
  const std::uint8_t first = byte_at(pos);
  if (first < 0x80) return {first, 1, Utf8State::kValid};
  const LeadByte lead = lead_byte(first);
  if (lead.bytes == 0) return {0, 1, Utf8State::kInvalid};
  char32_t code = first & (0x7FU >> lead.bytes);
  for (std::uint8_t i = 1; i < lead.bytes; ++i) {
    if (pos + i >= text.size()) return {0, i, Utf8State::kCut};
    const std::uint8_t b = byte_at(pos + i);
    const bool fits = i == 1 ? b >= lead.low && b <= lead.high : (b & 0xC0) == 0x80;
    if (!fits) return {0, i, Utf8State::kInvalid};
    code = (code << 6) | (b & 0x3FU);
  }
  return {code, lead.bytes, Utf8State::kValid};
}

void append_utf8(std::string& out, char32_t code) {
  const auto put = [&](char32_t b) { out.push_back(static_cast<char>(b)); };
  if (code < 0x80) {
    put(code);
  } else if (code < 0x800) {
    put(0xC0 | (code >> 6));
    put(0x80 | (code & 0x3F));
  } else if (code < 0x10000) {
    put(0xE0 | (code >> 12));
    put(0x80 | ((code >> 6) & 0x3F));
    put(0x80 | (code & 0x3F));
  } else {
    put(0xF0 | (code >> 18));
    put(0x80 | ((code >> 12) & 0x3F));
    put(0x80 | ((code >> 6) & 0x3F));
    put(0x80 | (code & 0x3F));
  }
}

ClassifiedChar classify(std::string_view text, std::size_t pos) {
  const auto first = static_cast<std::uint8_t>(text[pos]);
  if (first < 0x80) return {kAsciiClasses[first], 1};
  const Utf8Char c = decode_utf8(text, pos);
  if (c.state != Utf8State::kValid) return {CharClass::kOther, 1};
  return {classify_code(c.code), c.bytes};
}

bool is_punctuation(char32_t code) {
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(code))) {
    case UTF8PROC_CATEGORY_PC:
    case UTF8PROC_CATEGORY_PD:
    case UTF8PROC_CATEGORY_PS:
    case UTF8PROC_CATEGORY_PE:
    case UTF8PROC_CATEGORY_PI:
    case UTF8PROC_CATEGORY_PF:
    case UTF8PROC_CATEGORY_PO:
      return true;
    default:
      return false;
  }
}

std::string_view to_nfc(std::string_view text, std::string& buffer) {
  Unstable part = next_unstable(text, 0);
  if (part.begin == part.end) return text;
  buffer.clear();
  buffer.reserve(text.size());
  std::vector<utf8proc_int32_t> codes;
  std::size_t done = 0;
  while (part.begin != part.end) {
    buffer += text.substr(done, part.begin - done);
    append_form(NormalForm::kNfc, text.substr(part.begin, part.end - part.begin), codes, buffer);
    done = part.end;
    part = next_unstable(text, done);
  }
  buffer += text.substr(done);
  return buffer;
}

std::string_view to_normal_form(NormalForm form, std::string_view text, std::string& buffer) {
  if (form == NormalForm::kNfc) return to_nfc(text, buffer);
  const auto high = [](char c) { return (static_cast<unsigned char>(c) & 0x80) != 0; };
  if (std::none_of(text.begin(), text.end(), high)) return text;
  buffer.clear();
  buffer.reserve(text.size());
  std::vector<utf8proc_int32_t> codes;
  for (std::size_t pos = 0; pos < text.size();) {
    std::size_t end = pos;
    for (; end < text.size();) {
      const Utf8Char c = decode_utf8(text, end);
      if (c.state != Utf8State::kValid) break;
      end += c.bytes;
    }
    append_form(form, text.substr(pos, end - pos), codes, buffer);
    if (end < text.size()) buffer += text[end++];
    pos = end;
  }
  return buffer;
}

void append_lower(std::string& out, char32_t code) {
  // The one character whose lower case is two.
  constexpr char32_t kCapitalIDot = 0x130;
  if (code == kCapitalIDot) {
    out += "i\xCC\x87";
    return;
  }
  append_utf8(out, static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(code))));
}

CharKind kind_of_code(char32_t code) {
  if (is_white_space(code)) return CharKind::kSpace;
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(code))) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LT:
      return CharKind::kUpper;
    case UTF8PROC_CATEGORY_LL:
      return CharKind::kLower;
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
      return CharKind::kOtherLetter;
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
      return CharKind::kMark;
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_NO:
      return CharKind::kNumber;
    case UTF8PROC_CATEGORY_SM:
    case UTF8PROC_CATEGORY_SC:
    case UTF8PROC_CATEGORY_SK:
    case UTF8PROC_CATEGORY_SO:
      return CharKind::kSymbol;
    default:
      return is_punctuation(code) ? CharKind::kPunctuation : CharKind::kRest;
  }
}

KindOfChar kind_of_char(std::string_view text, std::size_t pos) {
  const auto first = static_cast<std::uint8_t>(text[pos]);
  if (first < 0x80) return {kAsciiKinds[first], 1};
  const Utf8Char c = decode_utf8(text, pos);
  if (c.state != Utf8State::kValid) return {CharKind::kRest, 1};
  return {kind_of_code(c.code), c.bytes};
}

bool is_word_char(char32_t code) {
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(code))) {
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC:
      return true;
    default:
      break;
  }
  const bool joiner = code == 0x200C || code == 0x200D;
  const bool circled = (code >= 0x24B6 && code <= 0x24E9) || (code >= 0x1F130 && code <= 0x1F189);
  const CharKind kind = kind_of_code(code);
  return joiner || circled || is_letter(kind) || kind == CharKind::kMark;
}

}  // namespace artery::codec
