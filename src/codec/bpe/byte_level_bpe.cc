#include "codec/bpe/byte_level_bpe.h"

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "codec/bpe/byte_alphabet.h"
#include "codec/bpe/merge_table.h"
#include "codec/bpe/pre_tokenizer.h"
#include "codec/bpe/word_scanner.h"
#include "codec/byte_hash.h"
#include "codec/single_tokens.h"
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
        texts_(data_.tokens.size(), text_bytes()),
        words_(data_.tokens.size(), text_bytes()),
        merges_(data_.merges.size()),
        singles_(data_.tokens.size()) {
    for (std::size_t id = 0; id < data_.tokens.size(); ++id)
      if (is_kind(id, TokenKind::kUserDefined))
        special_.add(data_.tokens[id], static_cast<TokenId>(id), false);
    read_tokens();
  }

  explicit ByteLevelBpe(ByteLevelParts parts)
      : VocabTokenizer(std::move(parts.data), std::move(parts.added)),
        pre_(parts.pre),
        pipeline_(std::move(parts.pipeline)),
        texts_(data_.tokens.size(), text_bytes()),
        words_(data_.tokens.size(), text_bytes()),
        merges_(parts.merges.size()),
        singles_(data_.tokens.size()),
        missing_byte_(parts.missing_byte),
        fuse_missing_(parts.fuse_missing) {
    read_tokens();
    // Of a pair given twice the table keeps the first, the library the last.
    for (std::size_t rank = parts.merges.size(); rank-- > 0;) {
      const IdMerge& merge = parts.merges[rank];
      merges_.add(merge.left, merge.right, static_cast<std::uint32_t>(rank), merge.joined);
    }
    drop_texts();
  }

  Result<> read_merges() {
    std::string both;
    for (std::size_t rank = 0; rank < data_.merges.size(); ++rank) {
      const std::string_view merge = data_.merges[rank];
      const std::size_t space = merge.find(' ', 1);
      if (merge.empty() || space == std::string_view::npos || space + 1 == merge.size())
        return fail(Code::kBadFile, "merge {} '{}' has no space between two tokens", rank, merge);
      const std::string_view left = merge.substr(0, space), right = merge.substr(space + 1);
      both.assign(left).append(right);
      const TokenId left_id = texts_.find(left), right_id = texts_.find(right);
      const TokenId joined = texts_.find(both);
      // A merge of texts that are no tokens can never apply.
      if (left_id < 0 || right_id < 0 || joined < 0) continue;
      merges_.add(left_id, right_id, static_cast<std::uint32_t>(rank), joined);
    }
    drop_texts();
    return {};
  }

 protected:
  void encode_text(std::string_view text, Place place, std::vector<TokenId>& ids) const override {
    Merging merging(merges_, text.size());
    if (pipeline_ != nullptr) {
      const bool last = pipeline_->words_last();
      const auto on_word = [&](std::string_view word) {
        if (place.plain) {
          merge_word<true>(word, merging, ids);
        } else {
          encode_word(word, merging, ids, last);
        }
      };
      pipeline_->run(text, place.at_start, on_word, [&](TokenId id) { ids.push_back(id); });
      return;
    }
    std::string normalized;
    if (pre_.nfc) text = to_nfc(text, normalized);
    if (place.plain) {
      std::vector<std::string_view> words;
      split_words(pre_.rule, text, words);
      for (std::string_view word : words) merge_word<true>(word, merging, ids);
      return;
    }
    for_each_word(pre_.rule, text, [&](std::string_view word) {
      encode_word(word, merging, ids, true);
    });
  }

 private:
  // What one call needs; memory is kept from word to word.
  struct Merging {
    Merging(const MergeTable& merges, std::size_t text_bytes) : merger(merges), cache(text_bytes) {}
    WordMerger merger;
    WordCache cache;
    std::vector<TokenId> word_ids;
  };

  std::size_t text_bytes() const {
    std::size_t bytes = 0;
    for (const std::string& text : data_.tokens) bytes += text.size();
    return bytes;
  }

  void read_tokens() {
    std::string bytes;
    for (std::size_t id = 0; id < data_.tokens.size(); ++id) {
      const std::string& text = data_.tokens[id];
      const auto token = static_cast<TokenId>(id);
      // Control and user-defined tokens are stored as they are read, not in the alphabet.
      const bool as_is = is_hidden(id) || is_kind(id, TokenKind::kUserDefined);
      if (as_is) {
        bytes = text;
      } else {
        bytes_of_visible(text, bytes);
      }
      add_piece(bytes);
      if (is_hidden(id)) continue;  // those come from parsing only
      texts_.add(text, token);
      if (!bytes.empty()) words_.add(bytes, token);
    }
    for (std::size_t byte = 0; byte < 256; ++byte)
      byte_tokens_[byte] = texts_.find(visible_byte(static_cast<std::uint8_t>(byte)));
  }

  // Later only find_whole() asks for tokens by their visible text.
  void drop_texts() {
    if (!pre_.whole_words) texts_ = TokenIndex(0, 0);
  }

  // `lasts`: the word's memory lives as long as `merging` is used.
  void encode_word(std::string_view word, Merging& merging, std::vector<TokenId>& ids, bool lasts)
      const {
    const std::uint64_t hash = hash_bytes(word);
    const TokenId whole = words_.find(word, hash);
    if (singles_.known(whole)) {
      ids.push_back(whole);
      return;
    }
    const std::size_t first = ids.size();
    if (lasts) {
      encode_known_or_merge(word, hash, merging, ids);
    } else {
      merge_word<false>(word, merging, ids);
    }
    if (ids.size() == first + 1 && ids.back() == whole) singles_.note(whole);
  }

  void encode_known_or_merge(
      std::string_view word, std::uint64_t hash, Merging& merging, std::vector<TokenId>& ids
  ) const {
    WordCache::Entry* place = merging.cache.place(word, hash);
    if (WordCache::append_known(place, word, ids)) return;
    const std::size_t first = ids.size();
    merge_word<false>(word, merging, ids);
    if (place != nullptr) *place = {word, first, ids.size() - first};
  }

  template <bool kPlain>
  void merge_word(std::string_view word, Merging& merging, std::vector<TokenId>& ids) const {
    for (; word.size() > kWordBytesMax; word.remove_prefix(kWordBytesMax))
      merge_part<kPlain>(word.substr(0, kWordBytesMax), merging, ids);
    merge_part<kPlain>(word, merging, ids);
  }

  template <bool kPlain>
  void merge_part(std::string_view word, Merging& merging, std::vector<TokenId>& ids) const {
    if (pre_.whole_words) {
      const TokenId whole = find_whole(word);
      if (whole >= 0) {
        ids.push_back(whole);
        return;
      }
    }
    std::vector<TokenId>& word_ids = merging.word_ids;
    word_ids.clear();
    for (char c : word) {
      // A byte that the vocabulary lacks vanishes, and its neighbours meet: what the Hugging Face
      // library does without an unknown token.
      TokenId id = byte_tokens_[static_cast<std::uint8_t>(c)];
      if (id < 0) {
        const bool fused = fuse_missing_ && !word_ids.empty() && word_ids.back() == missing_byte_;
        if (!fused) id = missing_byte_;
      }
      if (id >= 0) word_ids.push_back(id);
    }
    if constexpr (kPlain) {
      merging.merger.merge_by_heap(word_ids);
    } else {
      merging.merger.merge(word_ids);
    }
    ids.insert(ids.end(), word_ids.begin(), word_ids.end());
  }

  TokenId find_whole(std::string_view word) const {
    if (word.size() > texts_.text_bytes_max()) return -1;
    std::string visible;
    for (char c : word) visible += visible_byte(static_cast<std::uint8_t>(c));
    return texts_.find(visible);
  }

  PreTokenizer pre_;
  std::unique_ptr<const TextPipeline> pipeline_;
  TokenIndex texts_;  // as the vocabulary has them
  TokenIndex words_;  // as texts have them
  MergeTable merges_;
  SingleTokens singles_;
  std::array<TokenId, 256> byte_tokens_{};
  TokenId missing_byte_ = -1;
  bool fuse_missing_ = false;
};

}  // namespace

std::unique_ptr<Tokenizer> make_byte_level_bpe(ByteLevelParts parts) {
  return std::make_unique<ByteLevelBpe>(std::move(parts));
}

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
