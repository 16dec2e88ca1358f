#pragma once
// Writes safetensors files and model folders in memory or on disk for tests: well-formed ones, and,
// through the raw setters, malformed ones. Owns what it was given; one thread.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "testing/mem_file_system.h"

namespace artery::testing {

class SafetensorsWriter {
 public:
  // Shape slowest dimension first; data as in the file.
  void set(
      std::string_view name,
      std::string_view dtype,
      std::vector<std::int64_t> shape,
      std::string data
  );
  // float32 values stored as F32, F16 or BF16 (rounded to nearest even).
  void set_values(
      std::string_view name,
      std::string_view dtype,
      std::vector<std::int64_t> shape,
      std::span<const float> values
  );
  void remove(std::string_view name);
  bool has(std::string_view name) const;
  std::vector<std::string> names() const;

  // The tensors first .. last - 1 as one file.
  std::string bytes(std::size_t first = 0, std::size_t last = std::size_t(-1)) const;
  // Adds `folder`/model.safetensors, or `shards` files with their index, to `files`.
  void add_to(MemFileSystem& files, const std::string& folder, int shards = 1) const;
  // The same on disk, in a folder that exists. kIo.
  Result<> write_to(const std::string& folder, int shards = 1) const;

 private:
  struct Tensor {
    std::string name, dtype;
    std::vector<std::int64_t> shape;
    std::string data;
  };
  std::vector<std::pair<std::string, std::string>> files(int shards) const;  // name, bytes
  std::vector<Tensor> tensors_;
};

}  // namespace artery::testing
