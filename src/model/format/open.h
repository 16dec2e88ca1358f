#pragma once
// From a path to an open model file, whatever kind it is. Any thread.

#include <memory>
#include <string>

#include "base/file_system.h"
#include "base/result.h"
#include "model/format/model_file.h"

namespace artery::model {

// `path`: a .gguf, any part of a split GGUF, a folder of either (exactly one model) or of
// safetensors, or a .safetensors in such a folder; one without config.json beside it opens too, but
// is no model. kNotFound, kIo, kBadFile, kUnsupported; several models in a folder: kBadFile with
// their names.
Result<std::unique_ptr<ModelFile>> open_model(
    const std::string& path, const FileSystem& fs = system_file_system()
);

}  // namespace artery::model
