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
  std::uint64_t offset = 0;         // of the first byte, from the start of the file
  std::uint64_t bytes = 0;
};

class WeightSource {
 public:
  virtual ~WeightSource() = default;
  virtual const TensorInfo* find(std::string_view name) const = 0;  // null when absent
  virtual std::span<const TensorInfo> tensors() const = 0;
  // All bytes of a tensor. Stays valid while the source lives.
  virtual Result<std::span<const std::byte>> bytes(const TensorInfo& tensor) const = 0;
  // The tensor's bytes have been used: memory that only repeats the file may be given back.
  virtual void release(const TensorInfo&) const {}
};

}  // namespace artery::model
