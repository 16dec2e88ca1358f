#include "codec/spm/sentence_piece.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "codec/token_index.h"
#include "codec/unicode.h"
#include "codec/vocab_tokenizer.h"
#include "codec/word_cache.h"

namespace artery::codec {
namespace {

constexpr std::string_view kSpace = "\xE2\x96\x81";  // U+2581 stands for a space in pieces

constexpr std::uint32_t kNone = 0xFFFFFFFF;
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
  out.reserve(text.size());
  for (std::size_t pos = 0; pos < text.size();) {
    if (text.substr(pos, from.size()) == from) {
      out += to;
      pos += from.size();
    } else {
      out.push_back(text[pos++]);
    }
  }
  return out;
}

// Joins neighbours of one text while the joined text is a piece: best score first, of equal ones
// the leftmost. n log n in the length of the text, times a look-up no longer than the longest
// piece.
class PieceMerger {
 public:
  struct Symbol {
    std::uint32_t begin, bytes;  // 0 bytes: joined to the one before
    std::uint32_t previous, next;
    TokenId id;  // -1: not a piece
  };

  PieceMerger(const TokenIndex& pieces, const std::vector<std::uint32_t>& order)
      : pieces_(&pieces), order_(&order) {}

  // The symbols left, in a chain from symbol 0 along `next`.
  const std::vector<Symbol>& merge(std::string_view text) {
    text_ = text;
    split_characters();
    for (std::uint32_t i = 0; i < symbols_.size(); ++i) rate(i);
    while (!heap_.empty()) {
      std::pop_heap(heap_.begin(), heap_.end(), std::greater<>());
      const Candidate best = heap_.back();
      heap_.pop_back();
      const auto at = static_cast<std::uint32_t>(best.key);
      Symbol& left = symbols_[at];
      if (left.bytes == 0 || left.next == kNone) continue;
      Symbol& right = symbols_[left.next];
      if (left.bytes + right.bytes != best.bytes) continue;  // one side has grown since
      left.bytes = best.bytes;
      left.id = best.id;
      left.next = right.next;
      right.bytes = 0;
      if (left.next != kNone) symbols_[left.next].previous = at;
      rate(at);
      if (left.previous != kNone) rate(left.previous);
    }
    return symbols_;
  }

 private:
  struct Candidate {
    std::uint64_t key;  // order of the score, then place
    std::uint32_t bytes;
    TokenId id;
    bool operator>(const Candidate& other) const { return key > other.key; }
  };

  void split_characters() {
    symbols_.clear();
    heap_.clear();
    for (std::size_t pos = 0; pos < text_.size();) {
      const Utf8Char c = decode_utf8(text_, pos);
      const std::size_t bytes = c.state == Utf8State::kValid ? c.bytes : 1;
      const auto at = static_cast<std::uint32_t>(symbols_.size());
      symbols_.push_back(
          {static_cast<std::uint32_t>(pos),
           static_cast<std::uint32_t>(bytes),
           at == 0 ? kNone : at - 1,
           at + 1,
           pieces_->find(text_.substr(pos, bytes))}
      );
      pos += bytes;
    }
    if (!symbols_.empty()) symbols_.back().next = kNone;
  }

  void rate(std::uint32_t at) {
    const Symbol& left = symbols_[at];
    if (left.next == kNone) return;
    const std::uint32_t bytes = left.bytes + symbols_[left.next].bytes;
    const TokenId id = pieces_->find(text_.substr(left.begin, bytes));
    if (id < 0) return;
    const std::uint64_t order = (*order_)[static_cast<std::size_t>(id)];
    heap_.push_back({(order << 32) | at, bytes, id});
    std::push_heap(heap_.begin(), heap_.end(), std::greater<>());
  }

