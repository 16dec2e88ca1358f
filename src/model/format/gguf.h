#pragma once
// Reader of GGUF v2 and v3 files (format document: ggml/docs/gguf.md). Owns the mapped file. Every
// count, size and offset is checked before use; memory taken is at most a few times the metadata.
// Immutable after open, any thread. Never reads tensor data.

#include <fmt/core.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/file_system.h"
#include "base/result.h"
#include "model/format/model_file.h"

namespace artery::model {

class GgufFile final : public ModelFile {
 public:
  // kNotFound, kIo, kBadFile (message: file, what, where), kUnsupported (another version of the
  // format, big-endian). What is odd but harmless (a key that is not UTF-8, a boolean of 7) is told
  // in warnings().
  static Result<std::unique_ptr<GgufFile>> open(
      const std::string& path, const FileSystem& fs = system_file_system()
  );

  std::string format() const override { return fmt::format("GGUF v{}", version_); }
  std::vector<const MappedFile*> files() const override { return {file_.get()}; }
  std::uint32_t version() const { return version_; }
  std::uint64_t alignment() const { return alignment_; }
  std::uint64_t data_start() const { return data_start_; }

  Result<std::span<const std::byte>> rows(
      const TensorInfo& tensor,
      std::int64_t first,
      std::int64_t count,
      std::vector<std::byte>& scratch
  ) const override;
  void release(const TensorInfo& tensor) const override {
    file_->release(tensor.offset, tensor.bytes);
  }

 private:
  friend class GgufParser;
  GgufFile() = default;
  std::unique_ptr<MappedFile> file_;
  std::uint32_t version_ = 0;
  std::uint64_t alignment_ = 32;
  std::uint64_t data_start_ = 0;
};

}  // namespace artery::model
