#include "model/format/open.h"

#include <fmt/format.h>

#include <algorithm>

#include "model/format/gguf.h"
#include "model/format/gguf_split.h"
#include "model/format/hf_folder.h"
#include "model/format/hf_shards.h"

namespace artery::model {
namespace {

using Names = std::vector<std::string>;

bool has(const Names& names, std::string_view name) {
  return std::ranges::find(names, name) != names.end();
}

Result<std::unique_ptr<ModelFile>> open_gguf(const std::string& path, const FileSystem& fs) {
  std::unique_ptr<GgufFile> file = TRY(GgufFile::open(path, fs));
  // Parts are told by what is in them: a name may only look like a part's.
  if (file->find_key("split.count") == nullptr) return file;
  if (TRY(file->get_unsigned("split.count")) <= 1) return file;
  return SplitGguf::open(path, fs);
}

// The one GGUF of a folder, or the first part of the one split set.
Result<std::string> only_gguf(const std::string& folder, const Names& names) {
  Names models;
  for (const std::string& name : names) {
    if (!name.ends_with(".gguf")) continue;
    const PartName part = parse_part_name(name);
    const auto of_set = [&](const std::string& known) {
      const PartName other = parse_part_name(known);
      return part.number != 0 && other.number != 0 && other.stem == part.stem &&
             other.count == part.count;
    };
    if (std::ranges::find_if(models, of_set) == models.end()) models.push_back(name);
  }
  if (models.size() == 1) return folder + "/" + models[0];
  if (models.empty()) {
    return fail(
        Code::kBadFile,
        "{}: a folder without config.json and without a .gguf file; give a .gguf file, or a folder "
        "with config.json, tokenizer.json and .safetensors files",
        folder
    );
  }
  const std::size_t shown = std::min<std::size_t>(models.size(), 10);
  return fail(
      Code::kBadFile,
      "{}: {} models in this folder; give one of them: {}{}",
      folder,
      models.size(),
      fmt::join(models.begin(), models.begin() + static_cast<std::ptrdiff_t>(shown), ", "),
      models.size() > shown ? ", ..." : ""
  );
}

Result<std::unique_ptr<ModelFile>> open_folder(
    const std::string& folder, const Names& names, const FileSystem& fs
) {
  const bool tensors = std::ranges::any_of(names, [](const std::string& name) {
    return name.ends_with(".safetensors") || name.ends_with(".safetensors.index.json");
  });
  const bool gguf =
      std::ranges::any_of(names, [](const std::string& name) { return name.ends_with(".gguf"); });
  if (has(names, "config.json") && (tensors || !gguf)) return HfFolder::open(folder, names, fs);
  if (tensors && !gguf) {
    return fail(
        Code::kBadFile,
        "{}: .safetensors files but no config.json; fetch the whole folder of the model",
        folder
    );
  }
  return open_gguf(TRY(only_gguf(folder, names)), fs);
}

Result<std::unique_ptr<ModelFile>> open_safetensors(const std::string& path, const FileSystem& fs) {
  const std::size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : path.substr(0, slash);
  const Result<Names> names = fs.list(folder);
  if (names && has(*names, "config.json")) {
    // The file itself first: what is wrong with it is told by its own name.
    TRY(SafetensorsFile::open(path, fs));
    return HfFolder::open(folder, *names, fs);
  }
  return BareSafetensors::open(path, fs);
}

}  // namespace

Result<std::unique_ptr<ModelFile>> open_model(const std::string& path, const FileSystem& fs) {
  std::string folder = path;
  while (folder.size() > 1 && folder.back() == '/') folder.pop_back();
  Result<Names> names = fs.list(folder);
  if (names) return open_folder(folder, *names, fs);
  if (path.ends_with(".safetensors")) return open_safetensors(path, fs);
  return open_gguf(path, fs);
}

}  // namespace artery::model
