#include "cli/base64.h"

#include <cstdint>

namespace artery::cli {
namespace {
constexpr std::string_view kAlphabet =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
}

std::string base64_encode(std::string_view bytes) {
  std::string out;
  out.reserve((bytes.size() + 2) / 3 * 4);
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    std::uint32_t group = 0;
    for (std::size_t j = 0; j < 3; ++j)
      group = group << 8 | (i + j < bytes.size() ? static_cast<unsigned char>(bytes[i + j]) : 0u);
    for (std::size_t j = 0; j < 4; ++j)
      out += i + j <= bytes.size() ? kAlphabet[(group >> (18 - 6 * j)) & 63] : '=';
  }
  return out;
}

Result<std::string> base64_decode(std::string_view text) {
  if (text.size() % 4 != 0)
    return fail(
        Code::kInvalidArgument, "base64 of {} characters: not a multiple of 4", text.size()
    );
  std::string out;
  for (std::size_t i = 0; i < text.size(); i += 4) {
    std::uint32_t group = 0;
    std::size_t padding = 0;
    for (std::size_t j = 0; j < 4; ++j) {
      const bool may_pad = i + 4 == text.size() && j >= 2;
      const auto digit = kAlphabet.find(text[i + j]);
      if (may_pad && text[i + j] == '=') {
        ++padding;
      } else if (digit == std::string_view::npos || padding > 0) {
        return fail(Code::kInvalidArgument, "base64: character {} is not allowed there", i + j);
      }
      group = group << 6 | (padding > 0 ? 0u : static_cast<std::uint32_t>(digit));
    }
    for (std::size_t j = 0; j < 3 - padding; ++j)
      out += static_cast<char>(group >> (16 - 8 * j) & 255);
  }
  return out;
}

}  // namespace artery::cli
