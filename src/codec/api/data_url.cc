#include "codec/api/data_url.h"

#include <algorithm>
#include <array>
#include <cstdint>

namespace artery::codec::api {
namespace {

// URL parsers drop these wherever they stand.
bool is_dropped(char c) { return c == '\t' || c == '\n' || c == '\r'; }
bool is_control_or_space(char c) { return static_cast<unsigned char>(c) <= ' '; }
char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; }

constexpr std::uint8_t kBlank = 64, kPad = 65, kNone = 66;
constexpr std::array<std::uint8_t, 256> kSymbols = [] {
  std::array<std::uint8_t, 256> values{};
  values.fill(kNone);
  std::uint8_t value = 0;
  for (const char c :
       std::string_view("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"))
    values[static_cast<unsigned char>(c)] = value++;
  for (const char c : std::string_view(" \t\n\f\r")) values[static_cast<unsigned char>(c)] = kBlank;
  values['='] = kPad;
  return values;
}();

int hex_value(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  const char low = lower(c);
  return low >= 'a' && low <= 'f' ? low - 'a' + 10 : -1;
}

// Calls `use` with each byte of a URL's body up to its fragment; false from it ends the walk.
template <typename Use>
bool walk_body(std::string_view body, const Use& use) {
  for (std::size_t i = 0; i < body.size(); ++i) {
    const char c = body[i];
    if (c == '#') break;
    if (is_dropped(c)) continue;
    if (c == '%' && body.size() - i > 2) {
      const int high = hex_value(body[i + 1]), low = hex_value(body[i + 2]);
      if (high >= 0 && low >= 0) {
        if (!use(static_cast<char>(high * 16 + low))) return false;
        i += 2;
        continue;
      }
    }
    if (!use(c)) return false;
  }
  return true;
}

// `out` may be null.
bool decode_base64(std::string_view body, std::string* out) {
  std::uint32_t bits = 0;
  std::size_t symbols = 0, pads = 0;  // symbols of the group of four that is open
  const bool walked = walk_body(body, [&](char c) {
    const std::uint8_t value = kSymbols[static_cast<unsigned char>(c)];
    if (value == kBlank) return true;
    if (value == kPad) return ++pads <= 2;
    if (value == kNone || pads > 0) return false;
    bits = bits << 6 | value;
    if (++symbols == 4) {
      if (out != nullptr)
        for (const int shift : {16, 8, 0}) *out += static_cast<char>(bits >> shift & 0xFF);
      bits = 0;
      symbols = 0;
    }
    return true;
  });
  if (!walked) return false;
  if (symbols == 0) return pads == 0;
  if (symbols == 1 || (pads > 0 && symbols + pads != 4)) return false;
  if (out != nullptr) {
    bits <<= 6 * (4 - symbols);
    *out += static_cast<char>(bits >> 16 & 0xFF);
    if (symbols == 3) *out += static_cast<char>(bits >> 8 & 0xFF);
  }
  return true;
}

bool is_token(std::string_view text) {
  constexpr std::string_view kMarks = "!#$%&'*+-.^_`|~";
  return !text.empty() && std::all_of(text.begin(), text.end(), [&](char c) {
    const char low = lower(c);
    return (low >= 'a' && low <= 'z') || (c >= '0' && c <= '9') || kMarks.find(c) != kMarks.npos;
  });
}

// Takes a "; base64" off the end.
bool take_base64_suffix(std::string& header) {
  constexpr std::string_view kWord = "base64";
  if (header.size() < kWord.size()) return false;
  std::size_t at = header.size() - kWord.size();
  for (std::size_t i = 0; i < kWord.size(); ++i)
    if (lower(header[at + i]) != kWord[i]) return false;
  while (at > 0 && header[at - 1] == ' ') --at;
  if (at == 0 || header[at - 1] != ';') return false;
  header.resize(at - 1);
  return true;
}

std::string mime_of(std::string_view header) {
  const std::size_t slash = header.find('/');
  std::string_view subtype = slash == header.npos ? std::string_view() : header.substr(slash + 1);
  subtype = subtype.substr(0, subtype.find(';'));
  while (subtype.ends_with(' ')) subtype.remove_suffix(1);
  if (!is_token(header.substr(0, std::min(slash, header.size()))) || !is_token(subtype))
    return "text/plain";
  std::string mime(header.substr(0, slash + 1 + subtype.size()));
  std::transform(mime.begin(), mime.end(), mime.begin(), lower);
  return mime;
}

}  // namespace

std::optional<std::string> DataUrl::decode() const {
  std::string bytes;
  bytes.reserve(is_base64 ? body.size() / 4 * 3 + 3 : body.size());
  if (is_base64) {
    if (!decode_base64(body, &bytes)) return std::nullopt;
  } else {
    walk_body(body, [&](char c) {
      bytes += c;
      return true;
    });
  }
  return bytes;
}

bool DataUrl::decodes() const { return !is_base64 || decode_base64(body, nullptr); }

bool DataUrl::is_image() const {
  return mime == "image/png" || mime == "image/jpeg" || mime == "image/jpg" ||
         mime == "image/webp" || mime == "image/gif";
}

std::optional<DataUrl> read_data_url(std::string_view url) {
  while (!url.empty() && is_control_or_space(url.front())) url.remove_prefix(1);
  std::size_t at = 0;
  for (const char wanted : std::string_view("data:")) {
    while (at < url.size() && is_dropped(url[at])) ++at;
    if (at == url.size() || lower(url[at]) != wanted) return std::nullopt;
    ++at;
  }
  url.remove_prefix(at);
  while (!url.empty() && is_control_or_space(url.back())) url.remove_suffix(1);
  const std::size_t comma = url.find_first_of(",#");
  if (comma == url.npos || url[comma] == '#') return std::nullopt;
  std::string header(url.substr(0, comma));
  std::erase_if(header, is_dropped);
  while (header.ends_with(' ')) header.pop_back();
  header.erase(0, header.find_first_not_of(' '));
  DataUrl read;
  read.is_base64 = take_base64_suffix(header);
  read.mime = mime_of(header);
  read.body = url.substr(comma + 1);
  return read;
}

}  // namespace artery::codec::api
