#include "tensor/dtype.h"

#include <array>

#include "base/check.h"

namespace artery::tensor {
namespace {

constexpr TypeTraits kTypes[] = {
    {DType::kF32, "F32", 1, 4, true},
    {DType::kF16, "F16", 1, 2, true},
    {DType::kQ4_0, "Q4_0", 32, 18, true},
    {DType::kQ4_1, "Q4_1", 32, 20, true},
    {DType::kQ5_0, "Q5_0", 32, 22, true},
    {DType::kQ5_1, "Q5_1", 32, 24, true},
    {DType::kQ8_0, "Q8_0", 32, 34, true},
    // Known by size only: a form of activations, never of weights.
    {DType::kQ8_1, "Q8_1", 32, 36, false},
    {DType::kQ2_K, "Q2_K", 256, 84, true},
    {DType::kQ3_K, "Q3_K", 256, 110, true},
    {DType::kQ4_K, "Q4_K", 256, 144, true},
    {DType::kQ5_K, "Q5_K", 256, 176, true},
    {DType::kQ6_K, "Q6_K", 256, 210, true},
    {DType::kQ8_K, "Q8_K", 256, 292, true},
    {DType::kIQ2_XXS, "IQ2_XXS", 256, 66, true},
    {DType::kIQ2_XS, "IQ2_XS", 256, 74, true},
    {DType::kIQ3_XXS, "IQ3_XXS", 256, 98, true},
    {DType::kIQ1_S, "IQ1_S", 256, 50, true},
    {DType::kIQ4_NL, "IQ4_NL", 32, 18, true},
    {DType::kIQ3_S, "IQ3_S", 256, 110, true},
    {DType::kIQ2_S, "IQ2_S", 256, 82, true},
    {DType::kIQ4_XS, "IQ4_XS", 256, 136, true},
    {DType::kI8, "I8", 1, 1, false},
    {DType::kI16, "I16", 1, 2, false},
    {DType::kI32, "I32", 1, 4, false},
    {DType::kI64, "I64", 1, 8, false},
    {DType::kF64, "F64", 1, 8, false},
    {DType::kIQ1_M, "IQ1_M", 256, 56, true},
    {DType::kBF16, "BF16", 1, 2, true},
    {DType::kTQ1_0, "TQ1_0", 256, 54, true},
    {DType::kTQ2_0, "TQ2_0", 256, 66, true},
    {DType::kMXFP4, "MXFP4", 32, 17, true},
    {DType::kNVFP4, "NVFP4", 64, 36, true},
    {DType::kQ1_0, "Q1_0", 128, 18, true},
    {DType::kQ2_0, "Q2_0", 64, 18, true},
};

constexpr TypeTraits kF8E4M3 = {DType::kF8E4M3, "F8_E4M3", 128, 132, true};

constexpr std::size_t kIdCount = 43;

// Traits by ggml id; a hole has no bytes.
constexpr std::array<TypeTraits, kIdCount> make_table() {
  std::array<TypeTraits, kIdCount> table{};
  for (const TypeTraits& type : kTypes) table[static_cast<std::size_t>(type.type)] = type;
  return table;
}
constexpr std::array<TypeTraits, kIdCount> kTable = make_table();

struct RemovedType {
  std::uint32_t ggml_id;
  std::string_view advice;
};

constexpr RemovedType kRemoved[] = {
    {4, "Q4_2: dropped from the format in 2023; quantize the original model again, to Q4_0"},
    {5, "Q4_3: dropped from the format in 2023; quantize the original model again, to Q4_1"},
    {31, "Q4_0_4_4: repacked at load time since 2024; get or make the same model as Q4_0"},
    {32, "Q4_0_4_8: repacked at load time since 2024; get or make the same model as Q4_0"},
    {33, "Q4_0_8_8: repacked at load time since 2024; get or make the same model as Q4_0"},
    {36, "IQ4_NL_4_4: repacked at load time since 2024; get or make the same model as IQ4_NL"},
    {37, "IQ4_NL_4_8: repacked at load time since 2024; get or make the same model as IQ4_NL"},
    {38, "IQ4_NL_8_8: repacked at load time since 2024; get or make the same model as IQ4_NL"},
};

}  // namespace

const TypeTraits* find_type(std::uint32_t ggml_id) {
  if (ggml_id >= kIdCount || kTable[ggml_id].block_bytes == 0) return nullptr;
  return &kTable[ggml_id];
}

const TypeTraits& traits(DType type) {
  if (type == DType::kF8E4M3) return kF8E4M3;
  const TypeTraits* found = find_type(static_cast<std::uint32_t>(type));
  CHECK(found != nullptr, "no tensor type {}", static_cast<int>(type));
  return *found;
}

std::int64_t row_bytes(DType type, std::int64_t cols) {
  const TypeTraits& of = traits(type);
  CHECK(
      cols >= 0 && cols % of.block_values == 0,
      "a row of {} values is not a whole number of {} blocks",
      cols,
      of.name
  );
  return cols / of.block_values * of.block_bytes;
}

std::optional<std::string_view> removed_type(std::uint32_t ggml_id) {
  for (const RemovedType& removed : kRemoved) {
    if (removed.ggml_id == ggml_id) return removed.advice;
  }
  return std::nullopt;
}

}  // namespace artery::tensor
