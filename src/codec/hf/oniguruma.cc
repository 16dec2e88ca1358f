// From Oniguruma's words to PCRE2's: the two differ in what some escapes mean (Oniguruma's doc/RE,
// Ruby syntax, as the Hugging Face library uses it; pcre2pattern(3)).

#include <algorithm>
#include <array>
#include <string>

#include "codec/hf/regex.h"

namespace artery::codec {
namespace {

constexpr std::string_view kSpaces =
    R"(\x{9}-\x{d}\x{20}\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";
constexpr std::string_view kWord = R"(\p{L}\p{M}\p{N}\p{Pc})";
constexpr std::string_view kHex = "0-9A-Fa-f";

// PCRE2 takes a bare script name for Script_Extensions, Oniguruma for Script.
constexpr std::array<std::string_view, 11> kScripts{
    "Han",
    "Hiragana",
    "Katakana",
    "Hangul",
    "Latin",
    "Cyrillic",
    "Greek",
    "Arabic",
    "Hebrew",
    "Thai",
    "Devanagari",
};

class Rewriter {
 public:
  explicit Rewriter(std::string_view pattern) : in_(pattern) {}

  Result<std::string> run() {
    while (pos_ < in_.size()) {
      const char c = in_[pos_];
      if (c == '\\') {
        TRY(escape(false));
      } else if (c == '[') {
        TRY(char_class());
      } else if (c == '(') {
        TRY(group());
      } else if (c == '}' && pos_ + 1 < in_.size() && in_[pos_ + 1] == '+') {
        // Possessive to PCRE2, a repeated repetition to Ruby.
        return fail_here("'}+' means different things to different engines");
      } else {
        out_ += c;
        ++pos_;
      }
    }
    return std::move(out_);
  }

 private:
  tl::unexpected<Error> fail_here(std::string_view why) const {
    return fail(Code::kUnsupported, "regular expression, byte {}: {}", pos_, why);
  }

  Result<> set(bool in_class, bool negated, std::string_view members) {
    if (in_class && negated) return fail_here("a negated escape inside a class is not supported");
    if (!in_class) out_ += negated ? "[^" : "[";
    out_ += members;
    if (!in_class) out_ += ']';
    return {};
  }

  Result<> property() {
    const std::size_t close = in_.find('}', pos_);
    if (pos_ >= in_.size() || in_[pos_] != '{' || close == std::string_view::npos)
      return fail_here("\\p needs a name in braces");
    std::string_view name = in_.substr(pos_ + 1, close - pos_ - 1);
    out_ += '{';
    if (name.starts_with('^')) {
      out_ += '^';
      name.remove_prefix(1);
    }
    if (std::ranges::find(kScripts, name) != kScripts.end()) out_ += "sc:";
    out_ += name;
    out_ += '}';
    pos_ = close + 1;
    return {};
  }

  // \uHHHH
  Result<> code_point() {
    constexpr std::size_t kDigits = 4;
    const std::string_view digits = in_.substr(pos_, kDigits);
    const bool hex = digits.size() == kDigits &&
                     digits.find_first_not_of("0123456789abcdefABCDEF") == std::string_view::npos;
    if (!hex) return fail_here("\\u needs four hexadecimal digits");
    out_ += "\\x{";
    out_ += digits;
    out_ += '}';
    pos_ += kDigits;
    return {};
  }

  Result<> escape(bool in_class) {
    if (++pos_ >= in_.size()) return fail_here("a backslash ends the pattern");
    const char c = in_[pos_++];
    switch (c) {
      case 's':
      case 'S':
        return set(in_class, c == 'S', kSpaces);
      case 'w':
      case 'W':
        return set(in_class, c == 'W', kWord);
      case 'h':
      case 'H':
        return set(in_class, c == 'H', kHex);
      case 'v':
        out_ += "\\x{b}";
        return {};
      case 'u':
        return code_point();
      case 'p':
      case 'P':
        out_ += '\\';
        out_ += c;
        return property();
      default:
        break;
    }
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    constexpr std::string_view kSame = "dDntrfaexbBAzZG";
    if (letter && kSame.find(c) == std::string_view::npos)
      return fail_here("this escape is not supported");
    if (c >= '0' && c <= '9') return fail_here("references and octal escapes are not supported");
    out_ += '\\';
    out_ += c;
    return {};
  }

  Result<> char_class() {
    out_ += '[';
    ++pos_;
    if (pos_ < in_.size() && in_[pos_] == '^') {
      out_ += '^';
      ++pos_;
    }
    if (pos_ < in_.size() && in_[pos_] == ']')
      return fail_here("a class that begins with ']' is not supported");
    while (pos_ < in_.size() && in_[pos_] != ']') {
      const char c = in_[pos_];
      if (c == '\\') {
        TRY(escape(true));
        continue;
      }
      if (c == '[') return fail_here("a class inside a class is not supported");
      if (c == '&' && in_.substr(pos_, 2) == "&&")
        return fail_here("'&&' inside a class is not supported");
      out_ += c;
      ++pos_;
    }
    if (pos_ >= in_.size()) return fail_here("a class without its ']'");
    out_ += ']';
    ++pos_;
    return {};
  }

  // Non-capturing, options, look-around, atomic; nothing that names, recurses or calls.
  Result<> group() {
    const std::string_view rest = in_.substr(pos_ + 1);
    if (rest.starts_with('*')) return fail_here("'(*' is not supported");
    if (rest.starts_with('?')) {
      const char kind = rest.size() > 1 ? rest[1] : '\0';
      const bool behind = kind == '<' && rest.size() > 2 && (rest[2] == '=' || rest[2] == '!');
      constexpr std::string_view kKinds = ":=!>ix-";
      if (!behind && kKinds.find(kind) == std::string_view::npos)
        return fail_here("this kind of group is not supported");
    }
    out_ += '(';
    ++pos_;
    return {};
  }

  std::string_view in_;
  std::size_t pos_ = 0;
  std::string out_;
};

}  // namespace

Result<std::string> pcre2_of_oniguruma(std::string_view pattern) { return Rewriter(pattern).run(); }

}  // namespace artery::codec
