#pragma once
// A checkpoint's tensors under GGUF's names: found by the family's table, checked against
// config.json, with what their rows are made of. Called when a folder is opened, any thread.

#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "model/format/hf_config.h"
#include "model/format/hf_family.h"
#include "model/format/hf_metadata.h"
#include "model/format/hf_rows.h"
#include "model/format/safetensors.h"
#include "model/weight_source.h"

namespace artery::model {

struct HfTensors {
  std::vector<TensorInfo> tensors;
  std::vector<HfRecipe> recipes;  // of the same index
  std::vector<std::string> warnings;
};

// `folder` starts the messages; file index i + 1 of the results is shards[i] (0 is config.json).
// kBadFile: missing, extra, misshapen tensors, by the checkpoint's own names, with the numbers of
// config.json; kUnsupported: a dtype that cannot hold weights.
Result<HfTensors> map_hf_tensors(
    const std::string& folder,
    const HfConfig& config,
    const HfFamily& family,
    const HfSizes& sizes,
    std::span<const SafetensorsFile> shards,
    std::span<const HfMadeTensor> made
);

}  // namespace artery::model
