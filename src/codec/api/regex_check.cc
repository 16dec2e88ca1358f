// The grammar of regular expressions in JSON Schema as the official package's validator takes them:
// ECMAScript's, with look-around, Rust's inline flags and named groups, and counted repetitions one
// behind the other. Only whether an expression is one matters here; nothing is ever matched.

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <array>
#include <optional>
#include <unordered_set>
#include <vector>

#include "codec/api/schema_check.h"
#include "codec/unicode.h"

namespace artery::codec::api {
namespace {

constexpr std::uint64_t kMostRepeats = 2147483647;

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_alpha(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

std::optional<std::uint32_t> hex_digit(char c) {
  if (is_digit(c)) return static_cast<std::uint32_t>(c - '0');
  if (c >= 'a' && c <= 'f') return static_cast<std::uint32_t>(c - 'a' + 10);
  if (c >= 'A' && c <= 'F') return static_cast<std::uint32_t>(c - 'A' + 10);
  return std::nullopt;
}

// Long names of general categories, which PCRE2 does not know.
constexpr std::array<std::string_view, 38> kLongCategories = {
    "any",
    "ascii",
    "assigned",
    "letter",
    "casedletter",
    "uppercaseletter",
    "lowercaseletter",
    "titlecaseletter",
    "modifierletter",
    "otherletter",
    "mark",
    "nonspacingmark",
    "spacingmark",
    "enclosingmark",
    "number",
    "decimalnumber",
    "digit",
    "letternumber",
    "othernumber",
    "punctuation",
    "punct",
    "connectorpunctuation",
    "dashpunctuation",
    "openpunctuation",
    "closepunctuation",
    "initialpunctuation",
    "finalpunctuation",
    "otherpunctuation",
    "symbol",
    "mathsymbol",
    "currencysymbol",
    "modifiersymbol",
    "othersymbol",
    "separator",
    "spaceseparator",
    "lineseparator",
    "paragraphseparator",
    "other"
};

bool pcre2_knows(const std::string& property) {
  const std::string pattern = "\\p{" + property + "}";
  int error = 0;
  PCRE2_SIZE at = 0;
  pcre2_code* code = pcre2_compile(
      reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(), PCRE2_UTF, &error, &at, nullptr
  );
  pcre2_code_free(code);
  return code != nullptr;
}

// The inside of \p{...}.
bool is_property(std::string_view name) {
  if (name.starts_with('^')) name.remove_prefix(1);
  if (const std::size_t sign = name.find_first_of("=:"); sign != name.npos)
    name.remove_prefix(sign + 1);
  std::string bare;
  for (const char c : name) {
    if (c == ' ' || c == '_' || c == '-') continue;
    if (!is_alpha(c)) return false;
    bare += static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
  }
  if (bare.starts_with("is")) bare.erase(0, 2);
  if (bare.empty() || bare.size() > 40) return false;
  if (std::ranges::find(kLongCategories, bare) != kLongCategories.end()) return true;
  if (bare.size() <= 2) bare.front() = static_cast<char>(bare.front() - 'a' + 'A');
  return pcre2_knows(bare);
}

class RegexReader {
 public:
  explicit RegexReader(std::string_view text) : text_(text) {}

  bool read() {
    while (at_ < text_.size()) {
      if (!piece()) return false;
    }
    return open_.empty() && most_reference_ <= groups_;
  }

 private:
  // What stands before the place, for a quantifier.
  enum class Before { kNothing, kPiece, kRepeated };

  bool done() const { return at_ >= text_.size(); }
  bool take(char c) {
    if (done() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  bool take(std::string_view s) {
    if (!text_.substr(at_).starts_with(s)) return false;
    at_ += s.size();
    return true;
  }

  bool piece() {
    switch (text_[at_]) {
      case '(':
        return group();
      case ')':
        return close();
      case '[':
        return char_class();
      case '*':
      case '+':
      case '?':
        return repeat();
      case '{':
        return counted();
      case '|':
        ++at_;
        before_ = Before::kNothing;
        return true;
      case '\\':
        ++at_;
        before_ = Before::kPiece;
        return !done() && escape(false).has_value();
      default:
        ++at_;
        before_ = Before::kPiece;
        return true;
    }
  }

  bool repeat() {
    if (before_ != Before::kPiece) return false;
    ++at_;
    lazy();
    before_ = Before::kRepeated;
    return true;
  }

  void lazy() {
    if (!take('?')) take('+');
  }

  std::optional<std::uint64_t> number() {
    blanks();
    const std::size_t begin = at_;
    std::uint64_t value = 0;
    while (!done() && is_digit(text_[at_]) && value <= kMostRepeats)
      value = value * 10 + static_cast<std::uint64_t>(text_[at_++] - '0');
    if (at_ == begin || value > kMostRepeats) return std::nullopt;
    blanks();
    return value;
  }

  void blanks() {
    while (take(' ')) {
    }
  }

  bool counted() {
    if (before_ == Before::kNothing) return false;
    ++at_;
    const auto least = number();
    if (!least) return false;
    if (!take('}')) {
      if (!take(',')) return false;
      if (!take('}')) {
        const auto most = number();
        if (!most || *most < *least || !take('}')) return false;
      }
    }
    lazy();
    before_ = Before::kRepeated;
    return true;
  }

  // kLook cannot be repeated.
  enum class Group { kPlain, kLook };

  bool group() {
    ++at_;
    before_ = Before::kNothing;
    if (!take('?')) return open(Group::kPlain, true);
    for (const std::string_view look : {"=", "!", "<=", "<!"}) {
      if (take(look)) return open(Group::kLook, false);
    }
    if (take(":")) return open(Group::kPlain, false);
    if (take("P<") || take("<")) return name() && open(Group::kPlain, true);
    return flags();
  }

  bool open(Group kind, bool counts) {
    open_.push_back(kind);
    if (counts) ++groups_;
    return true;
  }

  bool close() {
    if (open_.empty()) return false;
    ++at_;
    before_ = open_.back() == Group::kLook ? Before::kNothing : Before::kPiece;
    open_.pop_back();
    return true;
  }

  bool name() {
    const std::size_t end = text_.find('>', at_);
    if (end == text_.npos || end == at_) return false;
    const std::string_view name = text_.substr(at_, end - at_);
    for (std::size_t i = 0; i < name.size();) {
      const Utf8Char c = decode_utf8(name, i);
      const bool more = i > 0 && (is_digit(name[i]) || name.substr(i, 1).find_first_of(".[]") == 0);
      const bool letter = c.code == '_' || is_letter(kind_of_code(c.code));
      if (!more && !letter) return false;
      i += c.bytes;
    }
    at_ = end + 1;
    return names_.insert(name).second;
  }

  bool flags() {
    std::string seen;
    bool minus = false, after_minus = false;
    for (; !done(); ++at_) {
      const char c = text_[at_];
      if (c == '-' && !minus) {
        minus = true;
        after_minus = false;
        continue;
      }
      if (std::string_view("imsxuUR").find(c) == std::string_view::npos) break;
      if (seen.find(c) != seen.npos) return false;
      seen += c;
      after_minus = true;
    }
    if (minus && !after_minus) return false;
    if (take(':')) return open(Group::kPlain, false);
    return !seen.empty() && take(')');
  }

  // The character an escape stands for; 0x110000 for a class of them. `at_` is behind the
  // backslash.
  static constexpr std::uint32_t kMany = 0x110000;
  std::optional<std::uint32_t> escape(bool in_class) {
    const char c = text_[at_++];
    if (static_cast<unsigned char>(c) >= 0x80) return std::nullopt;
    switch (c) {
      case 'p':
      case 'P':
        return property() ? std::optional(kMany) : std::nullopt;
      case 'x':
        return code(2);
      case 'u':
        return code(4);
      case 'U':
        return code(8);
      case 'c':
        if (done() || !is_alpha(text_[at_])) return std::nullopt;
        return static_cast<std::uint32_t>(text_[at_++]) & 31U;
      case 't':
      case 'n':
      case 'v':
      case 'f':
      case 'r':
        return static_cast<std::uint32_t>(std::string_view("tnvfr").find(c)) + 9;
      default:
        break;
    }
    if (std::string_view("dDwWsS").find(c) != std::string_view::npos) return kMany;
    if (!in_class && c >= '1' && c <= '9') return reference();
    if (is_digit(c)) return std::nullopt;
    if (is_alpha(c)) {
      const std::string_view known = in_class ? "a" : "ABbz";
      if (known.find(c) == known.npos) return std::nullopt;
      if (c == 'b') static_cast<void>(take("{start}") || take("{end}"));
      return in_class ? 7 : kMany;
    }
    if (in_class && (c == '<' || c == '>')) return std::nullopt;
    return static_cast<std::uint32_t>(c);
  }

  std::optional<std::uint32_t> reference() {
    --at_;
    std::uint64_t value = 0;
    while (!done() && is_digit(text_[at_]) && value <= kMostRepeats)
      value = value * 10 + static_cast<std::uint64_t>(text_[at_++] - '0');
    most_reference_ = std::max(most_reference_, value);
    return kMany;
  }

  // That many hexadecimal digits, or any number of them in braces.
  std::optional<std::uint32_t> code(std::size_t digits) {
    const bool braces = take('{');
    std::uint32_t value = 0;
    std::size_t read = 0;
    while (!done() && (braces || read < digits)) {
      const auto digit = hex_digit(text_[at_]);
      if (!digit) break;
      value = std::min(value * 16 + *digit, kMany);
      ++at_;
      ++read;
    }
    const bool complete = braces ? read > 0 && take('}') : read == digits;
    if (!complete || value > 0x10FFFF || (value >= 0xD800 && value < 0xE000)) return std::nullopt;
    return value;
  }

  bool property() {
    if (done()) return false;
    if (text_[at_] != '{') return is_property(text_.substr(at_++, 1));
    const std::size_t end = text_.find('}', at_);
    if (end == text_.npos) return false;
    const std::string_view name = text_.substr(at_ + 1, end - at_ - 1);
    at_ = end + 1;
    return is_property(name);
  }

  std::optional<std::uint32_t> class_char() {
    if (take('\\')) return done() ? std::nullopt : escape(true);
    const Utf8Char c = decode_utf8(text_, at_);
    at_ += c.bytes;
    return c.code;
  }

  bool char_class() {
    ++at_;
    take('^');
    before_ = Before::kPiece;
    bool first = true;
    while (!done()) {
      if (!std::exchange(first, false) && take(']')) return true;
      const auto low = class_char();
      if (!low) return false;
      const std::string_view rest = text_.substr(at_);
      if (rest.size() < 2 || rest[0] != '-' || rest[1] == ']') continue;
      ++at_;
      const auto high = class_char();
      if (!high || *low == kMany || *high == kMany || *low > *high) return false;
    }
    return false;
  }

  std::string_view text_;
  std::size_t at_ = 0;
  Before before_ = Before::kNothing;
  std::vector<Group> open_;
  std::unordered_set<std::string_view> names_;
  std::uint64_t groups_ = 0, most_reference_ = 0;
};

}  // namespace

bool is_regex(std::string_view pattern) { return RegexReader(pattern).read(); }

}  // namespace artery::codec::api
