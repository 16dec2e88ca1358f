#pragma once
// What a GGUF's metadata says about KV memory, before any weight is read. Any thread.

#include <cstdint>

#include "base/result.h"
#include "model/format/gguf.h"

namespace artery::cli {

// Bytes of keys and values per token with entries of `value_bytes` (2 for f16). kBadFile when a key
// is missing.
Result<std::int64_t> kv_bytes_per_token(const model::GgufFile& file, int value_bytes);

}  // namespace artery::cli
