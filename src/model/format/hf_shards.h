#pragma once
// The safetensors files of a model folder: found by the index or by their names, opened, and
// checked to be all there. Called when a folder is opened, any thread.

#include <string>
#include <string_view>
#include <vector>

#include "base/file_system.h"
#include "base/result.h"
#include "model/format/safetensors.h"

namespace artery::model {

// The shards of `folder` in order of name. `names`: of the files in it. kBadFile: shards missing or
// empty (counted and named), the index and the shards disagree, a tensor twice, several models to
// choose from; kUnsupported: only formats that run code when read (pickle). Odd but harmless: a
// line in `warnings`.
Result<std::vector<SafetensorsFile>> open_hf_shards(
    const std::string& folder,
    const std::vector<std::string>& names,
    const FileSystem& fs,
    std::vector<std::string>& warnings
);

// NAME-00002-of-00005.EXT taken apart; `number` 0 when `name` is not of that form. Numbers as they
// are in the name.
struct PartName {
  std::string_view stem;       // "NAME"
  std::string_view extension;  // ".gguf"
  std::uint64_t number = 0;
  std::uint64_t count = 0;
  std::string sibling(std::uint64_t other) const;  // the name of another part
};
PartName parse_part_name(std::string_view name);

}  // namespace artery::model
