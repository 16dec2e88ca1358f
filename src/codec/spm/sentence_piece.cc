#include "codec/spm/sentence_piece.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "codec/byte_hash.h"
#include "codec/single_tokens.h"
#include "codec/spm/piece_borders.h"
#include "codec/spm/piece_merger.h"
#include "codec/token_index.h"
#include "codec/vocab_tokenizer.h"
#include "codec/word_cache.h"

namespace artery::codec {
namespace {

constexpr std::string_view kSpace = "\xE2\x96\x81";  // U+2581 stands for a space in pieces

constexpr std::size_t kWordBytesMax = std::size_t{1} << 30;  // places are numbered with 32 bits

// Ascending order of the result is descending order of scores. Not a number counts as the worst:
// a file may hold anything, and a heap needs an order.
std::uint32_t order_of_score(float score) {
  if (std::isnan(score)) return std::numeric_limits<std::uint32_t>::max();
  const auto bits = std::bit_cast<std::uint32_t>(score + 0.0F);  // -0 is 0
  const std::uint32_t ascending = (bits >> 31) != 0 ? ~bits : bits | 0x80000000U;
  return ~ascending;
}

// "<0x0A>" is byte 10.
std::optional<std::uint8_t> byte_of_text(std::string_view text) {
  if (text.size() != 6 || text.substr(0, 3) != "<0x" || text[5] != '>') return std::nullopt;
  unsigned value = 0;
  for (char c : text.substr(3, 2)) {
    unsigned digit = 0;
    if (c >= '0' && c <= '9') {
      digit = static_cast<unsigned>(c - '0');
    } else if (c >= 'A' && c <= 'F') {
      digit = static_cast<unsigned>(c - 'A') + 10;
    } else if (c >= 'a' && c <= 'f') {
      digit = static_cast<unsigned>(c - 'a') + 10;
    } else {
      return std::nullopt;
    }
    value = value * 16 + digit;
  }
  return static_cast<std::uint8_t>(value);
}

std::string replace_all(std::string_view text, std::string_view from, std::string_view to) {
  std::string out;
  out.reserve(text.size() + text.size() / 2);
  while (true) {
    const std::size_t found = text.find(from);
    out += text.substr(0, found);
    if (found == std::string_view::npos) return out;
    out += to;
    text.remove_prefix(found + from.size());
  }
}

class SentencePiece final : public VocabTokenizer {
 public:
  explicit SentencePiece(VocabData data)
      : VocabTokenizer(std::move(data)),
        pieces_(data_.tokens.size(), text_bytes()),
        singles_(data_.tokens.size()) {
    byte_tokens_.fill(-1);
    for (std::size_t id = 0; id < data_.tokens.size(); ++id) {
      const std::string& text = data_.tokens[id];
      const auto token = static_cast<TokenId>(id);
      if (is_kind(id, TokenKind::kUserDefined))
        user_defined_.add(replace_all(text, " ", kSpace), token, false);
      // Control, unknown, unused and byte tokens never come from characters.
      if (is_kind(id, TokenKind::kNormal) || is_kind(id, TokenKind::kUserDefined)) {
        pieces_.add(text, token);
        borders_.add(text);
      }
      const std::optional<std::uint8_t> byte =
          is_kind(id, TokenKind::kByte) ? byte_of_text(text) : std::nullopt;
      if (byte) {
        const char shown = static_cast<char>(*byte);
        add_piece({&shown, 1});
        if (byte_tokens_[*byte] < 0) byte_tokens_[*byte] = token;
      } else {
        add_piece(is_hidden(id) ? text : replace_all(text, kSpace, " "));
      }
    }
    order_.reserve(data_.scores.size());
    for (float score : data_.scores) order_.push_back(order_of_score(score));
  }

