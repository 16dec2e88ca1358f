#pragma once
// Where weights come from: resident (a mapped file) or, later, streamed by row. Any thread.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "tensor/dtype.h"

namespace artery::model {

struct TensorInfo {
  std::string name;
  tensor::DType type = tensor::DType::kF32;
  std::vector<std::int64_t> shape;  // fastest dimension first, as GGUF stores it: {cols, rows, ...}
  std::uint64_t offset = 0;         // of the first byte, from the start of its file
  std::uint64_t bytes = 0;          // as rows() gives them
  std::uint32_t file = 0;           // index in ModelFile::files()
  // Where the file calls it otherwise: its tensor there (of several, the first) and that one's
  // type, for people; else empty.
  std::string source;
  std::string source_type;
  std::int64_t cols() const { return shape.empty() ? 1 : shape[0]; }
  std::int64_t rows() const {  // of all dimensions but the fastest
    std::int64_t product = 1;
    for (std::size_t i = 1; i < shape.size(); ++i) product *= shape[i];
    return product;
  }
  std::uint64_t row_bytes() const {
    return rows() == 0 ? 0 : bytes / static_cast<std::uint64_t>(rows());
  }
};

class WeightSource {
 public:
  virtual ~WeightSource() = default;
  virtual const TensorInfo* find(std::string_view name) const = 0;  // null when absent
  virtual std::span<const TensorInfo> tensors() const = 0;
  // The bytes of rows first .. first + count - 1 of a tensor seen as [rows, cols], back to back: a
  // view of the file, or laid out anew in `scratch`. Valid while the source lives and scratch stays
  // as it is. kBadFile: values that cannot be; kIo.
  virtual Result<std::span<const std::byte>> rows(
      const TensorInfo& tensor,
      std::int64_t first,
      std::int64_t count,
      std::vector<std::byte>& scratch
  ) const = 0;
  // The tensor's bytes have been used: memory that only repeats the file may be given back.
  virtual void release(const TensorInfo&) const {}
};

}  // namespace artery::model
