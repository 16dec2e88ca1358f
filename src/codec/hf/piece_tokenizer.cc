#include "codec/hf/piece_tokenizer.h"

#include <fmt/format.h>

namespace artery::codec {
namespace {

constexpr std::string_view kSpace = "\xE2\x96\x81";  // U+2581 stands for a space in pieces

std::size_t text_bytes(const VocabData& data) {
  std::size_t bytes = 0;
  for (const std::string& text : data.tokens) bytes += text.size();
  return bytes;
}

std::string with_spaces(std::string_view text) {
  std::string out;
  for (std::size_t at = 0; (at = text.find(kSpace)) != std::string_view::npos;) {
    out += text.substr(0, at);
    out += ' ';
    text.remove_prefix(at + kSpace.size());
  }
  out += text;
  return out;
}

}  // namespace

PieceTokenizer::PieceTokenizer(PieceParts& parts)
    : VocabTokenizer(std::move(parts.data), std::move(parts.added)),
      pieces_(data_.tokens.size(), text_bytes(data_)),
      unknown_(parts.unknown),
      byte_fallback_(parts.byte_fallback),
      fuse_unknown_(parts.fuse_unknown),
      pipeline_(std::move(parts.pipeline)) {
  for (std::size_t id = 0; id < data_.tokens.size(); ++id) {
    const std::string& text = data_.tokens[id];
    if (parts.in_model[id] && !text.empty()) pieces_.add(text, static_cast<TokenId>(id));
  }
  std::array<char, 256> bytes{};
  for (unsigned byte = 0; byte < 256; ++byte) {
    bytes[byte] = static_cast<char>(byte);
    byte_tokens_[byte] = pieces_.find(fmt::format("<0x{:02X}>", byte));
  }
  for (std::size_t id = 0; id < data_.tokens.size(); ++id) {
    const std::string& text = data_.tokens[id];
    if (is_kind(id, TokenKind::kByte)) {
      const unsigned byte = static_cast<unsigned>(std::stoul(text.substr(3, 2), nullptr, 16));
      add_piece({&bytes[byte], 1});
    } else {
      add_piece(is_hidden(id) || !parts.spaces ? text : with_spaces(text));
    }
  }
}

bool PieceTokenizer::append_bytes(std::string_view character, std::vector<TokenId>& ids) const {
  if (!byte_fallback_) return false;
  const std::size_t before = ids.size();
  for (char c : character) {
    const TokenId id = byte_tokens_[static_cast<unsigned char>(c)];
    if (id < 0) {
      ids.resize(before);
      return false;
    }
    ids.push_back(id);
  }
  return true;
}

}  // namespace artery::codec
