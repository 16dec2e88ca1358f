#pragma once
// Turns a GGUF of the llama or qwen2 family into the folder it could have been converted from: the
// way back of what model/format/hf_* does, written apart from it. Pure, any thread.

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "model/format/model_file.h"
#include "testing/mem_file_system.h"
#include "testing/safetensors_writer.h"

namespace artery::testing {

struct HfFolderFiles {
  std::vector<std::pair<std::string, std::string>> config;  // keys and values as JSON text
  SafetensorsWriter tensors;
  // One value of config.json, or without it ("").
  void set(std::string_view key, std::string_view json);
  std::string config_text() const;
  void add_to(MemFileSystem& files, const std::string& folder, int shards = 1) const;
  // On disk, the folder is made. kIo.
  Result<> write_to(const std::string& folder, int shards = 1) const;
};

// `gguf` holds F32, F16 or BF16 only.
HfFolderFiles to_hf_folder(const model::ModelFile& gguf);

}  // namespace artery::testing
