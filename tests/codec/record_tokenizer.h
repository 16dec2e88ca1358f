#pragma once
// The tokens of ../shared/golden/codec/token-bytes.json as a tokenizer: pieces as they are
// recorded. It encodes only where the whole tokenizer is at hand. Immutable, any thread.

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "codec/tokenizer.h"

namespace artery::codec {

class RecordTokenizer : public Tokenizer {
 public:
  // `whole`: may be null.
  RecordTokenizer(VocabData vocab, const Tokenizer* whole)
      : vocab_(std::move(vocab)), whole_(whole) {}

  // Whether encode() gives the true tokens; else it gives none.
  bool counts() const { return whole_ != nullptr; }

  const VocabData& vocab() const override { return vocab_; }
  std::vector<TokenId> encode(std::string_view text, const EncodeOptions& options) const override;
  std::string_view piece(TokenId id) const override;
  std::string decode(std::span<const TokenId> ids, bool skip_special) const override;

 private:
  VocabData vocab_;  // tokens: bytes
  const Tokenizer* whole_;
};

// `folder`: of the record, with its slash. The whole tokenizer is
// deepseek_tokenizer(). Null: the record cannot be read.
std::unique_ptr<RecordTokenizer> load_record_tokenizer(const std::string& folder);

}  // namespace artery::codec
