#pragma once
// Weight matrices and vectors in the layout the kernels read. Immutable after construction; any
// thread may read.
//
// A matrix [rows, cols] is held as tiles of 16 rows. In a tile of a fast type the 16 rows are
// interleaved so that lane i of a vector is row i (cpu-perf.md section 5); the other types keep
// their file bytes row by row and are unpacked to integers, two tiles at a time, when used. The
// last tile is padded with zero rows. Nothing of the file is kept.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/result.h"
#include "tensor/compute_pool.h"
#include "tensor/dtype.h"

namespace artery::tensor {

constexpr int kLanes = 16;  // canonical lanes: rows of a tile, positions of a KV page

// Zeroed memory in 2 MiB pages where the system allows (madvise), 64-byte aligned. Buffers smaller
// than such a page share pages, which are given back with the last of them. make: any thread.
class HugeBuffer {
 public:
  HugeBuffer() = default;
  static Result<HugeBuffer> make(std::size_t bytes);  // kOutOfMemory
  std::byte* data() const { return data_.get(); }
  std::size_t bytes() const { return bytes_; }

 private:
  struct Unmap {
    std::size_t bytes;
    std::shared_ptr<void> slab;  // of a buffer that shares its pages
    void operator()(std::byte* data) const;
  };
  std::unique_ptr<std::byte, Unmap> data_{nullptr, Unmap{0, nullptr}};
  std::size_t bytes_ = 0;
};

// How much memory HugeBuffers made one after the other, all alive, keep resident once written: what
// HugeBuffer::make does, in numbers. For a plan before anything is read. One thread.
class ResidentBytes {
 public:
  void add(std::int64_t bytes);
  // The memory that is touched in the end; a page of 2 MiB counts whole.
  std::int64_t total() const;

 private:
  std::int64_t whole_ = 0;      // of buffers with pages of their own, and of full slabs
  std::int64_t slab_used_ = 0;  // of the slab that small buffers share now
};

class WeightMatrix {
 public:
  WeightMatrix() = default;
  // `raw`: rows of row_bytes(type, cols) bytes, back to back, as in the file. Repacked in parallel
  // on `pool`. cols must be a multiple of the type's block. kOutOfMemory, kUnsupported (not a
  // weight type).
  static Result<WeightMatrix> pack(
      DType type,
      std::int64_t rows,
      std::int64_t cols,
      std::span<const std::byte> raw,
      ComputePool& pool
  );

  DType type() const { return type_; }
  std::int64_t rows() const { return rows_; }
  std::int64_t cols() const { return cols_; }
  std::int64_t tiles() const { return (rows_ + kLanes - 1) / kLanes; }
  std::size_t tile_bytes() const { return tile_bytes_; }
  // bytes() of such a matrix, known before it is read. cols as for pack.
  static std::int64_t packed_bytes(DType type, std::int64_t rows, std::int64_t cols);
  const std::byte* tile(std::int64_t index) const {
    return buffer_.data() + static_cast<std::size_t>(index) * tile_bytes_;
  }
  std::size_t bytes() const { return buffer_.bytes(); }
  bool empty() const { return rows_ == 0; }
  // True for the fast types, whose tiles are laid out as ops/tile_layout.h says.
  bool interleaved() const { return is_interleaved(type_); }
  static bool is_interleaved(DType type);
  // The file's bytes of one row; only for a type that is not interleaved.
  std::span<const std::byte> raw_row(std::int64_t row) const;

  // One row decoded to float32 [cols], exactly as quant::decode_row gives it from the file's bytes.
  void decode_row(std::int64_t row, std::span<float> out) const;
  // out.size() columns of a row from column `first`; both multiples of the type's block.
  void decode_part(std::int64_t row, std::int64_t first, std::span<float> out) const;

 private:
  DType type_ = DType::kF32;
  std::int64_t rows_ = 0;
  std::int64_t cols_ = 0;
  std::size_t tile_bytes_ = 0;
  HugeBuffer buffer_;
};

// Norm weights and biases: float32, copied.
using WeightVector = std::vector<float>;

}  // namespace artery::tensor
