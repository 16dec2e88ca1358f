#pragma once
// Reads and writes NumPy's .npy files: golden data, and what `eval` stores. Owns the bytes it read.
// Any thread; never guesses: Fortran order, big-endian numbers and other types are refused.
// Source of the format: numpy.lib.format, versions 1.0 and 2.0.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/file_system.h"
#include "base/result.h"

namespace artery {

enum class NpyType { kFloat16, kFloat32, kFloat64, kInt32, kInt64, kUint8 };

std::string_view npy_name(NpyType type);  // as files spell it: "<f4"
std::size_t npy_bytes(NpyType type);      // of one value

class NpyArray {
 public:
  // `file` is a whole file; `path` is only for messages. kBadFile when malformed or truncated,
  // kUnsupported for a type or order that is not read.
  static Result<NpyArray> parse(std::span<const std::byte> file, std::string_view path);
  // Files beyond `bytes_max` give kTooLarge.
  static Result<NpyArray> read(
      const FileSystem& files, const std::string& path, std::size_t bytes_max = std::size_t{1} << 30
  );

  NpyType type() const { return type_; }
  // Slowest dimension first; empty for a single number.
  const std::vector<std::int64_t>& shape() const { return shape_; }
  std::size_t size() const { return data_.size() / npy_bytes(type_); }
  std::span<const std::byte> bytes() const { return data_; }

  // All values in C order, valid while this lives. kBadFile when the file holds another type.
  Result<std::span<const float>> float32() const { return as<float>(NpyType::kFloat32); }
  Result<std::span<const double>> float64() const { return as<double>(NpyType::kFloat64); }
  Result<std::span<const std::int32_t>> int32() const { return as<std::int32_t>(NpyType::kInt32); }
  Result<std::span<const std::int64_t>> int64() const { return as<std::int64_t>(NpyType::kInt64); }
  Result<std::span<const std::uint8_t>> uint8() const { return as<std::uint8_t>(NpyType::kUint8); }
  // Bit patterns.
  Result<std::span<const std::uint16_t>> float16() const {
    return as<std::uint16_t>(NpyType::kFloat16);
  }

 private:
  NpyArray(
      std::string path, NpyType type, std::vector<std::int64_t> shape, std::vector<std::byte> data
  );
  Result<void> check_type(NpyType wanted) const;

  template <typename T>
  Result<std::span<const T>> as(NpyType wanted) const {
    TRY(check_type(wanted));
    return std::span(reinterpret_cast<const T*>(data_.data()), size());
  }

  std::string path_;
  NpyType type_;
  std::vector<std::int64_t> shape_;
  std::vector<std::byte> data_;  // from operator new, so aligned for any of the types
};

// The bytes of a version 1.0 file. `shape` must hold values.size() values.
std::string format_npy(std::span<const std::int64_t> shape, std::span<const float> values);

// Writes (or replaces) the file `path`. kNotFound (no such directory) or kIo.
Result<void> write_npy(
    const std::string& path, std::span<const std::int64_t> shape, std::span<const float> values
);

}  // namespace artery
