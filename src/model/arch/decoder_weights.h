#pragma once
// The tensors of a decoder: which the file must have, with which shape and type, and their packed
// form. Weights keep no pointer into the file.

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

struct DecoderLayer {
  tensor::WeightVector attn_norm;
  Linear attn_q;
  Linear attn_k;
  Linear attn_v;
  Linear attn_output;
  tensor::WeightVector ffn_norm;
  Linear ffn_gate;
  Linear ffn_up;
  Linear ffn_down;
};

struct DecoderWeights {
  tensor::WeightMatrix token_embedding;
  std::vector<DecoderLayer> layers;
  tensor::WeightVector output_norm;
  Linear output;                       // weight empty: token_embedding is used ("tied")
  tensor::WeightVector rope_divisors;  // rope_freqs.weight, or empty
  const tensor::WeightMatrix& output_matrix() const {
    return output.weight.empty() ? token_embedding : output.weight;
  }
};

// What check_decoder_tensors found: totals for ModelInfo.
struct DecoderTensors {
  std::vector<const TensorInfo*> used;  // all that will be loaded
  std::int64_t parameters = 0;
  std::int64_t bytes = 0;                 // in the file
  std::int64_t matrix_elements = 0;       // multiplied for one token
  std::int64_t read_bytes_per_token = 0;  // read for one token, the embedding row included
};

// Every tensor's presence, shape and type, and nothing of its data. kBadFile, kUnsupported.
Result<DecoderTensors> check_decoder_tensors(const ModelFile& file, const DecoderSpec& spec);

// After check_decoder_tensors. `packed` is told the file bytes of each tensor when it is done.
// kOutOfMemory, kIo.
Result<DecoderWeights> load_decoder_weights(
    const ModelFile& file,
    const DecoderSpec& spec,
    tensor::ComputePool& pool,
    const std::function<void(std::uint64_t bytes)>& packed
);

}  // namespace artery::model
