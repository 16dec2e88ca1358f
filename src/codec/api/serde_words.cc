#include "codec/api/serde_words.h"

#include <fmt/format.h>

#include "codec/api/json_out.h"
#include "codec/api/json_tree.h"
#include "codec/unicode.h"

namespace artery::codec::api {
namespace {

// Rust shows what is no letter, mark, number, punctuation, symbol or plain space by its code.
bool is_shown(char32_t code) {
  const CharKind kind = kind_of_code(code);
  return code == ' ' || (kind != CharKind::kSpace && kind != CharKind::kRest);
}

void append_debug(std::string& out, char32_t code) {
  switch (code) {
    case '\0':
      out += "\\0";
      return;
    case '\t':
      out += "\\t";
      return;
    case '\n':
      out += "\\n";
      return;
    case '\r':
      out += "\\r";
      return;
    case '"':
    case '\\':
      out += '\\';
      out += static_cast<char>(code);
      return;
    default:
      if (is_shown(code))
        append_utf8(out, code);
      else
        out += fmt::format("\\u{{{:x}}}", static_cast<std::uint32_t>(code));
  }
}

}  // namespace

std::string rust_debug(std::string_view text) {
  std::string out = "\"";
  for (std::size_t at = 0; at < text.size();) {
    const Utf8Char c = decode_utf8(text, at);
    append_debug(out, c.state == Utf8State::kValid ? c.code : U'\uFFFD');
    at += c.bytes;
  }
  out += '"';
  return out;
}

std::string unexpected(const Json& value) {
  switch (value.kind()) {
    case Json::Kind::kNull:
      return "null";
    case Json::Kind::kBool:
      return fmt::format("boolean `{}`", value.boolean());
    case Json::Kind::kWhole:
      return fmt::format("integer `{}`", value.whole());
    case Json::Kind::kNegative:
      return fmt::format("integer `{}`", value.negative());
    case Json::Kind::kDouble: {
      std::string number;
      put_json_number(number, value.real());
      return fmt::format("floating point `{}`", number);
    }
    case Json::Kind::kString:
      return "string " + rust_debug(value.text());
    case Json::Kind::kArray:
      return "sequence";
    default:
      return "map";
  }
}

std::string invalid_type(const Json& value, std::string_view wanted) {
  return fmt::format("invalid type: {}, expected {}", unexpected(value), wanted);
}

std::string invalid_value(const Json& value, std::string_view wanted) {
  return fmt::format("invalid value: {}, expected {}", unexpected(value), wanted);
}

}  // namespace artery::codec::api
