#pragma once
// A tokenizer.json as values: what is read of it, before anything is made of it. Private to the
// room.

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "codec/bpe/byte_level_bpe.h"
#include "codec/hf/text_pipeline.h"

namespace artery::codec {

struct SpecToken {
  TokenId id = -1;
  std::string text;
  bool special = false, normalized = false;
  AddedRules rules;
};

struct TokenizerSpec {
  enum class Model : std::uint8_t { kBpe, kUnigram };

  std::vector<NormalizeStep> normalizers;
  std::vector<CutStep> cuts;  // without the change to bytes
  bool byte_level = false;    // the last pre-tokenizer turns words into bytes
  std::vector<SpecToken> added;

  Model model = Model::kBpe;
  std::vector<std::string> tokens;  // by id; empty where the model has none
  std::vector<bool> in_model;       // [tokens]
  std::vector<double> scores;       // Unigram, [tokens]
  std::vector<IdMerge> merges;      // BPE
  TokenId unknown = -1;
  bool byte_fallback = false, fuse_unknown = false, ignore_merges = false;

  TokenId bos = -1, eos = -1;  // what the post-processor puts before and behind; -1: nothing

  bool decodes_bytes = false;   // decoder ByteLevel
  bool decodes_spaces = false;  // U+2581 is a space
  bool strips_space = false;    // one space at the start of a text goes
};

// Limits: what real files are far below.
constexpr std::size_t kTokenizerJsonBytesMax = std::size_t{512} << 20;
constexpr std::size_t kTokensMax = std::size_t{1} << 22;
constexpr std::size_t kStepsMax = 64;

// kBadFile: not JSON, a field missing, of another type or out of range; kUnsupported: a well-formed
// part that this build lacks. The message begins with the place in the file.
Result<TokenizerSpec> read_tokenizer_json(std::string_view text);

}  // namespace artery::codec
