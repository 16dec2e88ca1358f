#pragma once
// What a GGUF's metadata says about memory and speed, before any weight is read. Any thread.

#include <cstdint>
#include <string>

#include "base/result.h"
#include "model/format/gguf.h"
#include "model/model.h"

namespace artery::cli {

// Bytes of keys and values per token with entries of `value_bytes` (2 for f16). kBadFile when a key
// is missing.
Result<std::int64_t> kv_bytes_per_token(const model::GgufFile& file, int value_bytes);

// What to say of ModelInfo::slow_types, which is not empty.
std::string slow_types_advice(const model::ModelInfo& info);

}  // namespace artery::cli
