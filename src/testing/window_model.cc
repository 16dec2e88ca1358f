#include "testing/window_model.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "testing/seq_random.h"

namespace artery::testing {
namespace {

// What a layer keeps at one position: one head of 2 float32 for K and V each.
struct Entry {
  std::uint64_t value = 0;
  std::int32_t token = -1;
  std::int32_t position = -1;
};
constexpr std::int64_t kLayerBytes = sizeof(Entry) * kPageTokens;

Entry& entry_at(
    const model::ForwardBatch& batch,
    std::size_t group,
    std::int64_t sequence,
    std::int64_t layer,
    Position position
) {
  const model::PageTable& table = batch.page_tables[group];
  const std::int64_t page = position / kPageTokens;
  CHECK(page < table.pages_max, "position {} lies beyond the page table", position);
  const PageId id = table.pages[static_cast<std::size_t>(sequence * table.pages_max + page)];
  CHECK(id != kNoPage, "position {} has no page in group {}", position, group);
  const tensor::KvPages& kv = batch.kv[group];
  std::byte* base = kv.base + id * kv.geometry.page_bytes() + layer * kLayerBytes;
  return reinterpret_cast<Entry*>(base)[position % kPageTokens];
}

Position of_sequence(std::span<const Position> values, std::int64_t sequence) {
  return values.empty() ? 0 : values[static_cast<std::size_t>(sequence)];
}

}  // namespace

WindowModel::WindowModel(
    std::int64_t vocab_size,
    std::int64_t context_length,
    std::string layers,
    int window,
    bool empty_global
)
    : layers_(std::move(layers)) {
  info_.architecture = "window";
  info_.name = "window";
  info_.vocab_size = vocab_size;
  info_.context_length = context_length;
  info_.weights_digest = "window";
  std::string kinds;
  if (layers_.find('g') == std::string::npos && empty_global) kinds = "g";
  for (const char kind : layers_) {
    if (kinds.find(kind) == std::string::npos) kinds += kind;
  }
  for (const char kind : kinds) {
    model::KvGroup group;
    group.kind = kind == 'w' ? model::KvKind::kWindow : model::KvKind::kGlobal;
    const auto count = static_cast<int>(std::count(layers_.begin(), layers_.end(), kind));
    group.geometry = {count, 1, 2, tensor::KvType::kF32};
    CHECK(group.geometry.layer_bytes() == kLayerBytes);
    group.entry_bytes = count * static_cast<std::int64_t>(sizeof(Entry));
    if (kind == 'w') group.window_tokens = window;
    layout_.groups.push_back(group);
  }
  layout_.numerics_id = "window-1";
}

std::uint64_t WindowModel::layer(
    const model::ForwardBatch& batch,
    std::int64_t sequence,
    std::size_t row,
    std::size_t layer,
    std::uint64_t x
) const {
  const char kind = layers_[layer];
  const bool windowed = kind == 'w';
  std::size_t group = 0;
  while ((layout_.groups[group].kind == model::KvKind::kWindow) != windowed) ++group;
  const std::int64_t index =
      std::count(layers_.begin(), layers_.begin() + static_cast<std::ptrdiff_t>(layer), kind);
  const model::PageTable& table = batch.page_tables[group];
  const Position own = batch.positions[row];
  if (own >= of_sequence(table.write_from, sequence)) {
    entry_at(batch, group, sequence, index, own) = {x, batch.tokens[row], own};
  }
  Position first = of_sequence(table.first, sequence);
  if (windowed) first = std::max(first, own - layout_.groups[group].window_tokens + 1);
  for (Position at = first; at <= own; ++at) {
    const Entry& entry = entry_at(batch, group, sequence, index, at);
    x = SeqRandom::mix(
        x ^ entry.value ^ (static_cast<std::uint64_t>(entry.token) << 32) ^
        static_cast<std::uint64_t>(entry.position)
    );
  }
  return x;
}

void WindowModel::forward(const model::ForwardBatch& batch, std::span<float> logits) {
  const auto vocab = static_cast<std::size_t>(info_.vocab_size);
  std::size_t wanted = 0;
  for (std::int64_t sequence = 0; sequence < batch.sequences(); ++sequence) {
    const auto s = static_cast<std::size_t>(sequence);
    for (std::int32_t row = batch.offsets[s]; row < batch.offsets[s + 1]; ++row) {
      const auto r = static_cast<std::size_t>(row);
      std::uint64_t x = SeqRandom::mix(static_cast<std::uint64_t>(batch.tokens[r]) * 977 + 1);
      for (std::size_t at = 0; at < layers_.size(); ++at) x = layer(batch, sequence, r, at, x);
      if (wanted == batch.logit_rows.size() || batch.logit_rows[wanted] != row) continue;
      const std::span<float> out = logits.subspan(wanted * vocab, vocab);
      for (std::size_t token = 0; token < vocab; ++token) {
        const std::uint64_t bits = SeqRandom::mix(x + token * 0x9E3779B97F4A7C15u);
        out[token] = static_cast<float>(bits >> 44) * 0x1p-17f;  // [0, 8) in steps of 2^-17
      }
      ++wanted;
    }
  }
  CHECK(wanted == batch.logit_rows.size());
}

}  // namespace artery::testing
