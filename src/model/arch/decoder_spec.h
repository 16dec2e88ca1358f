#pragma once
// The numbers that make one pre-norm decoder out of the family "RMS norm, grouped-query attention
// with RoPE, SwiGLU": what llama.cc and qwen2.cc fill in, checked against the file. Values, any
// thread.

#include <cstdint>
#include <string>

#include "base/result.h"
#include "model/arch/rope.h"
#include "model/format/model_file.h"

namespace artery::model {

struct DecoderSpec {
  std::string architecture;
  std::int64_t layers = 0;
  std::int64_t embedding = 0;
  std::int64_t feed_forward = 0;
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t vocab = 0;
  std::int64_t context = 0;
  float eps = 0;
  float attention_scale = 0;       // multiplies q.k
  bool qkv_bias_required = false;  // else biases are used where the file has them
  RopeSpec rope;
  std::int64_t q_rows() const { return heads * head_dim; }
  std::int64_t kv_rows() const { return kv_heads * head_dim; }
};

// Reads the keys all families share and checks them against token_embd.weight and the number of
// blocks, so that nothing sized by a hyper-parameter is larger than what the file holds. Refuses
// what the decoder cannot do: experts, sliding windows, split files. kBadFile, kUnsupported.
Result<DecoderSpec> read_decoder_spec(
    const ModelFile& file, std::string_view architecture, tensor::RopeStyle style
);

}  // namespace artery::model
