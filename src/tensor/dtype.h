#pragma once
// Element and block types of tensors in files and in memory. Values, any thread.
// Ids are those of the GGUF format document (ggml_type); from 200 on our own, which no file names.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace artery::tensor {

enum class DType : std::uint8_t {
  kF32 = 0,
  kF16 = 1,
  kQ4_0 = 2,
  kQ4_1 = 3,
  kQ5_0 = 6,
  kQ5_1 = 7,
  kQ8_0 = 8,
  kQ8_1 = 9,
  kQ2_K = 10,
  kQ3_K = 11,
  kQ4_K = 12,
  kQ5_K = 13,
  kQ6_K = 14,
  kQ8_K = 15,
  kIQ2_XXS = 16,
  kIQ2_XS = 17,
  kIQ3_XXS = 18,
  kIQ1_S = 19,
  kIQ4_NL = 20,
  kIQ3_S = 21,
  kIQ2_S = 22,
  kIQ4_XS = 23,
  kI8 = 24,
  kI16 = 25,
  kI32 = 26,
  kI64 = 27,
  kF64 = 28,
  kIQ1_M = 29,
  kBF16 = 30,
  kTQ1_0 = 34,
  kTQ2_0 = 35,
  kMXFP4 = 39,
  kNVFP4 = 40,
  kQ1_0 = 41,
  kQ2_0 = 42,
  // FP8 checkpoints with scales of 128 x 128 blocks (DeepSeek-V3 technical report, section 3.3):
  // 128 E4M3 ("fn") values, then their float32 scale.
  kF8E4M3 = 200,
};

// How a type stores a row: `block_values` consecutive values in `block_bytes` bytes.
struct TypeTraits {
  DType type;
  std::string_view name;  // as GGUF tools print it: "Q4_K"
  std::int64_t block_values;
  std::int64_t block_bytes;
  bool is_weight;  // decodable to float32 by quant::decode_row
};

// Null for an id that is not in the format (or was removed from it); never one of our own.
const TypeTraits* find_type(std::uint32_t ggml_id);
const TypeTraits& traits(DType type);
inline std::string_view name(DType type) { return traits(type).name; }

// Bytes of one row of `cols` values. `cols` must be a multiple of the type's block.
std::int64_t row_bytes(DType type, std::int64_t cols);

// If `ggml_id` was once in the format and was removed, its name and what to do ("Q4_0_4_4: convert
// ... to Q4_0").
std::optional<std::string_view> removed_type(std::uint32_t ggml_id);

}  // namespace artery::tensor
