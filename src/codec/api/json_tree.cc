#include "codec/api/json_tree.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "codec/unicode.h"

namespace artery::codec::api {
namespace {

// Above this many members, equal keys are found by sorting.
constexpr std::size_t kFewMembers = 16;

constexpr std::uint64_t kOnes = 0x0101010101010101U, kTops = 0x8080808080808080U;

// Eight bytes hold a quote, a backslash or a control character.
bool has_string_stop(std::uint64_t bytes) {
  const auto has_zero = [](std::uint64_t x) { return (x - kOnes) & ~x & kTops; };
  const std::uint64_t control = (bytes - kOnes * 0x20) & ~bytes & kTops;
  return (control | has_zero(bytes ^ (kOnes * '"')) | has_zero(bytes ^ (kOnes * '\\'))) != 0;
}

// The first byte that is no UTF-8, or the size.
std::size_t utf8_end(std::string_view text) {
  std::size_t at = 0;
  while (at < text.size()) {
    std::uint64_t bytes = 0;
    if (text.size() - at >= sizeof bytes) {
      std::memcpy(&bytes, text.data() + at, sizeof bytes);
      if ((bytes & kTops) == 0) {
        at += sizeof bytes;
        continue;
      }
    }
    if (static_cast<unsigned char>(text[at]) < 0x80) {
      ++at;
      continue;
    }
    const Utf8Char c = decode_utf8(text, at);
    if (c.state != Utf8State::kValid) return at;
    at += c.bytes;
  }
  return at;
}

class Parser {
 public:
  Parser(std::string_view text, std::pmr::memory_resource& memory, int max_depth)
      : text_(text), memory_(memory), max_depth_(max_depth) {}

  bool parse(Json& root) {
    if (text_.size() > std::numeric_limits<std::uint32_t>::max())
      return fail("the text is too long");
    if (const std::size_t end = utf8_end(text_); end < text_.size()) {
      at_ = end;
      return fail("invalid UTF-8");
    }
    skip_blanks();
    if (!value(root)) return false;
    skip_blanks();
    return at_ == text_.size() || fail("trailing characters");
  }

  std::string error() const {
    const std::string_view read = text_.substr(0, at_);
    const auto lines = std::count(read.begin(), read.end(), '\n');
    const std::size_t line_begin = read.rfind('\n') == read.npos ? 0 : read.rfind('\n') + 1;
    return fmt::format("{} at line {} column {}", what_, lines + 1, at_ - line_begin + 1);
  }

