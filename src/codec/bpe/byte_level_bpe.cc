#include "codec/bpe/byte_level_bpe.h"

#include <array>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "codec/bpe/byte_alphabet.h"
#include "codec/bpe/merge_table.h"
#include "codec/bpe/pre_tokenizer.h"
#include "codec/token_index.h"
#include "codec/unicode.h"
#include "codec/vocab_tokenizer.h"
#include "codec/word_cache.h"

namespace artery::codec {
namespace {

// Symbols are numbered with 32 bits.
constexpr std::size_t kWordBytesMax = std::size_t{1} << 30;

class ByteLevelBpe final : public VocabTokenizer {
 public:
  ByteLevelBpe(VocabData data, PreTokenizer pre)
      : VocabTokenizer(std::move(data)),
        pre_(pre),
        words_(data_.tokens, mergeable()),
        merges_(data_.merges.size()) {
    std::vector<std::string> pieces(data_.tokens.size());
    for (std::size_t id = 0; id < pieces.size(); ++id) {
      // Control and user-defined tokens are stored as they are read, not in the alphabet.
      const bool as_is = is_hidden(id) || is_kind(id, TokenKind::kUserDefined);
      pieces[id] = as_is ? data_.tokens[id] : bytes_of_visible(data_.tokens[id]);
      if (is_kind(id, TokenKind::kUserDefined))
        special_.add(data_.tokens[id], static_cast<TokenId>(id), false);
    }
    set_pieces(pieces);
    for (std::size_t byte = 0; byte < 256; ++byte)
      byte_tokens_[byte] = words_.find(visible_byte(static_cast<std::uint8_t>(byte)));
  }

  Result<> read_merges() {
    for (std::size_t rank = 0; rank < data_.merges.size(); ++rank) {
      const std::string_view merge = data_.merges[rank];
      const std::size_t space = merge.find(' ', 1);
      if (merge.empty() || space == std::string_view::npos || space + 1 == merge.size())
        return fail(Code::kBadFile, "merge {} '{}' has no space between two tokens", rank, merge);
      const std::string_view left = merge.substr(0, space), right = merge.substr(space + 1);
      const TokenId left_id = words_.find(left), right_id = words_.find(right);
      const TokenId joined = words_.find(std::string(left).append(right));
      // A merge of texts that are no tokens can never apply.
      if (left_id < 0 || right_id < 0 || joined < 0) continue;
      merges_.add(left_id, right_id, static_cast<std::uint32_t>(rank), joined);
    }
    return {};
  }

 protected:
  void encode_text(std::string_view text, bool, std::vector<TokenId>& ids) const override {
    std::string normalized;
    if (pre_.nfc) text = to_nfc(text, normalized);
    std::vector<std::string_view> words;
    split_words(pre_.rule, text, words);
    WordCache cache(text.size());
    WordMerger merger(merges_);
    std::vector<TokenId> word_ids;
    for (std::string_view word : words) {
      WordCache::Entry* place = cache.place(word);
      if (WordCache::append_known(place, word, ids)) continue;
      const std::size_t first = ids.size();
      for (; word.size() > kWordBytesMax; word.remove_prefix(kWordBytesMax))
        encode_word(word.substr(0, kWordBytesMax), merger, word_ids, ids);
      encode_word(word, merger, word_ids, ids);
      if (place != nullptr) *place = {word, first, ids.size() - first};
    }
  }

 private:
  // Control and unknown tokens come from parsing only.
  std::vector<bool> mergeable() const {
    std::vector<bool> take(data_.tokens.size());
    for (std::size_t id = 0; id < take.size(); ++id) take[id] = !is_hidden(id);
    return take;
  }

  void encode_word(
      std::string_view word,
      WordMerger& merger,
      std::vector<TokenId>& word_ids,
      std::vector<TokenId>& ids
  ) const {
    if (pre_.whole_words) {
      const TokenId whole = find_word(word);
      if (whole >= 0) {
        ids.push_back(whole);
        return;
      }
    }
    word_ids.clear();
    for (char c : word) {
      // A byte that the vocabulary lacks vanishes, and its neighbours meet: what the Hugging Face
      // library does without an unknown token.
      const TokenId id = byte_tokens_[static_cast<std::uint8_t>(c)];
      if (id >= 0) word_ids.push_back(id);
    }
    merger.merge(word_ids);
    ids.insert(ids.end(), word_ids.begin(), word_ids.end());
  }

  TokenId find_word(std::string_view word) const {
    if (word.size() > words_.text_bytes_max()) return -1;
    std::string visible;
    for (char c : word) visible += visible_byte(static_cast<std::uint8_t>(c));
    return words_.find(visible);
  }

  PreTokenizer pre_;
  TokenIndex words_;
  MergeTable merges_;
  std::array<TokenId, 256> byte_tokens_{};
};

}  // namespace

Result<std::unique_ptr<Tokenizer>> make_byte_level_bpe(VocabData data) {
  if (data.merges.empty())
    return fail(Code::kBadFile, "a byte-level BPE vocabulary needs merges, and there are none");
  if (data.merges.size() >= MergeTable::kNoRank)
    return fail(Code::kBadFile, "{} merges are more than a rank can name", data.merges.size());
  const PreTokenizer pre = TRY(find_pre_tokenizer(data.pre));
  auto tokenizer = std::make_unique<ByteLevelBpe>(std::move(data), pre);
  TRY(tokenizer->read_merges());
  return tokenizer;
}

}  // namespace artery::codec
