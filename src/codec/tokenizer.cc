#include "codec/tokenizer.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "codec/bpe/byte_level_bpe.h"
#include "codec/spm/sentence_piece.h"

namespace artery::codec {
namespace {

Result<> check_vocab(const VocabData& data) {
  const std::size_t count = data.tokens.size();
  if (count == 0) return fail(Code::kBadFile, "the vocabulary has no tokens");
  if (count > static_cast<std::size_t>(std::numeric_limits<TokenId>::max()))
    return fail(Code::kBadFile, "{} tokens are more than an id can name", count);
  if (data.kinds.size() != count)
    return fail(Code::kBadFile, "{} token types for {} tokens", data.kinds.size(), count);
  std::uint64_t bytes = 0;
  for (const std::string& token : data.tokens) bytes += token.size();
  if (bytes > std::numeric_limits<std::uint32_t>::max())
    return fail(Code::kBadFile, "the texts of the tokens are {} bytes, 4 GiB are the most", bytes);
  const bool needs_scores = data.model == TokenizerModel::kSentencePiece;
  if (data.scores.size() != count && (needs_scores || !data.scores.empty()))
    return fail(Code::kBadFile, "{} scores for {} tokens", data.scores.size(), count);
  return {};
}

}  // namespace

Result<std::unique_ptr<Tokenizer>> Tokenizer::make(VocabData data) {
  TRY(check_vocab(data));
  switch (data.model) {
    case TokenizerModel::kByteLevelBpe:
      return make_byte_level_bpe(std::move(data));
    case TokenizerModel::kSentencePiece:
      return make_sentence_piece(std::move(data));
  }
  return fail(Code::kBadFile, "unknown tokenizer model {}", static_cast<int>(data.model));
}

bool Tokenizer::is_control(TokenId id) const {
  const std::vector<TokenKind>& kinds = vocab().kinds;
  if (id < 0 || static_cast<std::size_t>(id) >= kinds.size()) return false;
  const TokenKind kind = kinds[static_cast<std::size_t>(id)];
  return kind == TokenKind::kControl || kind == TokenKind::kUnknown;
}

bool Tokenizer::is_added(TokenId id) const {
  const std::vector<TokenKind>& kinds = vocab().kinds;
  if (id < 0 || static_cast<std::size_t>(id) >= kinds.size()) return false;
  return is_control(id) || kinds[static_cast<std::size_t>(id)] == TokenKind::kUserDefined;
}

bool Tokenizer::is_end_of_generation(TokenId id) const {
  const std::vector<TokenId>& ids = vocab().end_of_generation;
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}

}  // namespace artery::codec
