#pragma once
// Text to token ids and back. Immutable after construction, any thread, linear in the length of a
// word, no recursion. Byte-level BPE (GPT-2 family) and SentencePiece BPE, from GGUF metadata.

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "codec/vocab.h"

namespace artery::codec {

struct ByteRange {
  std::size_t begin = 0, end = 0;
};

struct EncodeOptions {
  bool add_special =
      false;  // BOS/EOS as the vocabulary asks (BOS not doubled when the text starts with it)
  bool parse_special = false;  // text of control tokens becomes the token
  // Parts of the text that are data, ascending and disjoint: a control token's text overlapping one
  // stays text even with parse_special (FR-B7). Everything else about tokenization is as if they
  // were not marked.
  std::span<const ByteRange> literal = {};
  // No token at all is matched as a whole text, not even those that files call user-defined: the
  // text is nothing but data. parse_special and `literal` do not matter then.
  bool no_added = false;
  // The slow twin, without tables and caches of whole words: for tests, which compare the two.
  bool plain = false;
};

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  // kBadFile: lengths differ, unknown model, merges missing.
  static Result<std::unique_ptr<Tokenizer>> make(VocabData data);

  virtual const VocabData& vocab() const = 0;
  virtual std::vector<TokenId> encode(std::string_view text, const EncodeOptions& options)
      const = 0;
  // Bytes of one token as it appears inside a text (SPM: U+2581 as a space; control tokens: their
  // text). Out of range: empty.
  virtual std::string_view piece(TokenId id) const = 0;
  // Joined pieces; SPM: the dummy space at the very start is taken off. skip_special leaves control
  // tokens out.
  virtual std::string decode(std::span<const TokenId> ids, bool skip_special) const = 0;
  bool is_control(TokenId id) const;
  bool is_added(TokenId id) const;  // control tokens and what files call user-defined
  bool is_end_of_generation(TokenId id) const;
};

}  // namespace artery::codec
