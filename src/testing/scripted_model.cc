#include "testing/scripted_model.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "base/check.h"
#include "testing/hash_model.h"

namespace artery::testing {
namespace {

constexpr float kSure = 50.0f;

}  // namespace

ScriptedModel::ScriptedModel(ScriptedModelConfig config) : config_(std::move(config)) {
  info_.architecture = "scripted";
  info_.name = "scripted";
  info_.vocab_size = config_.vocab_size;
  info_.context_length = config_.context_length;
  info_.weights_digest = "scripted";
}

void ScriptedModel::add(std::vector<TokenId> trigger, std::vector<TokenId> script) {
  CHECK(!trigger.empty());
  triggers_.emplace_back(std::move(trigger), std::move(script));
}

model::KvLayout ScriptedModel::kv_layout() const { return kv_entry_layout("scripted-1"); }

TokenId ScriptedModel::next_token(const std::vector<TokenId>& text) const {
  const std::vector<TokenId>* script = &config_.script;
  for (const auto& [trigger, reply] : triggers_) {
    const auto found = std::search(text.begin(), text.end(), trigger.begin(), trigger.end());
    if (found != text.end()) script = &reply;
  }
  for (std::size_t said = std::min(script->size(), text.size()); said > 0; --said) {
    const auto tail = text.end() - static_cast<std::ptrdiff_t>(said);
    if (!std::equal(tail, text.end(), script->begin())) continue;
    return said == script->size() ? config_.end_token : (*script)[said];
  }
  return script->empty() ? config_.end_token : script->front();
}

void ScriptedModel::forward(const model::ForwardBatch& batch, std::span<float> logits) {
  ++forwards_;
  if (const int delay = delay_us_; delay > 0) {
    std::this_thread::sleep_for(std::chrono::microseconds(delay));
  }
  const auto vocab = static_cast<std::size_t>(info_.vocab_size);
  std::size_t wanted = 0;
  for (std::int64_t sequence = 0; sequence < batch.sequences(); ++sequence) {
    const auto s = static_cast<std::size_t>(sequence);
    for (std::int32_t row = batch.offsets[s]; row < batch.offsets[s + 1]; ++row) {
      const auto r = static_cast<std::size_t>(row);
      const Position position = batch.positions[r];
      *kv_entry(batch, sequence, position) = {0, batch.tokens[r], position};
      if (wanted == batch.logit_rows.size() || batch.logit_rows[wanted] != row) continue;
      std::vector<TokenId> text;
      for (Position at = 0; at <= position; ++at) {
        text.push_back(kv_entry(batch, sequence, at)->token);
      }
      const std::span<float> out = logits.subspan(wanted * vocab, vocab);
      std::fill(out.begin(), out.end(), 0.0f);
      out[static_cast<std::size_t>(next_token(text))] = kSure;
      ++wanted;
    }
  }
}

}  // namespace artery::testing
