#include "codec/api/patch_input.h"

#include <charconv>

#include "codec/unicode.h"

namespace artery::codec::api {

namespace {

constexpr std::string_view kKey = "\"input\"";
constexpr std::size_t kOneUnit = 6;    // \uXXXX
constexpr std::size_t kTwoUnits = 12;  // a surrogate pair

bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

bool is_hex(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

// NUL: not one of the two-letter escapes.
char two_letter_escape(char c) {
  switch (c) {
    case '"':
    case '\\':
    case '/':
      return c;
    case 'b':
      return '\b';
    case 'f':
      return '\f';
    case 'n':
      return '\n';
    case 'r':
      return '\r';
    case 't':
      return '\t';
    default:
      return '\0';
  }
}

std::uint32_t unit_at(std::string_view escape, std::size_t begin) {
  std::uint32_t unit = 0;
  std::from_chars(escape.data() + begin, escape.data() + begin + 4, unit, 16);
  return unit;
}

bool is_high(std::uint32_t unit) { return unit >= 0xd800 && unit < 0xdc00; }
bool is_low(std::uint32_t unit) { return unit >= 0xdc00 && unit < 0xe000; }

}  // namespace

void PatchInput::feed(std::string_view arguments, std::string& out) {
  if (state_ < State::kText) arguments.remove_prefix(feed_beginning(arguments, out));
  if (state_ == State::kText) {
    feed_text(arguments, out);
  } else if (state_ == State::kVerbatim) {
    out += arguments;
  }
}

void PatchInput::finish(std::string& out) {
  out += held_;
  held_.clear();
}

PatchInput::State PatchInput::after(char c) const {
  if (state_ == State::kInKey) {
    if (c != kKey[key_length_]) return State::kVerbatim;
    return key_length_ + 1U == kKey.size() ? State::kColon : State::kInKey;
  }
  if (is_blank(c)) return state_;
  switch (state_) {
    case State::kBrace:
      return c == '{' ? State::kKey : State::kVerbatim;
    case State::kKey:
      return c == '"' ? State::kInKey : State::kVerbatim;
    case State::kColon:
      return c == ':' ? State::kQuote : State::kVerbatim;
    default:
      return c == '"' ? State::kText : State::kVerbatim;
  }
}

std::size_t PatchInput::feed_beginning(std::string_view arguments, std::string& out) {
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const State next = after(arguments[i]);
    if (next == State::kInKey) ++key_length_;
    state_ = next;
    if (next == State::kVerbatim) {
      finish(out);
      return i;
    }
    if (next == State::kText) {
      held_.clear();
      return i + 1;
    }
    held_ += arguments[i];
  }
  return arguments.size();
}

void PatchInput::feed_text(std::string_view arguments, std::string& out) {
  while (!arguments.empty()) {
    if (!held_.empty()) {
      feed_escape(arguments.front(), out);
      arguments.remove_prefix(1);
      continue;
    }
    const std::size_t end = arguments.find_first_of("\"\\");
    out += arguments.substr(0, end);
    if (end == std::string_view::npos) return;
    if (arguments[end] == '"') {
      state_ = State::kDone;
      return;
    }
    held_ = '\\';
    arguments.remove_prefix(end + 1);
  }
}

void PatchInput::feed_escape(char c, std::string& out) {
  held_ += c;
  const std::size_t size = held_.size();
  if (size == 2 && c != 'u') {
    if (const char plain = two_letter_escape(c)) held_ = plain;
    return finish(out);
  }
  // After the two letters of either unit only hex digits; between them "\u" once more.
  const bool fits = size == 2 || (size == kOneUnit + 1 && c == '\\') ||
                    (size == kOneUnit + 2 && c == 'u') ||
                    (size != kOneUnit + 1 && size != kOneUnit + 2 && is_hex(c));
  if (!fits) return finish(out);
  if (size == kOneUnit) {
    const std::uint32_t unit = unit_at(held_, 2);
    if (is_high(unit)) return;
    if (is_low(unit)) return finish(out);
    held_.clear();
    append_utf8(out, unit);
  } else if (size == kTwoUnits) {
    const std::uint32_t low = unit_at(held_, kOneUnit + 2);
    if (!is_low(low)) return finish(out);
    const std::uint32_t high = unit_at(held_, 2);
    held_.clear();
    append_utf8(out, 0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00));
  }
}

}  // namespace artery::codec::api
