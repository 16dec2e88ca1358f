#pragma once
// Runs a Model without an engine: one sequence, its own pages, any chunking. What tests and
// `eval`-like checks need to ask a model for logits. Pages of window groups are taken away as soon
// as they are behind the window, as the engine does. Owns the KV memory; one thread.

#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "model/model.h"
#include "tensor/weights.h"

namespace artery::testing {

class ModelRunner {
 public:
  ModelRunner() = default;  // to be assigned to
  // Room for `tokens_max` positions. `model` outlives the runner. kOutOfMemory.
  static Result<ModelRunner> make(model::Model& model, std::int64_t tokens_max);

  // Continues the sequence by `tokens` in one forward; logits of the rows `logit_rows` (ascending,
  // within `tokens`), [rows, vocab].
  std::vector<float> step(
      std::span<const TokenId> tokens, std::span<const std::int32_t> logit_rows
  );

  // A new sequence: all of `tokens` in chunks of `chunk`; logits of the positions `wanted`
  // (ascending), [wanted, vocab].
  std::vector<float> run(
      std::span<const TokenId> tokens, std::span<const std::int32_t> wanted, std::int64_t chunk
  );
  // The same with the logits of every position.
  std::vector<float> run_all(std::span<const TokenId> tokens, std::int64_t chunk);

  std::int64_t vocab() const { return model_->info().vocab_size; }

 private:
  model::Model* model_ = nullptr;
  struct Group {
    model::KvGroup layout;
    tensor::HugeBuffer memory;
    std::vector<PageId> pages;
  };
  std::vector<Group> groups_;
  Position next_ = 0;
};

}  // namespace artery::testing
