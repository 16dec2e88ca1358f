#include "record_tokenizer.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <sstream>

#include "codec/api/json_tree.h"
#include "deepseek_tokenizer.h"

namespace artery::codec {
namespace {

constexpr std::size_t kVocab = 129'280;

std::string read_file(const std::string& path) {
  std::stringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

std::string from_hex(std::string_view hex) {
  std::string bytes;
  for (std::size_t i = 0; i + 1 < hex.size(); i += 2) {
    int value = 0;
    std::from_chars(hex.data() + i, hex.data() + i + 2, value, 16);
    bytes += static_cast<char>(value);
  }
  return bytes;
}

}  // namespace

std::vector<TokenId> RecordTokenizer::encode(std::string_view text, const EncodeOptions& options)
    const {
  return whole_ == nullptr ? std::vector<TokenId>() : whole_->encode(text, options);
}

std::string_view RecordTokenizer::piece(TokenId id) const {
  if (id < 0 || static_cast<std::size_t>(id) >= vocab_.tokens.size()) return {};
  return vocab_.tokens[static_cast<std::size_t>(id)];
}

std::string RecordTokenizer::decode(std::span<const TokenId> ids, bool) const {
  std::string text;
  for (const TokenId id : ids) text += piece(id);
  return text;
}

std::unique_ptr<RecordTokenizer> load_record_tokenizer(const std::string& folder) {
  const std::string text = read_file(folder + "token-bytes.json");
  const auto tree = api::JsonTree::parse(text);
  if (!tree) return nullptr;
  const api::Json* const tokens = tree->root().find("tokens");
  if (tokens == nullptr) return nullptr;
  VocabData vocab;
  vocab.tokens.resize(kVocab);
  vocab.kinds.assign(kVocab, TokenKind::kNormal);
  for (const api::JsonMember& token : tokens->members()) {
    std::size_t id = kVocab;
    std::from_chars(token.key.data(), token.key.data() + token.key.size(), id);
    const api::Json* const hex = token.value.find("hex");
    if (id >= kVocab || hex == nullptr || !hex->is_string()) continue;
    vocab.tokens[id] = from_hex(hex->text());
    const api::Json* const added = token.value.find("added");
    if (added != nullptr && added->is_bool() && added->boolean()) {
      vocab.kinds[id] = TokenKind::kControl;
    }
  }
  return std::make_unique<RecordTokenizer>(std::move(vocab), deepseek_tokenizer());
}

}  // namespace artery::codec