  const TokenIndex* pieces_;
  const std::vector<std::uint32_t>* order_;
  std::string_view text_;
  std::vector<Symbol> symbols_;
  std::vector<Candidate> heap_;
};

class SentencePiece final : public VocabTokenizer {
 public:
  explicit SentencePiece(VocabData data)
      : VocabTokenizer(std::move(data)),
        pieces_(data_.tokens, mergeable()),
        independent_words_(spaces_begin_pieces(mergeable())) {
    byte_tokens_.fill(-1);
    std::vector<std::string> shown(data_.tokens.size());
    for (std::size_t id = 0; id < shown.size(); ++id) {
      const std::string& text = data_.tokens[id];
      const auto token = static_cast<TokenId>(id);
      shown[id] = is_hidden(id) ? text : replace_all(text, kSpace, " ");
      if (is_kind(id, TokenKind::kUserDefined))
        user_defined_.add(replace_all(text, " ", kSpace), token, false);
      if (!is_kind(id, TokenKind::kByte)) continue;
      const std::optional<std::uint8_t> byte = byte_of_text(text);
      if (!byte) continue;
      shown[id] = std::string(1, static_cast<char>(*byte));
      if (byte_tokens_[*byte] < 0) byte_tokens_[*byte] = token;
    }
    set_pieces(shown);
    order_.reserve(data_.scores.size());
    for (float score : data_.scores) order_.push_back(order_of_score(score));
  }

 protected:
  void encode_text(std::string_view text, bool after_control, std::vector<TokenId>& ids)
      const override {
    std::string normalized;
    if (after_control && data_.add_space_prefix) normalized = kSpace;
    normalized += replace_all(text, " ", kSpace);
    // User-defined pieces are matched behind the replacement: files write them with spaces or with
    // U+2581, and both mean the same.
    const std::string_view all = normalized;
    for (std::size_t pos = 0; pos < all.size();) {
      const SpecialMatch match = user_defined_.find(all, pos, false, {});
      encode_stretch(all.substr(pos, match.begin - pos), ids);
      if (match.id >= 0) ids.push_back(match.id);
      pos = match.end;
    }
  }

 private:
  // Control, unknown, unused and byte tokens never come from characters.
  std::vector<bool> mergeable() const {
    std::vector<bool> take(data_.tokens.size());
    for (std::size_t id = 0; id < take.size(); ++id)
      take[id] = is_kind(id, TokenKind::kNormal) || is_kind(id, TokenKind::kUserDefined);
    return take;
  }

  // Whether a space only ever begins a piece. Then no merge reaches over the border between a
  // character and a space behind it, and the words of a text are independent of each other.
  bool spaces_begin_pieces(const std::vector<bool>& take) const {
    for (std::size_t id = 0; id < take.size(); ++id) {
      const std::string_view text = data_.tokens[id];
      if (take[id] && word_bytes(text) < text.size()) return false;
    }
    return true;
  }

  // Bytes up to the first space that has another character before it.
  static std::size_t word_bytes(std::string_view text) {
    std::size_t pos = 0;
    while (text.substr(pos, kSpace.size()) == kSpace) pos += kSpace.size();
    return std::min(text.find(kSpace, pos), text.size());
  }

  void encode_stretch(std::string_view text, std::vector<TokenId>& ids) const {
    PieceMerger merger(pieces_, order_);
    WordCache cache(text.size());
    while (!text.empty()) {
      const std::size_t bytes = independent_words_ ? word_bytes(text) : text.size();
      const std::string_view word = text.substr(0, std::min(bytes, kWordBytesMax));
      text.remove_prefix(word.size());
      WordCache::Entry* place = cache.place(word);
      if (WordCache::append_known(place, word, ids)) continue;
      const std::size_t first = ids.size();
      encode_word(word, merger, ids);
      if (place != nullptr) *place = {word, first, ids.size() - first};
    }
  }

  void encode_word(std::string_view word, PieceMerger& merger, std::vector<TokenId>& ids) const {
    const std::vector<PieceMerger::Symbol>& symbols = merger.merge(word);
    for (std::uint32_t at = 0; at != kNone; at = symbols[at].next) {
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
  bool independent_words_;
  std::vector<std::uint32_t> order_;  // [tokens], see order_of_score
  SpecialTokens user_defined_;        // with U+2581 for spaces
  std::array<TokenId, 256> byte_tokens_{};
};

}  // namespace

Result<std::unique_ptr<Tokenizer>> make_sentence_piece(VocabData data) {
  return std::make_unique<SentencePiece>(std::move(data));
}

}  // namespace artery::codec
