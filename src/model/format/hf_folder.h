#pragma once
// A folder as models are released: config.json, one or many .safetensors, and the tokenizer's files
// beside them, seen as a ModelFile. Owns the mapped files. Immutable after open, any thread. Reads
// no tensor data until rows() is called; never loads pickles.

#include <memory>
#include <string>
#include <vector>

#include "base/file_system.h"
#include "base/result.h"
#include "model/format/hf_metadata.h"
#include "model/format/hf_rows.h"
#include "model/format/model_file.h"
#include "model/format/safetensors.h"

namespace artery::model {

class HfFolder final : public ModelFile {
 public:
  // `names`: of the files in `folder`. kNotFound, kIo; kBadFile: a file missing or damaged, tensors
  // and config.json contradict each other; kUnsupported: a model_type, quantization, RoPE scaling
  // or dtype this program lacks. Each by the folder's own names.
  static Result<std::unique_ptr<HfFolder>> open(
      const std::string& folder, const std::vector<std::string>& names, const FileSystem& fs
  );

  std::string format() const override;
  // config.json, then the shards.
  std::vector<const MappedFile*> files() const override;
  std::vector<std::string> file_names() const override;
  std::string folder() const override { return path_; }

  Result<std::span<const std::byte>> rows(
      const TensorInfo& tensor,
      std::int64_t first,
      std::int64_t count,
      std::vector<std::byte>& scratch
  ) const override;
  void release(const TensorInfo& tensor) const override;

 private:
  HfFolder() = default;
  const HfRecipe& recipe(const TensorInfo& tensor) const {
    return recipes_[static_cast<std::size_t>(&tensor - tensors_.data())];
  }
  std::unique_ptr<MappedFile> config_;
  std::vector<SafetensorsFile> shards_;
  std::vector<std::span<const std::byte>> bytes_;  // of files()
  HfMetadata metadata_;
  std::vector<HfRecipe> recipes_;  // of tensors_
};

// One .safetensors file by itself, without a config: its tensors under their own names, for
// `inspect`. No metadata, so it is no model.
class BareSafetensors final : public ModelFile {
 public:
  static Result<std::unique_ptr<BareSafetensors>> open(
      const std::string& path, const FileSystem& fs
  );
  std::string format() const override { return "safetensors, no config.json"; }
  std::vector<const MappedFile*> files() const override { return {&file_.file()}; }
  Result<std::span<const std::byte>> rows(
      const TensorInfo& tensor,
      std::int64_t first,
      std::int64_t count,
      std::vector<std::byte>& scratch
  ) const override;

 private:
  explicit BareSafetensors(SafetensorsFile file) : file_(std::move(file)) {}
  SafetensorsFile file_;
};

}  // namespace artery::model