 protected:
  void encode_text(std::string_view text, Place place, std::vector<TokenId>& ids) const override {
    std::string normalized;
    if (place.after_control && data_.add_space_prefix) normalized = kSpace;
    normalized += replace_all(text, " ", kSpace);
    // User-defined pieces are matched behind the replacement: files write them with spaces or with
    // U+2581, and both mean the same.
    const std::string_view all = normalized;
    Merging merging{PieceMerger(pieces_, order_), WordCache(all.size())};
    for (std::size_t pos = 0; pos < all.size();) {
      const SpecialMatch match = user_defined_.find(all, pos, false, {});
      const std::string_view stretch = all.substr(pos, match.begin - pos);
      if (place.plain) {
        encode_stretch_plainly(stretch, merging, ids);
      } else {
        encode_stretch(stretch, merging, ids);
      }
      if (match.id >= 0) ids.push_back(match.id);
      pos = match.end;
    }
  }

 private:
  // What one call needs; memory is kept from word to word.
  struct Merging {
    PieceMerger merger;
    WordCache cache;
  };

  std::size_t text_bytes() const {
    std::size_t bytes = 0;
    for (const std::string& text : data_.tokens) bytes += text.size();
    return bytes;
  }

  void encode_stretch_plainly(std::string_view text, Merging& merging, std::vector<TokenId>& ids)
      const {
    for (; !text.empty(); text.remove_prefix(std::min(text.size(), kWordBytesMax))) {
      const std::string_view part = text.substr(0, kWordBytesMax);
      append_symbols(part, merging.merger.merge_by_heap(part), ids);
    }
  }

  void encode_stretch(std::string_view text, Merging& merging, std::vector<TokenId>& ids) const {
    while (!text.empty()) {
      const std::string_view word =
          text.substr(0, std::min(borders_.part_bytes(text), kWordBytesMax));
      text.remove_prefix(word.size());
      const std::uint64_t hash = hash_bytes(word);
      const TokenId whole = pieces_.find(word, hash);
      if (singles_.known(whole)) {
        ids.push_back(whole);
        continue;
      }
      WordCache::Entry* place = merging.cache.place(word, hash);
      if (WordCache::append_known(place, word, ids)) continue;
      const std::size_t first = ids.size();
      append_symbols(word, merging.merger.merge(word), ids);
      if (place != nullptr) *place = {word, first, ids.size() - first};
      if (ids.size() == first + 1 && ids.back() == whole) singles_.note(whole);
    }
  }

  void append_symbols(
      std::string_view word,
      const std::vector<PieceMerger::Symbol>& symbols,
      std::vector<TokenId>& ids
  ) const {
    for (std::uint32_t at = 0; at != PieceMerger::kNone; at = symbols[at].next) {
      const PieceMerger::Symbol& symbol = symbols[at];
      if (symbol.id >= 0) {
        ids.push_back(symbol.id);
      } else {
        append_bytes(word.substr(symbol.begin, symbol.bytes), ids);
      }
    }
  }

  // A character that is no piece: its bytes, or the unknown token when the vocabulary lacks one.
  void append_bytes(std::string_view character, std::vector<TokenId>& ids) const {
    const std::size_t before = ids.size();
    for (char c : character) {
      const TokenId id = byte_tokens_[static_cast<std::uint8_t>(c)];
      if (id >= 0) {
        ids.push_back(id);
        continue;
      }
      ids.resize(before);
      if (data_.unknown >= 0) ids.push_back(data_.unknown);
      return;
    }
  }

  TokenIndex pieces_;
  PieceBorders borders_;
  std::vector<std::uint32_t> order_;  // [tokens], see order_of_score
  SpecialTokens user_defined_;        // with U+2581 for spaces
  std::array<TokenId, 256> byte_tokens_{};
  SingleTokens singles_;
};

}  // namespace

Result<std::unique_ptr<Tokenizer>> make_sentence_piece(VocabData data) {
  return std::make_unique<SentencePiece>(std::move(data));
}

}  // namespace artery::codec