 private:
  bool fail(std::string_view what) {
    what_ = what;
    return false;
  }
  bool at_end() const { return at_ == text_.size(); }
  char peek() const { return at_end() ? '\0' : text_[at_]; }
  void skip_blanks() {
    while (!at_end() &&
           (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\t' || text_[at_] == '\r'))
      ++at_;
  }

  bool value(Json& out) {
    if (at_end()) return fail("the text ends where a value is expected");
    switch (text_[at_]) {
      case '{':
        return nested(out, &Parser::object);
      case '[':
        return nested(out, &Parser::array);
      case '"': {
        std::string_view text;
        if (!string(text)) return false;
        out = Json::make_text(text);
        return true;
      }
      case 'n':
        return word("null");
      case 't':
        out = Json::make_bool(true);
        return word("true");
      case 'f':
        out = Json::make_bool(false);
        return word("false");
      default:
        return number(out);
    }
  }

  bool word(std::string_view expected) {
    if (text_.substr(at_, expected.size()) != expected) return fail("expected a value");
    at_ += expected.size();
    return true;
  }

  bool nested(Json& out, bool (Parser::*read)(Json&)) {
    if (depth_ == max_depth_) return fail("too many nested levels");
    ++depth_;
    ++at_;
    skip_blanks();
    const bool done = (this->*read)(out);
    --depth_;
    return done;
  }

  // After an item: true when another one follows; `closed` when the bracket came.
  bool separator(char closing, bool& closed) {
    skip_blanks();
    closed = false;
    if (at_end()) return fail("the text ends inside an array or object");
    const char c = text_[at_];
    if (c == closing) {
      ++at_;
      closed = true;
      return true;
    }
    if (c != ',') return fail(closing == ']' ? "expected , or ]" : "expected , or }");
    ++at_;
    skip_blanks();
    return peek() != closing || fail("a comma before the end");
  }

  bool array(Json& out) {
    const std::size_t first = items_.size();
    bool closed = peek() == ']';
    if (closed) ++at_;
    while (!closed) {
      Json item;
      if (!value(item)) return false;
      items_.push_back(item);
      if (!separator(']', closed)) return false;
    }
    out = Json::make_array(keep(std::span<const Json>(items_).subspan(first)));
    items_.resize(first);
    return true;
  }

  bool object(Json& out) {
    const std::size_t first = members_.size();
    bool closed = peek() == '}';
    if (closed) ++at_;
    while (!closed) {
      JsonMember member;
      if (at_end()) return fail("the text ends inside an object");
      if (text_[at_] != '"') return fail("a key must be a string");
      if (!string(member.key)) return false;
      skip_blanks();
      if (peek() != ':') return fail("expected :");
      ++at_;
      skip_blanks();
      if (!value(member.value)) return false;
      members_.push_back(member);
      if (!separator('}', closed)) return false;
    }
    const std::size_t kept = merge_equal_keys(std::span(members_).subspan(first));
    out = Json::make_object(keep(std::span<const JsonMember>(members_).subspan(first, kept)));
    members_.resize(first);
    return true;
  }

  // Of equal keys the last value at the first place. The number of members left, at the front.
  std::size_t merge_equal_keys(std::span<JsonMember> members) {
    if (members.size() > kFewMembers) return merge_many(members);
    std::size_t kept = 0;
    for (const JsonMember& member : members) {
      std::size_t same = 0;
      while (same < kept && members[same].key != member.key) ++same;
      members[same] = member;
      kept += same == kept;
    }
    return kept;
  }

  std::size_t merge_many(std::span<JsonMember> members) {
    order_.resize(members.size());
    for (std::uint32_t i = 0; i < order_.size(); ++i) order_[i] = i;
    std::sort(order_.begin(), order_.end(), [&](std::uint32_t a, std::uint32_t b) {
      const int compared = members[a].key.compare(members[b].key);
      return compared != 0 ? compared < 0 : a < b;
    });
    bool repeated = false;
    for (std::size_t i = 0; i + 1 < order_.size();) {
      const JsonMember& first = members[order_[i]];
      std::size_t end = i + 1;
      while (end < order_.size() && members[order_[end]].key == first.key) ++end;
      if (end - i > 1) {
        repeated = true;
        members[order_[i]].value = members[order_[end - 1]].value;
        // A view of no bytes at no address marks what goes.
        for (std::size_t j = i + 1; j < end; ++j) members[order_[j]].key = std::string_view();
      }
      i = end;
    }
    if (!repeated) return members.size();
    const auto end = std::remove_if(members.begin(), members.end(), [](const JsonMember& member) {
      return member.key.data() == nullptr;
    });
    return static_cast<std::size_t>(end - members.begin());
  }

  template <typename T>
  std::span<const T> keep(std::span<const T> values) {
    if (values.empty()) return {};
    auto* const kept = static_cast<T*>(memory_.allocate(values.size_bytes(), alignof(T)));
    std::uninitialized_copy(values.begin(), values.end(), kept);
    return {kept, values.size()};
  }

  // At the quote. Without escapes a view of the text.
  bool string(std::string_view& out) {
    const std::size_t begin = ++at_;
    skip_plain();
    if (at_end()) return fail("the text ends inside a string");
    if (text_[at_] == '"') {
      out = text_.substr(begin, at_++ - begin);
      return true;
    }
    scratch_.assign(text_, begin, at_ - begin);
    for (;;) {
      if (at_end()) return fail("the text ends inside a string");
      if (text_[at_] == '"') break;
      if (text_[at_] != '\\') return fail("a control character inside a string");
      if (!escape()) return false;
      const std::size_t plain = at_;
      skip_plain();
      scratch_.append(text_, plain, at_ - plain);
    }
    ++at_;
    const std::span<const char> kept = keep(std::span<const char>(scratch_));
    out = kept.empty() ? std::string_view("") : std::string_view(kept.data(), kept.size());
    return true;
  }

  void skip_plain() {
    std::uint64_t bytes = 0;
    while (text_.size() - at_ >= sizeof bytes) {
      std::memcpy(&bytes, text_.data() + at_, sizeof bytes);
      if (has_string_stop(bytes)) break;
      at_ += sizeof bytes;
    }
    while (!at_end() && text_[at_] != '"' && text_[at_] != '\\' &&
           static_cast<unsigned char>(text_[at_]) >= 0x20)
      ++at_;
  }

  bool escape() {
    constexpr std::string_view kNames = "\"\\/bfnrt", kMeanings = "\"\\/\b\f\n\r\t";
    ++at_;
    if (at_end()) return fail("the text ends inside a string");
    const char name = text_[at_++];
    if (name == 'u') return unicode_escape();
    const std::size_t found = kNames.find(name);
    if (found == kNames.npos) return fail("an invalid escape");
    scratch_ += kMeanings[found];
    return true;
  }

  bool unicode_escape() {
    std::uint32_t unit = 0;
    if (!hex4(unit)) return false;
    if (unit >= 0xDC00 && unit < 0xE000) return fail("a lone surrogate in an escape");
    if (unit >= 0xD800 && unit < 0xDC00) {
      if (text_.substr(at_, 2) != "\\u") return fail("a lone surrogate in an escape");
      at_ += 2;
      std::uint32_t low = 0;
      if (!hex4(low)) return false;
      if (low < 0xDC00 || low >= 0xE000) return fail("a lone surrogate in an escape");
      unit = 0x10000 + ((unit - 0xD800) << 10) + (low - 0xDC00);
    }
    append_utf8(scratch_, static_cast<char32_t>(unit));
    return true;
  }

  bool hex4(std::uint32_t& unit) {
    unit = 0;
    for (int i = 0; i < 4; ++i, ++at_) {
      const char c = peek();
      const bool is_digit = c >= '0' && c <= '9';
      const char lower = static_cast<char>(c | 0x20);
      if (!is_digit && (lower < 'a' || lower > 'f')) return fail("an invalid \\u escape");
      unit = unit * 16 + static_cast<std::uint32_t>(is_digit ? c - '0' : lower - 'a' + 10);
    }
    return true;
  }

  void skip_digits() {
    while (peek() >= '0' && peek() <= '9') ++at_;
  }
  bool digits() {
    const std::size_t begin = at_;
    skip_digits();
    return at_ > begin || fail("an invalid number");
  }

  bool number(Json& out) {
    const std::size_t begin = at_;
    const bool is_negative = peek() == '-';
    if (is_negative) ++at_;
    if (peek() < '0' || peek() > '9')
      return fail(is_negative ? "an invalid number" : "expected a value");
    const bool has_zero = peek() == '0';
    ++at_;
    if (!has_zero)
      skip_digits();
    else if (peek() >= '0' && peek() <= '9')
      return fail("an invalid number");
    bool is_whole = true;
    if (peek() == '.') {
      is_whole = false;
      ++at_;
      if (!digits()) return false;
    }
    if (peek() == 'e' || peek() == 'E') {
      is_whole = false;
      ++at_;
      if (peek() == '+' || peek() == '-') ++at_;
      if (!digits()) return false;
    }
    const std::string_view spelled = text_.substr(begin, at_ - begin);
    return (is_whole && whole(spelled, is_negative, out)) || real(spelled, out);
  }

  static bool whole(std::string_view spelled, bool is_negative, Json& out) {
    const char* const end = spelled.data() + spelled.size();
    if (is_negative) {
      std::int64_t found = 0;
      if (spelled == "-0" || std::from_chars(spelled.data(), end, found).ec != std::errc())
        return false;
      out = Json::make_negative(found);
      return true;
    }
    std::uint64_t found = 0;
    if (std::from_chars(spelled.data(), end, found).ec != std::errc()) return false;
    out = Json::make_whole(found);
    return true;
  }

  bool real(std::string_view spelled, Json& out) {
    double found = 0;
    const auto read = std::from_chars(spelled.data(), spelled.data() + spelled.size(), found);
    if (read.ec == std::errc::result_out_of_range) {
      if (!is_tiny(spelled)) return fail("a number out of range");
      found = spelled.front() == '-' ? -0.0 : 0.0;
    }
    if (!std::isfinite(found)) return fail("a number out of range");
    out = Json::make_double(found);
    return true;
  }

  // Of a number out of double's range: it is too small, not too large. Its decimal exponent
  // decides.
  static bool is_tiny(std::string_view spelled) {
    const std::size_t e = spelled.find_first_of("eE");
    const std::string_view digits = spelled.substr(0, e);
    std::int64_t exponent = 0;
    if (e != spelled.npos) {
      const std::string_view text = spelled.substr(e + 1);
      const bool minus = text.front() == '-';
      const char* const first = text.data() + (text.front() == '-' || text.front() == '+');
      const auto read = std::from_chars(first, text.data() + text.size(), exponent);
      // Beyond 64 bits the sign alone decides: no body has that many digits.
      if (read.ec != std::errc()) return minus;
      if (minus) exponent = -exponent;
    }
    const std::size_t point = std::min(digits.find('.'), digits.size());
    const std::size_t leading = digits.find_first_of("123456789");
    if (leading == digits.npos) return true;
    const auto places = static_cast<std::int64_t>(point) - static_cast<std::int64_t>(leading);
    return exponent < -places;
  }

  std::string_view text_;
  std::pmr::memory_resource& memory_;
  const int max_depth_;
  std::size_t at_ = 0;
  int depth_ = 0;
  std::string_view what_;
  std::string scratch_;
  // Items and members of what is open, innermost last.
  std::vector<Json> items_;
  std::vector<JsonMember> members_;
  std::vector<std::uint32_t> order_;
};

}  // namespace

Json Json::make_bool(bool value) {
  Json made;
  made.kind_ = Kind::kBool;
  made.flag_ = value;
  return made;
}

Json Json::make_whole(std::uint64_t value) {
  Json made;
  made.kind_ = Kind::kWhole;
  made.whole_ = value;
  return made;
}

Json Json::make_negative(std::int64_t value) {
  Json made;
  made.kind_ = Kind::kNegative;
  made.negative_ = value;
  return made;
}

Json Json::make_double(double value) {
  Json made;
  made.kind_ = Kind::kDouble;
  made.real_ = value;
  return made;
}

Json Json::make_text(std::string_view text) {
  Json made;
  made.kind_ = Kind::kString;
  made.size_ = static_cast<std::uint32_t>(text.size());
  made.text_ = text.data();
  return made;
}

Json Json::make_array(std::span<const Json> items) {
  Json made;
  made.kind_ = Kind::kArray;
  made.size_ = static_cast<std::uint32_t>(items.size());
  made.items_ = items.data();
  return made;
}

Json Json::make_object(std::span<const JsonMember> members) {
  Json made;
  made.kind_ = Kind::kObject;
  made.size_ = static_cast<std::uint32_t>(members.size());
  made.members_ = members.data();
  return made;
}

double Json::number() const {
  if (kind_ == Kind::kWhole) return static_cast<double>(whole_);
  return kind_ == Kind::kNegative ? static_cast<double>(negative_) : real_;
}

const Json* Json::find(std::string_view key) const {
  if (!is_object()) return nullptr;
  for (const JsonMember& member : members())
    if (member.key == key) return &member.value;
  return nullptr;
}

std::string_view kind_name(const Json& value) {
  switch (value.kind()) {
    case Json::Kind::kNull:
      return "null";
    case Json::Kind::kBool:
      return "a boolean";
    case Json::Kind::kWhole:
    case Json::Kind::kNegative:
      return "a whole number";
    case Json::Kind::kDouble:
      return "a fraction";
    case Json::Kind::kString:
      return "a string";
    case Json::Kind::kArray:
      return "an array";
    case Json::Kind::kObject:
      return "an object";
  }
  return "";
}

tl::expected<JsonTree, std::string> JsonTree::parse(std::string_view text, int max_depth) {
  JsonTree tree;
  tree.memory_ = std::make_unique<std::pmr::monotonic_buffer_resource>();
  Parser parser(text, *tree.memory_, max_depth);
  if (!parser.parse(tree.root_)) return tl::unexpected(parser.error());
  return tree;
}

}  // namespace artery::codec::api
