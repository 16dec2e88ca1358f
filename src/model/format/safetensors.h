#pragma once
// Reader of one safetensors file (format: the README of github.com/huggingface/safetensors): 8
// bytes of header length, a JSON header, data. Owns the mapped file; every length, shape and offset
// is checked before use. Immutable after open, any thread. Never reads tensor data, knows nothing
// of models.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/file_system.h"
#include "base/result.h"
#include "tensor/dtype.h"

namespace artery::model {

enum class StType : std::uint8_t {
  kBool,
  kF4,
  kF6E2M3,
  kF6E3M2,
  kU8,
  kI8,
  kF8E4M3,
  kF8E5M2,
  kF8E8M0,
  kF8E4M3Fnuz,
  kF8E5M2Fnuz,
  kI16,
  kU16,
  kF16,
  kBF16,
  kI32,
  kU32,
  kF32,
  kC64,
  kF64,
  kI64,
  kU64,
};
std::string_view name(StType type);  // "F8_E4M3"
int bits(StType type);               // of one value
// The type of the same bits; where there is none, the integers of that size: rows that can be
// copied but not decoded.
tensor::DType plain_type(StType type);

struct StTensor {
  std::string name;
  StType type = StType::kF32;
  std::vector<std::int64_t> shape;  // slowest dimension first, as the file has it; may hold zeros
  std::uint64_t offset = 0;         // from the start of the file
  std::uint64_t bytes = 0;
  std::int64_t elements() const {
    std::int64_t product = 1;
    for (const std::int64_t size : shape) product *= size;
    return product;
  }
};

class SafetensorsFile {
 public:
  // kNotFound, kIo, kBadFile (message: file, tensor, what). The data must be covered by tensors
  // without overlap, gap or rest, as the format demands.
  static Result<SafetensorsFile> open(
      const std::string& path, const FileSystem& fs = system_file_system()
  );

  const std::string& path() const { return path_; }
  const MappedFile& file() const { return *file_; }
  std::span<const StTensor> tensors() const { return tensors_; }  // in order of data
  std::span<const std::byte> data(const StTensor& tensor) const {
    return file_->bytes().subspan(tensor.offset, tensor.bytes);
  }

 private:
  friend class SafetensorsParser;
  std::string path_;
  std::unique_ptr<MappedFile> file_;
  std::vector<StTensor> tensors_;
};

}  // namespace artery::model
