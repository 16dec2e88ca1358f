#pragma once
// A GGUF in several files, NAME-00001-of-00003.gguf (keys split.no, split.count and
// split.tensors.count as gguf-split writes them), seen as one ModelFile: the metadata of the first
// part, the tensors of all. Owns the parts. Immutable after open, any thread.

#include <memory>
#include <string>
#include <vector>

#include "base/file_system.h"
#include "base/result.h"
#include "model/format/gguf.h"

namespace artery::model {

class SplitGguf final : public ModelFile {
 public:
  // `path`: any part. kBadFile: a name that does not say which part it is; parts missing (counted
  // and named), of another model (naming the key that disagrees), with a tensor twice.
  static Result<std::unique_ptr<SplitGguf>> open(const std::string& path, const FileSystem& fs);

  std::string format() const override;
  std::vector<const MappedFile*> files() const override;  // in order of part
  std::vector<std::string> file_names() const override;

  Result<std::span<const std::byte>> rows(
      const TensorInfo& tensor,
      std::int64_t first,
      std::int64_t count,
      std::vector<std::byte>& scratch
  ) const override {
    return parts_[tensor.file]->rows(tensor, first, count, scratch);
  }
  void release(const TensorInfo& tensor) const override { parts_[tensor.file]->release(tensor); }

 private:
  SplitGguf() = default;
  Result<> join();
  std::vector<std::unique_ptr<GgufFile>> parts_;
};

}  // namespace artery::model
