#pragma once
// Which state of a model is kept per token, and where: the engine's pool, the prefix cache and,
// later, the store read only this. Values, any thread. (design.md, "KV" and "Seams")

#include <cstdint>
#include <string>
#include <vector>

#include "tensor/backend.h"

namespace artery::model {

enum class KvKind {
  kGlobal,  // append-only, kept for the whole context, persistent
  kWindow,  // only the last `window_tokens` positions are read; replayable
};

struct KvGroup {
  KvKind kind = KvKind::kGlobal;
  tensor::KvGeometry geometry;   // layers of this group only
  std::int64_t entry_bytes = 0;  // bytes of one position in this group
  int ratio = 1;                 // positions per entry (V4.1 compresses; 1 for dense models)
  int window_tokens = 0;         // kWindow only
};

struct KvLayout {
  std::vector<KvGroup> groups;
  int page_tokens = kPageTokens;
  int record_pages = 16;  // pages of a stored record (256 tokens; fewer where it would pass 4 MiB)
  std::string numerics_id;  // bits of an entry depend on this
  std::int64_t bytes_per_token() const {
    std::int64_t sum = 0;
    for (const KvGroup& group : groups) sum += group.entry_bytes / group.ratio;
    return sum;
  }
};

}  // namespace artery::model
