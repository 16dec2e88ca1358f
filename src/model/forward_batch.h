#pragma once
// The whole engine-to-model interface: "run these tokens at these positions". Prefill, chunks,
// decode and draft verification are all this. Spans into the engine's step arena; valid for one
// forward call.

#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"
#include "tensor/backend.h"

namespace artery::model {

struct PageTable {
  std::span<const PageId> pages;  // [sequences, pages_max], row-major; kNoPage where unused
  std::int64_t pages_max = 0;
  // [sequences], empty: 0. As in tensor::AttentionBatch: entries of earlier positions are gone, and
  // are left as they are.
  std::span<const Position> first = {};
  std::span<const Position> write_from = {};
};

struct ForwardBatch {
  std::span<const TokenId> tokens;            // [tokens]
  std::span<const Position> positions;        // [tokens] absolute, contiguous within a sequence
  std::span<const std::int32_t> offsets;      // [sequences + 1]
  std::span<const PageTable> page_tables;     // one per KvLayout group
  std::span<const tensor::KvPages> kv;        // one per KvLayout group
  std::span<const std::int32_t> logit_rows;   // rows whose logits are wanted, ascending
  std::span<const std::uint8_t> token_types;  // [tokens] or empty (text)
  std::span<const float> embedding_rows;      // [count, embedding] for image tokens, or empty
  std::span<const std::int32_t>
      hidden_taps;  // layers whose hidden state the caller wants, or empty
  std::span<const std::int32_t>
      active_rows;  // [layers] rows that a layer still runs (suffix), or empty: all
  std::int64_t sequences() const { return static_cast<std::int64_t>(offsets.size()) - 1; }
};

}  // namespace artery::model
