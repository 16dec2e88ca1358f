#pragma once
// What both kinds of tokenizer share: the vocabulary, the pieces, control tokens and BOS/EOS. A
// kind adds how plain text becomes tokens. Immutable after construction, any thread.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "codec/added_tokens.h"
#include "codec/tokenizer.h"

namespace artery::codec {

class VocabTokenizer : public Tokenizer {
 public:
  const VocabData& vocab() const final { return data_; }
  std::vector<TokenId> encode(std::string_view text, const EncodeOptions& options) const final;
  std::string_view piece(TokenId id) const final;
  std::string decode(std::span<const TokenId> ids, bool skip_special) const final;

 protected:
  // Matches the control tokens of `data`; a kind of tokenizer adds its user-defined ones.
  explicit VocabTokenizer(VocabData data);
  // Matches `added` and nothing else.
  VocabTokenizer(VocabData data, AddedTokens added);

  struct Place {
    bool after_control;  // at the start of the whole text or right behind a control token
    bool at_start;       // at the start of the whole text
    bool plain;          // EncodeOptions::plain
  };
  // Appends the tokens of `text`, which holds no special token to be parsed.
  virtual void encode_text(std::string_view text, Place place, std::vector<TokenId>& ids) const = 0;

  bool is_kind(std::size_t id, TokenKind kind) const { return data_.kinds[id] == kind; }
  // Control and unknown tokens: matched only where asked for, never made by merges.
  bool is_hidden(std::size_t id) const;
  // Called once for each id, ascending.
  void add_piece(std::string_view bytes);

  VocabData data_;
  AddedTokens special_;  // matched in the text as it comes

 private:
  void encode_sections(
      std::string_view text, const EncodeOptions& options, bool wants_bos, std::vector<TokenId>& ids
  ) const;

  std::string piece_bytes_;                        // all pieces, one after the other
  std::vector<std::uint32_t> piece_starts_ = {0};  // [tokens + 1]
};

}  // namespace artery::codec
