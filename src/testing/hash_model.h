#pragma once
// A model for engine tests whose every bit depends on what it reads back from the KV pages. forward
// writes each token and a hash of all positions before it into the token's page, then reads the
// whole history through the page table; logits are a hash of what was read. A page shared wrongly,
// lost, written by another, or read at a wrong position changes the output. Costs the square of
// the context, so contexts stay in the hundreds.

#include <atomic>
#include <cstdint>
#include <functional>

#include "model/model.h"

namespace artery::testing {

class HashModel final : public model::Model {
 public:
  HashModel(std::int64_t vocab_size, std::int64_t context_length);

  const model::ModelInfo& info() const override { return info_; }
  model::KvLayout kv_layout() const override;
  void forward(const model::ForwardBatch& batch, std::span<float> logits) override;

  static std::int64_t page_bytes();
  // Of a stored record; before an engine is made.
  void set_record_pages(int pages) { record_pages_ = pages; }
  // Called at the start of every forward, on the engine thread.
  void set_on_forward(std::function<void(const model::ForwardBatch&)> hook) {
    on_forward_ = std::move(hook);
  }

 private:
  model::ModelInfo info_;
  int record_pages_ = 16;
  std::function<void(const model::ForwardBatch&)> on_forward_;
};

// What a fake model keeps at one position.
struct KvEntry {
  std::uint64_t history = 0;  // hash of all positions up to this one
  std::int32_t token = -1;
  std::int32_t position = -1;
};

// Entries in pages of 16, for fakes: where position `position` of sequence `sequence` lies.
// Checks that the page table names a page there.
KvEntry* kv_entry(const model::ForwardBatch& batch, std::int64_t sequence, Position position);
// A layout whose page holds 16 KvEntry.
model::KvLayout kv_entry_layout(const char* numerics_id);

}  // namespace artery::testing
