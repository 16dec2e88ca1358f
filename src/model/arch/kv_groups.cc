#include "model/arch/kv_groups.h"

#include <algorithm>
#include <bit>

namespace artery::model {
namespace {

constexpr int kRecordPagesMax = 16;

KvGroup group_of(const DecoderSpec& spec, std::int64_t layers, tensor::KvType type) {
  KvGroup group;
  group.geometry = {
      .layers = static_cast<int>(layers),
      .kv_heads = static_cast<int>(spec.kv_heads),
      .head_dim = static_cast<int>(spec.head_dim),
      .type = type
  };
  group.entry_bytes = group.geometry.page_bytes() / kPageTokens;
  return group;
}

}  // namespace

bool has_window_group(const DecoderSpec& spec, std::int64_t context) {
  return spec.window > 0 && spec.window < context && std::ranges::count(spec.windowed, true) > 0;
}

std::vector<LayerPlace> layer_places(const DecoderSpec& spec, std::int64_t context) {
  const bool windows = has_window_group(spec, context);
  int layers[2] = {};
  std::vector<LayerPlace> places;
  for (std::int64_t i = 0; i < spec.layers; ++i) {
    const int group = windows && spec.is_windowed(i) ? 1 : 0;
    places.push_back({group, layers[group]++});
  }
  return places;
}

KvLayout kv_layout_of(const DecoderSpec& spec, tensor::KvType type, std::int64_t context) {
  const bool windows = has_window_group(spec, context);
  const std::int64_t windowed = windows ? std::ranges::count(spec.windowed, true) : 0;
  KvLayout layout;
  layout.groups.push_back(group_of(spec, spec.layers - windowed, type));
  if (windows) {
    KvGroup& group = layout.groups.emplace_back(group_of(spec, windowed, type));
    group.kind = KvKind::kWindow;
    group.window_tokens = spec.window;
  }
  // A record stays within 4 MiB (design, "KV"): a power of two pages, so that lengths which are one
  // end with a record.
  const std::int64_t page = std::max<std::int64_t>(1, layout.groups[0].geometry.page_bytes());
  const std::int64_t pages = (std::int64_t{4} << 20) / page;
  layout.record_pages = static_cast<int>(std::bit_floor(
      static_cast<std::uint64_t>(std::clamp<std::int64_t>(pages, 1, kRecordPagesMax))
  ));
  return layout;
}

}  // namespace artery::model
