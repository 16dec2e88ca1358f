#pragma once
// How each family's released checkpoint is called in GGUF's vocabulary: one table of tensors a
// family, and the numbers of its config.json that their shapes follow from. The GGUF names are
// those of gguf-py's constants, the others those of transformers' modeling files. Constants and
// values, any thread.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "model/format/hf_config.h"

namespace artery::model {

// What a dimension of a tensor must be.
enum class HfDim : std::uint8_t {
  kNone,
  kHidden,
  kVocab,
  kQ,    // heads * head size
  kKv,   // key/value heads * head size
  kQkv,  // kQ + 2 kKv
  kHeadDim,
  kHeads,
  kFeed,
  kTwoFeed,
  kExperts,
  kExpertFeed,
  kSharedFeed,
  kOne,
};

enum class HfLayout : std::uint8_t {
  kPlain,
  kNorm,  // one is added where the family's norms multiply by 1 + weight
  kQ,     // rows of heads, re-ordered where the family's GGUF rotates adjacent pairs
  kK,
  kBare,       // the checkpoint's name has no ".weight"
  kRowVector,  // [1, n] there, [n] here
  kExperts,    // a tensor for each expert, '*' is its number; or one for all, see `fused`
  kOssGate,    // gpt-oss: [experts, 2 * feed, ...], gate in even rows, up in odd ones
  kOssUp,
  kOssDown,
};

struct HfLine {
  std::string_view source;  // under "model.layers.N.", without ".weight"
  std::string_view target;  // under "blk.N."
  HfDim rows = HfDim::kNone;
  HfDim cols = HfDim::kNone;  // kNone: a vector of `rows`
  HfLayout layout = HfLayout::kPlain;
  // kExperts: the tensor [experts, rows, cols] that some writers use instead, and which of its
  // parts of `rows` rows this is.
  std::string_view fused = {};
  int fused_part = 0;
  int fused_parts = 1;
};

struct HfFamily {
  std::string_view model_type;    // of config.json
  std::string_view architecture;  // general.architecture
  std::span<const HfLine> layer;
  bool rotates_pairs = false;
  bool norm_adds_one = false;
  bool tied = false;  // tie_word_embeddings where config.json does not say
  std::string_view activation = "silu";
  double rope_theta = 10000;
};

struct HfSizes {
  std::int64_t layers = 0, hidden = 0, vocab = 0, context = 0, feed = 0;
  std::int64_t heads = 0, kv_heads = 0, head_dim = 0;
  std::int64_t experts = 0, experts_used = 0, expert_feed = 0, shared_feed = 0;
  std::int64_t of(HfDim dim) const;
  // "num_attention_heads 4 x head_dim 16": in config.json's words.
  std::string text(HfDim dim) const;
};

// By model_type. kBadFile: none given; kUnsupported: unknown, with the list of those we know.
Result<const HfFamily*> find_hf_family(const HfConfig& config);

// kBadFile: a number missing or impossible.
Result<HfSizes> read_hf_sizes(const HfConfig& config, const HfFamily& family);

}  // namespace artery::model
