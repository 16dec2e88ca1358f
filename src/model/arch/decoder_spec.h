#pragma once
// The numbers that make one decoder out of the families "RMS norm, grouped-query attention with
// RoPE, gated feed-forward, dense or a mixture of experts": what the files of the families fill in,
// checked against the model file. Values, any thread.

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "model/arch/hyper_parameters.h"
#include "model/arch/rope.h"
#include "model/format/model_file.h"
#include "tensor/backend.h"

namespace artery::model {

// A mixture of experts in the place of each layer's feed-forward.
struct ExpertSpec {
  std::int64_t count = 0;                // 0: dense layers
  std::int64_t feed_forward = 0;         // of one expert
  std::int64_t shared_feed_forward = 0;  // of the expert that all rows take; 0: there is none
  tensor::RouterShape router;
};

struct DecoderSpec {
  std::string architecture;
  std::int64_t layers = 0;
  std::int64_t embedding = 0;
  std::int64_t feed_forward = 0;  // of dense layers
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t vocab = 0;
  std::int64_t context = 0;
  float eps = 0;
  float attention_scale = 0;  // multiplies q.k
  float embedding_scale = 1;

  // Layers that see only the last `window` positions; windowed is empty or [layers].
  int window = 0;
  std::vector<bool> windowed;
  RopeSpec rope;         // of layers that see all
  RopeSpec window_rope;  // of the others

  tensor::Gating gating = tensor::Gating::kSilu;
  ExpertSpec experts;

  // Which tensors there are besides those of a Llama.
  bool qkv_bias_required = false;           // else biases are used where the file has them
  bool qk_norms = false;                    // RMS norms of each head of q and k
  bool post_norms = false;                  // norms of what attention and feed-forward give
  bool sinks = false;                       // a logit per head that takes part in the softmax
  bool fused = false;                       // attn_qkv, and ffn_up holds gate and up
  bool post_attention_is_ffn_norm = false;  // "post_attention_norm" is what others call "ffn_norm"

  std::int64_t q_rows() const { return heads * head_dim; }
  std::int64_t kv_rows() const { return kv_heads * head_dim; }
  bool is_windowed(std::int64_t layer) const {
    return !windowed.empty() && windowed[static_cast<std::size_t>(layer)];
  }
};

// Reads the keys all families share and checks them against token_embd.weight and the number of
// blocks, so that nothing sized by a hyper-parameter is larger than what the file holds. Dense
// layers that see all positions; what a family adds to that it reads with the calls below.
// kBadFile, kUnsupported.
Result<DecoderSpec> read_decoder_spec(
    const ModelFile& file, std::string_view architecture, tensor::RopeStyle style
);

// Sliding windows, "attention.sliding_window": 0 or absent: none. Without a list in the file
// ("attention.sliding_window_pattern", a flag per layer or the period) the last layer of each
// `period` sees all positions; period 0: none does; period 1: all do, and a window is refused. The
// windows' RoPE is that of the other layers. kBadFile, kUnsupported.
constexpr int kOnlyListed = -1;  // no windows without a list: which layers have them is not known
Result<> read_windows(const HyperParameters& hyper, int period, DecoderSpec& spec);

// "expert_count" and what belongs to it, when it is above 0. `router`: how the family chooses; its
// `used` is read, its `renormalize` where the file tells. kBadFile, kUnsupported.
Result<> read_experts(const HyperParameters& hyper, tensor::RouterShape router, DecoderSpec& spec);

// After all of the above: refuses what the file asks for and the spec does not have: experts,
// capped logits, attention that is not causal. kUnsupported.
Result<> refuse_the_rest(const HyperParameters& hyper, const DecoderSpec& spec);

}  // namespace artery::model
