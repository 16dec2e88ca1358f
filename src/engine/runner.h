#pragma once
// One forward pass: turns planned chunks into a ForwardBatch, checks the page rules and calls the
// model. Owns the step's arena (reused, so a step does not allocate once it has grown). Engine
// thread only; changes no sequence.

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "engine/kv_pool.h"
#include "engine/sequence_kv.h"
#include "model/model.h"

namespace artery::engine {

// Rows `first` .. `first + count - 1` of a sequence, whose pages are already held.
struct Chunk {
  std::span<const TokenId> tokens;  // the whole sequence's tokens
  const SequenceKv* kv = nullptr;
  std::int64_t count = 0;        // rows to run, from kv->computed() on
  std::int64_t logits_from = 0;  // logits are wanted from this row of the chunk on; count: none
};

class Runner {
 public:
  Runner(model::Model& model, KvPool& pool) : model_(model), pool_(pool) {}

  // Writes the chunks' KV and keeps their logits until the next run.
  void run(std::span<const Chunk> chunks);
  // Logits of row `row` (of the chunk, at least its logits_from) of chunk `chunk`: [vocab].
  std::span<const float> logits(std::size_t chunk, std::int64_t row) const;

 private:
  void add(const Chunk& chunk, std::int64_t pages_max, std::size_t at);

  model::Model& model_;
  KvPool& pool_;
  std::vector<TokenId> tokens_;
  std::vector<Position> positions_;
  std::vector<std::int32_t> offsets_;
  std::vector<PageId> page_table_;
  std::vector<std::int32_t> logit_rows_;
  std::vector<std::int64_t>
      first_logit_;  // per chunk: index of its row 0 in the logits, may be < 0
  std::vector<float> logits_;
};

}  // namespace artery::engine
