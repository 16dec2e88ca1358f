#include "model/format/sniff.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "model/format/text.h"

namespace artery::model {
namespace {

struct Magic {
  std::string_view bytes;
  std::string_view meaning;
};

constexpr std::string_view kOldFormat =
    "an old format of ggml; convert the model again, or fetch a GGUF of it";

constexpr std::array kMagics = {
    Magic{"GGML", kOldFormat},
    Magic{"lmgg", kOldFormat},  // 'ggml' as a little-endian integer
    Magic{"fmgg", kOldFormat},  // 'ggmf'
    Magic{"tjgg", kOldFormat},  // 'ggjt'
    Magic{"algg", kOldFormat},  // 'ggla'
    Magic{"FUGG", "a GGUF with swapped bytes (big-endian); not supported"},
    Magic{"PK\x03\x04", "a zip archive (a PyTorch checkpoint or a wheel?); unpack or convert it"},
    Magic{"\x1f\x8b", "a gzip archive; unpack it"},
    Magic{"\x28\xb5\x2f\xfd", "a zstd archive; unpack it"},
    Magic{"\x89HDF", "an HDF5 file (Keras?); a GGUF of the model is needed"},
    Magic{"version https://git-lfs", "a Git LFS pointer; fetch the real file (git lfs pull)"},
};

bool is_html(std::string_view head) {
  const auto start = head.find_first_not_of(" \t\r\n\xef\xbb\xbf");
  if (start == std::string_view::npos || head[start] != '<') return false;
  std::string lower(head);
  std::transform(lower.begin(), lower.end(), lower.begin(), [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
  });
  return lower.find("<html") != std::string::npos || lower.find("<!doctype") != std::string::npos ||
         lower.find("<?xml") != std::string::npos;
}

// A safetensors file begins with the length of its JSON header (at most 100 MB).
bool is_safetensors(std::string_view head) {
  if (head.size() < 9 || head[8] != '{') return false;
  std::uint64_t length = 0;
  std::memcpy(&length, head.data(), sizeof length);
  return length >= 2 && length <= 100'000'000;
}

std::string_view as_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), std::min<std::size_t>(bytes.size(), 512)};
}

std::string by_magic(std::string_view head) {
  for (const Magic& known : kMagics) {
    if (head.starts_with(known.bytes)) {
      return fmt::format(
          "its first bytes are '{}': it is {}", printable(head.substr(0, 4)), known.meaning
      );
    }
  }
  if (is_html(head)) return "it looks like an HTML page (a failed download?); fetch it again";
  return {};
}

}  // namespace

std::string describe_foreign_file(std::span<const std::byte> bytes) {
  const std::string_view head = as_text(bytes);
  if (std::string known = by_magic(head); !known.empty()) return known;
  if (is_safetensors(head)) {
    return "it looks like a safetensors file; name it .safetensors, in a folder with its "
           "config.json";
  }
  if (std::string_view("GGUF").starts_with(head))
    return fmt::format("it has only {} bytes; fetch it again", head.size());
  return fmt::format("its first bytes are '{}', expected 'GGUF'", printable(head.substr(0, 4)));
}

bool looks_like_safetensors(std::span<const std::byte> bytes) {
  return is_safetensors(as_text(bytes));
}

std::string describe_foreign_head(std::span<const std::byte> bytes) {
  const std::string_view head = as_text(bytes);
  if (head.starts_with("GGUF")) return "it starts with the GGUF magic; name it .gguf";
  return by_magic(head);
}

}  // namespace artery::model
