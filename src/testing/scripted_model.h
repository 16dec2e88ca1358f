#pragma once
// A model that says a given text (design, "Seams"): logits are +large at the next token of a
// script. It keeps token ids in the KV pages and reads them back, so preemption, caching and
// batching work as with a real model, and it holds no state between calls.
//
// The next token is the one after the longest start of the script that the text so far ends with;
// after the whole script comes `end_token`. So the reply starts after any prompt, as long as the
// prompt does not end with the script's own beginning. One thread once the engine runs it.

#include <atomic>
#include <cstdint>
#include <utility>
#include <vector>

#include "model/model.h"

namespace artery::testing {

struct ScriptedModelConfig {
  std::int64_t vocab_size = 0;
  std::int64_t context_length = 4096;
  TokenId end_token = 0;
  std::vector<TokenId> script;  // the reply to every prompt that no trigger fits
};

class ScriptedModel final : public model::Model {
 public:
  explicit ScriptedModel(ScriptedModelConfig config);

  // A text that contains `trigger` (not empty) is answered with `script`. Of several fitting ones
  // the one added last wins. Before the engine starts.
  void add(std::vector<TokenId> trigger, std::vector<TokenId> script);
  // Every forward sleeps that long. Any thread.
  void set_step_delay_us(int microseconds) { delay_us_ = microseconds; }
  std::int64_t forwards() const { return forwards_; }  // any thread

  const model::ModelInfo& info() const override { return info_; }
  model::KvLayout kv_layout() const override;
  void forward(const model::ForwardBatch& batch, std::span<float> logits) override;

 private:
  TokenId next_token(const std::vector<TokenId>& text) const;

  const ScriptedModelConfig config_;
  model::ModelInfo info_;
  std::vector<std::pair<std::vector<TokenId>, std::vector<TokenId>>> triggers_;
  std::atomic<int> delay_us_ = 0;
  std::atomic<std::int64_t> forwards_ = 0;
};

}  // namespace artery::testing
