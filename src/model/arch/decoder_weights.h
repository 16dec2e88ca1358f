#pragma once
// A decoder's weights in packed form. They keep no pointer into the file. Immutable after loading,
// any thread.

#include <cstdint>
#include <functional>
#include <vector>

#include "base/result.h"
#include "model/arch/decoder_spec.h"
#include "model/format/model_file.h"
#include "tensor/compute_pool.h"
#include "tensor/weights.h"

namespace artery::model {

struct Linear {
  tensor::WeightMatrix weight;
  tensor::WeightVector bias;  // empty when the file has none
};

// Empty where the family has no such tensor.
struct DecoderLayer {
  tensor::WeightVector attn_norm;
  tensor::WeightVector attn_q_norm;
  tensor::WeightVector attn_k_norm;
  tensor::WeightVector attn_sinks;
  tensor::WeightVector attn_post_norm;
  Linear attn_q;
  Linear attn_k;
  Linear attn_v;
  Linear attn_output;
  tensor::WeightVector ffn_norm;
  tensor::WeightVector ffn_post_norm;
  Linear ffn_gate;  // of the shared expert in a mixture
  Linear ffn_up;
  Linear ffn_down;
  Linear shared_router;  // one output
  Linear router;         // float32 whatever the file has: routing decides which weights are used
  std::vector<tensor::WeightMatrix> expert_gate;
  std::vector<tensor::WeightMatrix> expert_up;
  std::vector<tensor::WeightMatrix> expert_down;
  tensor::WeightVector expert_gate_bias;  // of all experts, one after the other
  tensor::WeightVector expert_up_bias;
  tensor::WeightVector expert_down_bias;
};

struct DecoderWeights {
  tensor::WeightMatrix token_embedding;
  std::vector<DecoderLayer> layers;
  tensor::WeightVector output_norm;
  Linear output;                       // weight empty: token_embedding is used ("tied")
  tensor::WeightVector rope_divisors;  // divisors_tensor() of rope.h, or empty
  const tensor::WeightMatrix& output_matrix() const {
    return output.weight.empty() ? token_embedding : output.weight;
  }
  std::int64_t bytes = 0;  // of all of them in memory
};

// After check_decoder_tensors. `context`: positions that will be served. `packed` is told the file
// bytes of each tensor when it is done. kOutOfMemory, kIo.
Result<DecoderWeights> load_decoder_weights(
    const ModelFile& file,
    const DecoderSpec& spec,
    std::int64_t context,
    tensor::ComputePool& pool,
    const std::function<void(std::uint64_t bytes)>& packed
);

}  // namespace artery::model
