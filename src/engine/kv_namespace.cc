#include "engine/kv_namespace.h"

#include <fmt/format.h>

#include "engine/window_shape.h"

namespace artery::engine {

int effective_replay(const model::KvLayout& layout, int swa_replay) {
  return swa_replay < 0 || swa_replay >= WindowShape::of(layout).reach ? -1 : swa_replay;
}

std::string kv_numerics_id(const model::KvLayout& layout, int swa_replay) {
  const int replay = effective_replay(layout, swa_replay);
  return replay < 0 ? layout.numerics_id : fmt::format("{}+replay-{}", layout.numerics_id, replay);
}

// Each part has its length in front, so that no two spaces read the same.
std::string kv_namespace(
    const model::ModelInfo& info, const model::KvLayout& layout, int swa_replay
) {
  std::string out = "artery-kv-1";
  const auto add = [&](const std::string& part) {
    out += fmt::format("|{}:{}", part.size(), part);
  };
  add(info.weights_digest);
  add(kv_numerics_id(layout, swa_replay));
  add(fmt::format("page {}", layout.page_tokens));
  for (const model::KvGroup& group : layout.groups) {
    const tensor::KvGeometry& geometry = group.geometry;
    add(fmt::format(
        "group {} {} {} {} {} {} {}",
        static_cast<int>(group.kind),
        geometry.layers,
        geometry.kv_heads,
        geometry.head_dim,
        static_cast<int>(geometry.type),
        group.ratio,
        group.window_tokens
    ));
  }
  return out;
}

ChainKey kv_root(
    std::string_view secret, std::string_view space, std::string_view tenant, std::string_view salt
) {
  return chain_root(
      secret, fmt::format("{}|{}:{}|{}:{}", space, tenant.size(), tenant, salt.size(), salt)
  );
}

}  // namespace artery::engine
