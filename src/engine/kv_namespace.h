#pragma once
// The namespace of cached KV: everything that decides its bytes, and whom it belongs to. The root
// of a request's chain keys is made of it, so that prefixes of two namespaces never meet: not in
// RAM, not in a store, not between versions. Pure, any thread.

#include <string>
#include <string_view>

#include "base/chain_key.h"
#include "model/kv_layout.h"
#include "model/model.h"

namespace artery::engine {

// Rows that a hit without its window runs again (Config::swa_replay), or -1: as many as make it
// exact. -1 as well where there are no windows, and where so many rows are exact anyway.
int effective_replay(const model::KvLayout& layout, int swa_replay);

// The layout's numerics id, and how windows are rebuilt where that is not exact:
// "fast-2+int16+replay-128".
std::string kv_numerics_id(const model::KvLayout& layout, int swa_replay);

// Canonical text: format, weights, numerics id, page size, groups.
std::string kv_namespace(
    const model::ModelInfo& info, const model::KvLayout& layout, int swa_replay
);

// Of the requests of a tenant (and cache salt) in a namespace.
ChainKey kv_root(
    std::string_view secret, std::string_view space, std::string_view tenant, std::string_view salt
);

}  // namespace artery::engine
