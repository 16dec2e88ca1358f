#pragma once
// Rows of a checkpoint's tensors as GGUF would hold them: where they lie and how they are re-laid.
// Values and pure functions, any thread; a row asked for is built in the caller's scratch, or is a
// view of the file where nothing changes.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "model/format/safetensors.h"
#include "model/weight_source.h"

namespace artery::model {

// A matrix of a checkpoint's tensor, by bytes of a mapped file.
struct HfPart {
  std::uint32_t file = 0;
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
};

struct HfRecipe {
  enum class Kind : std::uint8_t {
    kCopy,        // rows as they are
    kTransposed,  // an output row is a column of the part
    kFp8,         // E4M3 codes and their scales to rows of DType::kF8E4M3
    kFp8Decoded,  // the same to float32, where the blocks do not fit that type
    kMxfp4,       // pairs of neighbours to GGUF's block_mxfp4
    kAddOne,      // to float32, plus one
    kOwned,       // `owned`, made when the folder was opened
  };
  Kind kind = Kind::kCopy;
  tensor::DType source_type = tensor::DType::kF32;  // kCopy, kTransposed, kAddOne
  std::vector<HfPart> parts = {};                   // the tensor's matrices, in order
  std::int64_t source_rows = 0;                     // of a part
  std::int64_t source_cols = 0;
  // Output row r of a part is its row first + stride * r, `rows` of them; where head_rows is not 0,
  // r is first re-ordered within heads of that many rows: from halves to adjacent pairs.
  std::int64_t rows = 0;
  std::int64_t first = 0;
  std::int64_t stride = 1;
  std::int64_t head_rows = 0;
  // kFp8*: one scale for each block of scale_rows x scale_cols; kMxfp4: one for 32 columns.
  std::vector<HfPart> scales = {};
  StType scale_type = StType::kF32;
  std::int64_t scale_rows = 0;
  std::int64_t scale_cols = 0;
  std::string owned = {};
};

using HfFiles = std::span<const std::span<const std::byte>>;

// Rows first .. first + count - 1 of `tensor`, whose type, shape and bytes say what comes out; an
// output row may be several of the recipe's (a vector is re-ordered value by value). kBadFile: a
// scale that is not a number.
Result<std::span<const std::byte>> lay_rows(
    const HfRecipe& recipe,
    const TensorInfo& tensor,
    HfFiles files,
    std::int64_t first,
    std::int64_t count,
    std::vector<std::byte>& scratch
);

// Value of an E4M3 code ("fn": no infinity, 0x7F and 0xFF are NaN, largest 448; Micikevicius et al.
// 2022).
float e4m3_value(std::uint8_t code);

}  // namespace artery::model
