#pragma once
// Writes GGUF v3 files (format document: ggml/docs/gguf.md) for tests and benchmarks: well-formed
// ones, and, through add_raw and the setters, malformed ones. Owns what it was given; one thread.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "model/format/gguf.h"
#include "tensor/dtype.h"

namespace artery::testing {

class GgufWriter {
 public:
  // Each call sets a key, in the order of first use.
  void set_unsigned(std::string_view key, std::uint32_t value);
  void set_signed(std::string_view key, std::int32_t value);
  void set_float(std::string_view key, float value);
  void set_bool(std::string_view key, bool value);
  void set_string(std::string_view key, std::string_view value);
  void set_strings(std::string_view key, std::span<const std::string> values);
  void set_floats(std::string_view key, std::span<const float> values);
  void set_integers(std::string_view key, std::span<const std::int32_t> values);
  // `value`: the bytes after the type, as in the file.
  void set_raw(std::string_view key, model::GgufType type, std::string value);
  void remove_key(std::string_view key);

  // Sets a tensor, shape fastest dimension first, data as in the file.
  void set_tensor(
      std::string_view name, tensor::DType type, std::vector<std::int64_t> shape, std::string data
  );
  // The same from float32 values, encoded; `type` must satisfy quant::can_encode.
  void set_values(
      std::string_view name,
      tensor::DType type,
      std::vector<std::int64_t> shape,
      std::span<const float> values
  );
  void remove_tensor(std::string_view name);

  void set_alignment(std::uint32_t alignment);  // also writes general.alignment; default 32

  // The whole file.
  std::string bytes() const;
  Result<> write(const std::string& path) const;  // kIo

 private:
  struct Key {
    std::string key;
    model::GgufType type = model::GgufType::kUint8;
    std::string value;
  };
  struct Tensor {
    std::string name;
    tensor::DType type = tensor::DType::kF32;
    std::vector<std::int64_t> shape;
    std::string data;
  };
  std::vector<Key> keys_;
  std::vector<Tensor> tensors_;
  std::uint32_t alignment_ = 32;
};

}  // namespace artery::testing
