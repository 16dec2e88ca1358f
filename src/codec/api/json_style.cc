#include "codec/api/json_style.h"

#include <array>
#include <charconv>
#include <cmath>
#include <utility>

#include "codec/api/json_out.h"
#include "codec/api/json_tree.h"

namespace artery::codec::api {
namespace {

bool is_number_byte(char c) {
  return (c >= '0' && c <= '9') || c == '-' || c == '+' || c == '.' || c == 'e' || c == 'E';
}

// The only numbers that the two write differently have an exponent or four zeros after "0.".
bool may_differ(std::string_view number) {
  if (number.find('e') != number.npos) return true;
  if (number.starts_with('-')) number.remove_prefix(1);
  return number.starts_with("0.0000");
}

void append_restyled_number(std::string& out, std::string_view number) {
  double value = 0;
  const auto end = number.data() + number.size();
  const auto [read, error] = std::from_chars(number.data(), end, value);
  if (error != std::errc{} || read != end) {
    out += number;
    return;
  }
  append_python_number(out, value);
}

// The end of the string that begins at `at` (its quote), past the closing one.
std::size_t string_end(std::string_view text, std::size_t at) {
  std::size_t from = at + 1;
  while (true) {
    const std::size_t quote = text.find('"', from);
    if (quote == text.npos) return text.size();
    std::size_t slashes = 0;
    while (quote - slashes > from && text[quote - slashes - 1] == '\\') ++slashes;
    from = quote + 1;
    if (slashes % 2 == 0) return from;
  }
}

void append_scalar(std::string& out, const Json& value, JsonStyle style) {
  switch (value.kind()) {
    case Json::Kind::kBool:
      return put_json_bool(out, value.boolean());
    case Json::Kind::kWhole:
      return put_json_uint(out, value.whole());
    case Json::Kind::kNegative:
      return put_json_int(out, value.negative());
    case Json::Kind::kDouble:
      return style.python_numbers ? append_python_number(out, value.real())
                                  : put_json_number(out, value.real());
    case Json::Kind::kString:
      return put_json_string(out, value.text());
    default:
      out += "null";
  }
}

}  // namespace

void append_python_number(std::string& out, double value) {
  if (!std::isfinite(value)) {
    out += "null";
    return;
  }
  std::array<char, 32> digits;
  const auto end = std::to_chars(
      digits.data(), digits.data() + digits.size(), value, std::chars_format::scientific
  );
  const std::string_view text(digits.data(), static_cast<std::size_t>(end.ptr - digits.data()));
  const std::size_t e = text.find('e');
  int exponent = 0;
  // from_chars takes no plus sign.
  const std::size_t sign = text[e + 1] == '+' ? 1 : 0;
  std::from_chars(text.data() + e + 1 + sign, end.ptr, exponent);
  if (value != 0 && (exponent < -4 || exponent >= 16)) {
    out += text;  // to_chars gives the exponent's sign and at least two digits, as repr does
    return;
  }
  put_json_number(out, value);
}

void append_json(std::string& out, const Json& value, JsonStyle style) {
  if (!value.is_array() && !value.is_object()) return append_scalar(out, value, style);
  const std::string_view comma = style.spaced ? ", " : ",", colon = style.spaced ? ": " : ":";
  bool first = true;
  out += value.is_array() ? '[' : '{';
  if (value.is_array()) {
    for (const Json& item : value.items()) {
      if (!std::exchange(first, false)) out += comma;
      append_json(out, item, style);
    }
  } else {
    for (const JsonMember& member : value.members()) {
      if (!std::exchange(first, false)) out += comma;
      put_json_string(out, member.key);
      out += colon;
      append_json(out, member.value, style);
    }
  }
  out += value.is_array() ? ']' : '}';
}

JsonText to_json(const Json& value) {
  JsonText out;
  append_json(out, value);
  return out;
}

void append_restyled(std::string& out, std::string_view compact, JsonStyle style) {
  std::size_t at = 0;
  while (at < compact.size()) {
    const char c = compact[at];
    std::size_t end = at + 1;
    if (c == '"') {
      end = string_end(compact, at);
    } else if (style.python_numbers && is_number_byte(c) && c != 'e' && c != 'E') {
      while (end < compact.size() && is_number_byte(compact[end])) ++end;
      if (const auto number = compact.substr(at, end - at); may_differ(number)) {
        append_restyled_number(out, number);
        at = end;
        continue;
      }
    }
    out.append(compact, at, end - at);
    if (style.spaced && (c == ',' || c == ':')) out += ' ';
    at = end;
  }
}

}  // namespace artery::codec::api
