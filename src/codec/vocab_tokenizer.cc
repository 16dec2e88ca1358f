#include "codec/vocab_tokenizer.h"

#include <algorithm>
#include <utility>

namespace artery::codec {

VocabTokenizer::VocabTokenizer(VocabData data) : data_(std::move(data)) {
  for (std::size_t id = 0; id < data_.tokens.size(); ++id)
    if (is_hidden(id)) special_.add(data_.tokens[id], static_cast<TokenId>(id), true);
  piece_starts_.reserve(data_.tokens.size() + 1);
}

VocabTokenizer::VocabTokenizer(VocabData data, AddedTokens added)
    : data_(std::move(data)), special_(std::move(added)) {
  piece_starts_.reserve(data_.tokens.size() + 1);
}

bool VocabTokenizer::is_hidden(std::size_t id) const {
  return is_kind(id, TokenKind::kControl) || is_kind(id, TokenKind::kUnknown);
}

void VocabTokenizer::add_piece(std::string_view bytes) {
  piece_bytes_ += bytes;
  piece_starts_.push_back(static_cast<std::uint32_t>(piece_bytes_.size()));
}

std::string_view VocabTokenizer::piece(TokenId id) const {
  if (id < 0 || static_cast<std::size_t>(id) >= data_.tokens.size()) return {};
  const auto i = static_cast<std::size_t>(id);
  return std::string_view(piece_bytes_)
      .substr(piece_starts_[i], piece_starts_[i + 1] - piece_starts_[i]);
}

std::vector<TokenId> VocabTokenizer::encode(std::string_view text, const EncodeOptions& options)
    const {
  std::vector<TokenId> ids;
  ids.reserve(text.size() / 3 + 2);
  const bool wants_bos = options.add_special && data_.add_bos && data_.bos >= 0;
  if (wants_bos) ids.push_back(data_.bos);
  encode_sections(text, options, wants_bos, ids);
  const bool wants_eos = options.add_special && data_.add_eos && data_.eos >= 0;
  if (wants_eos && (ids.empty() || ids.back() != data_.eos)) ids.push_back(data_.eos);
  return ids;
}

void VocabTokenizer::encode_sections(
    std::string_view text, const EncodeOptions& options, bool wants_bos, std::vector<TokenId>& ids
) const {
  if (options.no_added) {
    if (!text.empty()) encode_text(text, {true, true, options.plain}, ids);
    return;
  }
  bool after_control = true;
  std::span<const ByteRange> literal = options.literal;
  // Late tokens are searched between two early ones, whose end is the end of the text to them.
  SpecialMatch early{0, 0, -1};
  for (std::size_t pos = 0; pos < text.size();) {
    while (!literal.empty() && literal.front().end <= pos) literal = literal.subspan(1);
    if (early.begin <= pos) early = special_.find_early(text, pos, options.parse_special, literal);
    SpecialMatch match = early;
    if (special_.has_late() && early.begin > pos) {
      const std::string_view section = text.substr(0, early.begin);
      match = special_.find_late(section, pos, options.parse_special, literal);
      if (match.id < 0) match = early;
    }
    if (match.begin > pos) {
      encode_text(
          text.substr(pos, match.begin - pos), {after_control, pos == 0, options.plain}, ids
      );
      after_control = false;
    }
    if (match.id >= 0) {
      // The text brought its own BOS, as most chat templates do (FR-A5).
      const bool repeats_bos = wants_bos && match.begin == 0 && match.id == data_.bos;
      if (!repeats_bos) ids.push_back(match.id);
      after_control = is_control(match.id);
    }
    pos = match.end;
  }
}

std::string VocabTokenizer::decode(std::span<const TokenId> ids, bool skip_special) const {
  const bool has_dummy_space =
      data_.model == TokenizerModel::kSentencePiece && data_.add_space_prefix;
  std::string text;
  bool drop_space = has_dummy_space;
  for (TokenId id : ids) {
    const bool control = is_control(id);
    if (control && skip_special) continue;
    std::string_view bytes = piece(id);
    if (control) {
      // encode() puts a dummy space behind each control token too; taking it off makes decode its
      // inverse where the token is shown.
      drop_space = has_dummy_space;
    } else if (!bytes.empty()) {
      if (drop_space && bytes.front() == ' ') bytes.remove_prefix(1);
      drop_space = false;
    }
    text += bytes;
  }
  return text;
}

}  // namespace artery::codec
