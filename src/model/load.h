#pragma once
// From a path to a running model. Called by `cli` (any thread, not the engine thread).

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "model/format/model_file.h"
#include "model/model.h"
#include "tensor/backend.h"

namespace artery::model {

struct LoadOptions {
  tensor::KvType kv_type = tensor::KvType::kI16;
  // Positions the model will serve at most, 0: all of its context (tables are sized by it).
  std::int64_t context_max = 0;
  // Where digests of model files are kept from start to start (digest_cache.h); empty: nowhere.
  std::string digest_folder;
  // Progress in bytes of weights packed; called from the loading thread.
  std::function<void(std::uint64_t done, std::uint64_t total)> on_progress;
};

// Checks everything that can be wrong in the file without reading weights: architecture,
// hyper-parameters, every tensor's name, shape and type, and the tokenizer arrays' lengths. What
// `inspect`, `doctor` and `serve` refuse by. kBadFile, kUnsupported.
Result<ModelInfo> check_model(const ModelFile& file);

// check_model, then hashes the file, unless its digest is known, and packs the weights. `backend`
// outlives the model; `file` may be dropped afterwards. kBadFile, kUnsupported, kOutOfMemory, kIo.
Result<std::unique_ptr<Model>> load_model(
    const ModelFile& file, tensor::Backend& backend, const LoadOptions& options
);

// What load_model knows the weights by: a file's tree digest (digest.h), of several files SHA-256
// of their digests' texts, in order. `digest_folder` as above.
std::string weights_digest(
    const ModelFile& file, const std::string& digest_folder, tensor::ComputePool& pool
);

// Architectures load_model knows, for messages.
std::vector<std::string> supported_architectures();

}  // namespace artery::model
