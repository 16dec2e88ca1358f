#pragma once
// What a GGUF's metadata says about memory and speed, before any weight is read. Any thread.

#include <cstdint>
#include <string>

#include "base/result.h"
#include "model/format/model_file.h"
#include "model/model.h"
#include "tensor/backend.h"

namespace artery::cli {

// Bytes of keys and values per token, scales included. kBadFile when a key is missing.
Result<std::int64_t> kv_bytes_per_token(const model::ModelFile& file, tensor::KvType type);

// What to say of ModelInfo::slow_types, which is not empty.
std::string slow_types_advice(const model::ModelInfo& info);

}  // namespace artery::cli
