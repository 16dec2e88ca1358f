#pragma once
// A loaded model: immutable weights plus the forward pass. `forward` is called by one thread at a
// time (the engine thread); the rest from any thread.

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "model/forward_batch.h"
#include "model/kv_layout.h"

namespace artery::model {

struct ModelInfo {
  std::string architecture;         // "llama", "qwen2"
  std::string name;                 // general.name, or the file's stem
  std::int64_t vocab_size = 0;      // columns of the logits
  std::int64_t context_length = 0;  // trained for; of a loaded model at most options.context_max
  std::int64_t embedding_length = 0;
  int layers = 0;
  std::int64_t parameters = 0;
  std::int64_t weight_bytes = 0;          // as held in memory
  std::int64_t read_bytes_per_token = 0;  // weights read to decode one token
  std::int64_t ops_per_token = 0;         // multiply-adds x 2 of the matrices for one token
  std::string weights_digest;             // hex SHA-256 tree hash of the file's bytes
  std::string slow_types;  // block types without a fast kernel and their share; empty: none
  std::vector<std::string> warnings;  // odd but harmless: unused tensors, duplicate tokens, ...
};

class Model {
 public:
  virtual ~Model() = default;
  virtual const ModelInfo& info() const = 0;
  virtual KvLayout kv_layout() const = 0;

  // Runs the batch: writes KV entries of every token into their pages, and the logits of
  // `batch.logit_rows` to `logits` [logit_rows, vocab_size], float32. Tokens are in [0, vocab_size)
  // and positions below the context length: the engine checked them.
  virtual void forward(const ForwardBatch& batch, std::span<float> logits) = 0;

  // The threads forward runs on, free between forwards: the engine samples on them. Null: none.
  virtual tensor::ComputePool* compute_pool() { return nullptr; }
};

// Everything that decides the bits of KV entries and logits, besides the weights:
// "fast-1/kv-int16".
using NumericsId = std::string;

}  // namespace artery::model
