#include "codec/api/json_out.h"

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdlib>
#include <cstring>

#include "codec/unicode.h"

namespace artery::codec::api {
namespace {

// What stands behind the backslash; 0: the byte stands for itself; 'u': \u00xx.
constexpr std::array<char, 256> kEscapes = [] {
  std::array<char, 256> escapes{};
  for (std::size_t i = 0; i < 32; ++i) escapes[i] = 'u';
  escapes['\b'] = 'b';
  escapes['\f'] = 'f';
  escapes['\n'] = 'n';
  escapes['\r'] = 'r';
  escapes['\t'] = 't';
  escapes['"'] = '"';
  escapes['\\'] = '\\';
  return escapes;
}();

constexpr std::uint64_t every_byte(std::uint64_t byte) { return byte * 0x0101010101010101ULL; }

// How many bytes before the first of eight that is a control, a quote, a backslash or not ASCII.
// A borrow only ever comes from a byte that is one itself, so the first found is exact.
std::size_t usual_bytes(const char* at) {
  std::uint64_t word = 0;
  std::memcpy(&word, at, sizeof word);
  const std::uint64_t quote = word ^ every_byte('"'), slash = word ^ every_byte('\\');
  const std::uint64_t below = word - every_byte(0x20);
  const std::uint64_t zeros = (quote - every_byte(1)) | (slash - every_byte(1));
  static_assert(std::endian::native == std::endian::little);
  return static_cast<std::size_t>(std::countr_zero((below | zeros | word) & every_byte(0x80))) / 8;
}

void put_escape(std::string& out, char c) {
  const char escape = kEscapes[static_cast<unsigned char>(c)];
  out += '\\';
  out += escape;
  if (escape != 'u') return;
  constexpr std::string_view kHex = "0123456789abcdef";
  out += "00";
  out += kHex[static_cast<unsigned char>(c) >> 4];
  out += kHex[c & 15];
}

// The end of the stretch from `at` that may be copied as it is.
std::size_t plain_end(std::string_view text, std::size_t at) {
  while (true) {
    while (at + 8 <= text.size()) {
      const std::size_t usual = usual_bytes(text.data() + at);
      at += usual;
      if (usual < 8) break;
    }
    if (at == text.size()) return at;
    const auto byte = static_cast<unsigned char>(text[at]);
    if (byte < 0x80) {
      if (kEscapes[byte] != 0) return at;
      ++at;
      continue;
    }
    const Utf8Char found = decode_utf8(text, at);
    if (found.state != Utf8State::kValid) return at;
    at += found.bytes;
  }
}

template <typename Float>
void put_number(std::string& out, Float value, int digits_max, int zeros_max) {
  if (!std::isfinite(value)) {
    out += "null";
    return;
  }
  if (std::signbit(value)) out += '-';
  if (value == 0) {
    out += "0.0";
    return;
  }
  // d.ddde[+-]xx: the shortest digits; only where the point stands is ours to say.
  std::array<char, 40> buffer{};
  char* const end = std::to_chars(
                        buffer.data(),
                        buffer.data() + buffer.size() - 1,
                        std::fabs(value),
                        std::chars_format::scientific
  )
                        .ptr;
  char* const mark = std::find(buffer.data(), end, 'e');
  const int exponent = std::atoi(mark + 1);
  std::string digits(1, buffer[0]);
  if (mark > buffer.data() + 2) digits.append(buffer.data() + 2, mark);
  const int count = static_cast<int>(digits.size());
  const int point = exponent + 1;  // how many digits stand before it
  if (point > 0 && point <= digits_max) {
    if (count <= point) {
      out += digits;
      out.append(static_cast<std::size_t>(point - count), '0');
      out += ".0";
    } else {
      out.append(digits, 0, static_cast<std::size_t>(point));
      out += '.';
      out.append(digits, static_cast<std::size_t>(point));
    }
  } else if (point <= 0 && point >= -zeros_max) {
    out += "0.";
    out.append(static_cast<std::size_t>(-point), '0');
    out += digits;
  } else {
    out += digits[0];
    if (count > 1) {
      out += '.';
      out.append(digits, 1);
    }
    out += exponent < 0 ? "e-" : "e+";
    put_json_int(out, std::abs(exponent));
  }
}

}  // namespace

void put_json_inside(std::string& out, std::string_view text) {
  std::size_t at = 0;
  while (true) {
    const std::size_t end = plain_end(text, at);
    out.append(text.data() + at, end - at);
    if (end == text.size()) return;
    if (static_cast<unsigned char>(text[end]) < 0x80) {
      put_escape(out, text[end]);
      at = end + 1;
    } else {
      out += "\xEF\xBF\xBD";
      at = end + decode_utf8(text, end).bytes;
    }
  }
}

void put_json_string(std::string& out, std::string_view text) {
  out += '"';
  put_json_inside(out, text);
  out += '"';
}

void put_json_int(std::string& out, std::int64_t value) {
  std::array<char, 24> buffer{};
  out.append(buffer.data(), std::to_chars(buffer.data(), buffer.data() + buffer.size(), value).ptr);
}

void put_json_uint(std::string& out, std::uint64_t value) {
  std::array<char, 24> buffer{};
  out.append(buffer.data(), std::to_chars(buffer.data(), buffer.data() + buffer.size(), value).ptr);
}

void put_json_number(std::string& out, double value) { put_number(out, value, 16, 4); }

void put_json_number(std::string& out, float value) { put_number(out, value, 13, 5); }

}  // namespace artery::codec::api
