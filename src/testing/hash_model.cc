#include "testing/hash_model.h"

#include <cstring>

#include "base/check.h"
#include "testing/seq_random.h"

namespace artery::testing {

static_assert(sizeof(KvEntry) == 16);

KvEntry* kv_entry(const model::ForwardBatch& batch, std::int64_t sequence, Position position) {
  const model::PageTable& table = batch.page_tables[0];
  const std::int64_t page = position / kPageTokens;
  CHECK(page < table.pages_max, "position {} lies beyond the page table", position);
  const PageId id = table.pages[static_cast<std::size_t>(sequence * table.pages_max + page)];
  CHECK(id != kNoPage, "position {} has no page", position);
  const tensor::KvPages& kv = batch.kv[0];
  std::byte* base = kv.base + std::int64_t{id} * kv.geometry.page_bytes();
  return reinterpret_cast<KvEntry*>(base) + position % kPageTokens;
}

// Two layers of one f32 value for K and V: 16 bytes a position.
model::KvLayout kv_entry_layout(const char* numerics_id) {
  model::KvGroup group;
  group.geometry = {2, 1, 1, tensor::KvType::kF32};
  group.entry_bytes = sizeof(KvEntry);
  model::KvLayout layout;
  layout.groups.push_back(group);
  layout.numerics_id = numerics_id;
  return layout;
}

HashModel::HashModel(std::int64_t vocab_size, std::int64_t context_length) {
  info_.architecture = "hash";
  info_.name = "hash";
  info_.vocab_size = vocab_size;
  info_.context_length = context_length;
  info_.weights_digest = "hash";
}

model::KvLayout HashModel::kv_layout() const {
  model::KvLayout layout = kv_entry_layout("hash-1");
  layout.record_pages = record_pages_;
  return layout;
}

std::int64_t HashModel::page_bytes() { return sizeof(KvEntry) * kPageTokens; }

void HashModel::forward(const model::ForwardBatch& batch, std::span<float> logits) {
  if (on_forward_) on_forward_(batch);
  const auto vocab = static_cast<std::size_t>(info_.vocab_size);
  std::size_t wanted = 0;
  for (std::int64_t sequence = 0; sequence < batch.sequences(); ++sequence) {
    const auto s = static_cast<std::size_t>(sequence);
    for (std::int32_t row = batch.offsets[s]; row < batch.offsets[s + 1]; ++row) {
      const auto r = static_cast<std::size_t>(row);
      const Position position = batch.positions[r];
      std::uint64_t history = 0;
      for (Position at = 0; at < position; ++at) {
        const KvEntry& entry = *kv_entry(batch, sequence, at);
        history = SeqRandom::mix(
            history ^ entry.history ^ (static_cast<std::uint64_t>(entry.token) << 32) ^
            static_cast<std::uint64_t>(entry.position)
        );
      }
      history = SeqRandom::mix(history + static_cast<std::uint64_t>(batch.tokens[r]) * 977 + 1);
      *kv_entry(batch, sequence, position) = {history, batch.tokens[r], position};
      if (wanted == batch.logit_rows.size() || batch.logit_rows[wanted] != row) continue;
      const std::span<float> out = logits.subspan(wanted * vocab, vocab);
      for (std::size_t token = 0; token < vocab; ++token) {
        const std::uint64_t bits = SeqRandom::mix(history + token * 0x9E3779B97F4A7C15u);
        out[token] = static_cast<float>(bits >> 44) * 0x1p-17f;  // [0, 8) in steps of 2^-17
      }
      ++wanted;
    }
  }
  CHECK(wanted == batch.logit_rows.size());
}

}  // namespace artery::testing
