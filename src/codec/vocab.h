#pragma once
// A vocabulary as values: the text side's view of a model. The engine sees only this header and
// grammar/. Built once from the model file by `cli`, immutable, any thread.

#include <cstdint>
#include <string>
#include <vector>

#include "base/ids.h"

namespace artery::codec {

enum class TokenKind : std::uint8_t {
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,
  kUserDefined = 4,
  kUnused = 5,
  kByte = 6
};

enum class TokenizerModel {
  kByteLevelBpe,
  kSentencePiece
};  // tokenizer.ggml.model "gpt2" / "llama"

// Marks of text insertion (codec/infill.h); all known, or none.
struct InfillTokens {
  TokenId prefix = -1, suffix = -1, middle = -1;
  bool known() const { return prefix >= 0 && suffix >= 0 && middle >= 0; }
};

// The tokenizer's data, in the form GGUF metadata has it. `cli/vocab_loader` fills it from a file.
struct VocabData {
  TokenizerModel model = TokenizerModel::kByteLevelBpe;
  std::string pre;  // tokenizer.ggml.pre: "gpt-2", "qwen2", "smollm", "llama-bpe", "default"
  std::vector<std::string>
      tokens;  // as stored: byte-level BPE in GPT-2's visible alphabet, SPM with U+2581
  std::vector<float> scores;        // SentencePiece; may be empty for BPE
  std::vector<TokenKind> kinds;     // same length as tokens
  std::vector<std::string> merges;  // "a b", byte-level BPE
  TokenId bos = -1, eos = -1, unknown = -1, padding = -1;
  std::vector<TokenId>
      end_of_generation;  // union of eos, eot, eom and the family's known end tokens (FR-D6)
  InfillTokens infill;
  bool add_bos = false;
  bool add_eos = false;
  bool add_space_prefix = true;  // SentencePiece's dummy space
};

}  // namespace artery::codec
