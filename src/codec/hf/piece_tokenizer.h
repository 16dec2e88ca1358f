#pragma once
// What the two models on characters share: pieces of tokens, byte fallback and the unknown token.
// Private to the room. Immutable after construction, any thread.

#include <array>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "codec/hf/piece_model.h"
#include "codec/token_index.h"
#include "codec/vocab_tokenizer.h"

namespace artery::codec {

class PieceTokenizer : public VocabTokenizer {
 protected:
  // Takes of `parts` what it needs; leaves merges and scores.
  explicit PieceTokenizer(PieceParts& parts);

  // The tokens of the bytes of `character`, if there is one for each and fallback is on.
  bool append_bytes(std::string_view character, std::vector<TokenId>& ids) const;
  void append_unknown(bool behind_unknown, std::vector<TokenId>& ids) const {
    if (unknown_ >= 0 && !(fuse_unknown_ && behind_unknown)) ids.push_back(unknown_);
  }
  const TextPipeline& pipeline() const { return *pipeline_; }

  TokenIndex pieces_;  // of the model, with U+2581 or whatever stands for a space
  std::array<TokenId, 256> byte_tokens_{};
  TokenId unknown_;
  bool byte_fallback_, fuse_unknown_;

 private:
  std::unique_ptr<const TextPipeline> pipeline_;
};

}  // namespace artery::codec
