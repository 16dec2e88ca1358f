// BPE by merges over characters (models/bpe/model.rs of the Hugging Face library).

#include <algorithm>
#include <cstdint>
#include <utility>

#include "codec/bpe/merge_table.h"
#include "codec/byte_hash.h"
#include "codec/hf/piece_model.h"
#include "codec/hf/piece_tokenizer.h"
#include "codec/single_tokens.h"
#include "codec/spm/piece_borders.h"
#include "codec/unicode.h"
#include "codec/word_cache.h"

namespace artery::codec {
namespace {

constexpr std::size_t kWordBytesMax = std::size_t{1} << 30;  // symbols are numbered with 32 bits

class CharBpe final : public PieceTokenizer {
 public:
  explicit CharBpe(PieceParts parts)
      : PieceTokenizer(parts),
        ignore_merges_(parts.ignore_merges),
        merges_(parts.merges.size()),
        singles_(data_.tokens.size()) {
    const auto special = [&](TokenId id) {
      const auto at = static_cast<std::size_t>(id);
      return id == unknown_ || is_kind(at, TokenKind::kByte);
    };
    // Of a pair given twice the table keeps the first, the library the last.
    for (std::size_t rank = parts.merges.size(); rank-- > 0;) {
      const IdMerge& merge = parts.merges[rank];
      merges_.add(merge.left, merge.right, static_cast<std::uint32_t>(rank), merge.joined);
      borders_.add(data_.tokens[static_cast<std::size_t>(merge.joined)]);
      // Then what is joined is not the text of the joined token.
      if (special(merge.left) || special(merge.right)) has_borders_ = false;
    }
  }

 protected:
  void encode_text(std::string_view text, Place place, std::vector<TokenId>& ids) const override {
    Merging merging{WordMerger(merges_), WordCache(text.size()), {}};
    const bool lasts = pipeline().words_last();
    pipeline().run(
        text,
        place.at_start,
        [&](std::string_view word) { encode_word(word, place.plain, lasts, merging, ids); },
        [&](TokenId id) { ids.push_back(id); }
    );
  }

 private:
  // What one call needs; memory is kept from word to word.
  struct Merging {
    WordMerger merger;
    WordCache cache;
    std::vector<TokenId> symbols;
  };

  // `lasts`: the word's memory lives as long as `merging` is used.
  void encode_word(
      std::string_view word, bool plain, bool lasts, Merging& merging, std::vector<TokenId>& ids
  ) const {
    if (ignore_merges_) {
      if (const TokenId whole = pieces_.find(word); whole >= 0) {
        ids.push_back(whole);
        return;
      }
    }
    const std::size_t first = ids.size();
    const bool cut = has_borders_ && !plain;
    while (!word.empty()) {
      const std::size_t bytes = cut ? borders_.part_bytes(word) : word.size();
      const std::string_view part = word.substr(0, std::min(bytes, kWordBytesMax));
      word.remove_prefix(part.size());
      const bool behind_unknown = ids.size() > first && ids.back() == unknown_;
      if (plain) {
        merge_part(part, behind_unknown, merging, ids, true);
      } else {
        encode_part(part, behind_unknown, lasts, merging, ids);
      }
    }
  }

  void encode_part(
      std::string_view part,
      bool behind_unknown,
      bool lasts,
      Merging& merging,
      std::vector<TokenId>& ids
  ) const {
    const std::uint64_t hash = hash_bytes(part);
    const TokenId whole = pieces_.find(part, hash);
    if (singles_.known(whole)) {
      ids.push_back(whole);
      return;
    }
    WordCache::Entry* place = lasts && !behind_unknown ? merging.cache.place(part, hash) : nullptr;
    if (WordCache::append_known(place, part, ids)) return;
    const std::size_t first = ids.size();
    merge_part(part, behind_unknown, merging, ids, false);
    if (place != nullptr) *place = {part, first, ids.size() - first};
    if (ids.size() == first + 1 && ids.back() == whole && whole != unknown_) singles_.note(whole);
  }

  void merge_part(
      std::string_view part,
      bool behind_unknown,
      Merging& merging,
      std::vector<TokenId>& ids,
      bool by_heap
  ) const {
    std::vector<TokenId>& symbols = merging.symbols;
    symbols.clear();
    for (std::size_t pos = 0; pos < part.size();) {
      const Utf8Char c = decode_utf8(part, pos);
      const std::size_t bytes = c.state == Utf8State::kValid ? c.bytes : 1;
      const std::string_view character = part.substr(pos, bytes);
      pos += bytes;
      if (const TokenId id = pieces_.find(character); id >= 0) {
        symbols.push_back(id);
      } else if (!append_bytes(character, symbols)) {
        append_unknown(symbols.empty() ? behind_unknown : symbols.back() == unknown_, symbols);
      }
    }
    if (by_heap) {
      merging.merger.merge_by_heap(symbols);
    } else {
      merging.merger.merge(symbols);
    }
    ids.insert(ids.end(), symbols.begin(), symbols.end());
  }

  bool ignore_merges_;
  MergeTable merges_;
  PieceBorders borders_;
  bool has_borders_ = true;
  SingleTokens singles_;
};

}  // namespace

std::unique_ptr<Tokenizer> make_char_bpe(PieceParts parts) {
  return std::make_unique<CharBpe>(std::move(parts));
}

}  // namespace artery::codec
