#pragma once
// From what a user typed as MODEL to an open, checked file. Main or loading thread.

#include <memory>
#include <string>

#include "base/result.h"
#include "model/format/model_file.h"

namespace artery::cli {

// Opens a GGUF. kNotFound; kBadFile; kUnsupported for what later versions will read (a folder with
// safetensors, one part of a split set), each named.
Result<std::unique_ptr<model::ModelFile>> open_model_file(const std::string& path);

// "model" of "/a/b/model.gguf".
std::string file_stem(const std::string& path);

// Where what a start finds out about files is kept for the next one: $XDG_CACHE_HOME/artery or
// ~/.cache/artery; empty where the environment names neither.
std::string cache_folder();

// True when most bytes of weights are block-quantized.
bool mostly_quantized(const model::ModelFile& file);

}  // namespace artery::cli
