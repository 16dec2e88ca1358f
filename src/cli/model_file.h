#pragma once
// From what a user typed as MODEL to an open, checked file. Main or loading thread.

#include <memory>
#include <string>

#include "base/result.h"
#include "model/format/model_file.h"

namespace artery::cli {

// A .gguf, a part of a split set, or a folder (model/format/open.h). kNotFound; kBadFile, for pipes
// too; kUnsupported.
Result<std::unique_ptr<model::ModelFile>> open_model_file(const std::string& path);

// The chat template in a model's folder: chat_template.jinja, else that of tokenizer_config.json,
// and the file it is from in `place`; empty when there is none. kBadFile, kIo.
Result<std::string> folder_chat_template(const std::string& folder, std::string* place);

// A file above the size that its kind can have, or a folder of its name, is a bad one; other
// results as they are.
Result<std::string> as_bad_file(Result<std::string> content);

// "model" of "/a/b/model.gguf", "Qwen3-0.6B" of the folder "/a/Qwen3-0.6B/".
std::string file_stem(const std::string& path);

// Where what a start finds out about files is kept for the next one: $XDG_CACHE_HOME/artery or
// ~/.cache/artery; empty where the environment names neither.
std::string cache_folder();

// True when most bytes of weights are block-quantized.
bool mostly_quantized(const model::ModelFile& file);

}  // namespace artery::cli
