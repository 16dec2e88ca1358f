#include "model/format/hf_rows.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <optional>

#include "base/npy.h"
#include "tensor/quant/decode.h"

namespace artery::model {
namespace {

const std::string kGolden =
    std::string(ARTERY_SOURCE_DIR) + "/../shared/golden/models/quant/safetensors/";

const StTensor* find(const SafetensorsFile& file, std::string_view name) {
  for (const StTensor& tensor : file.tensors())
    if (tensor.name == name) return &tensor;
  return nullptr;
}

HfPart part(const StTensor& tensor) { return {0, tensor.offset, tensor.bytes}; }

void expect_equal(std::span<const float> got, std::span<const float> expected) {
  ASSERT_EQ(got.size(), expected.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    const bool both_nan = std::isnan(got[i]) && std::isnan(expected[i]);
    const bool same =
        std::bit_cast<std::uint32_t>(got[i]) == std::bit_cast<std::uint32_t>(expected[i]);
    ASSERT_TRUE(both_nan || same) << i << ": " << got[i] << " and " << expected[i];
  }
}

// All rows as float32, asked for one by one and then together, which must be the same.
std::vector<float> decoded(
    const HfRecipe& recipe, const TensorInfo& tensor, const SafetensorsFile& file
) {
  const std::span<const std::byte> bytes[] = {file.file().bytes()};
  std::vector<std::byte> scratch;
  std::vector<std::byte> all;
  for (std::int64_t r = 0; r < tensor.rows(); ++r) {
    const auto row = lay_rows(recipe, tensor, bytes, r, 1, scratch).value();
    all.insert(all.end(), row.begin(), row.end());
  }
  const auto together = lay_rows(recipe, tensor, bytes, 0, tensor.rows(), scratch).value();
  EXPECT_TRUE(std::ranges::equal(all, together));
  std::vector<float> out(static_cast<std::size_t>(tensor.cols() * tensor.rows()));
  const auto cols = static_cast<std::size_t>(tensor.cols());
  const auto row_bytes = static_cast<std::size_t>(tensor.row_bytes());
  for (std::size_t r = 0; r < out.size() / cols; ++r) {
    tensor::quant::decode_row(
        tensor.type,
        std::span(all).subspan(r * row_bytes, row_bytes),
        std::span(out).subspan(r * cols, cols)
    );
  }
  return out;
}

TensorInfo info(tensor::DType type, std::int64_t cols, std::int64_t rows) {
  TensorInfo out;
  out.type = type;
  out.shape = {cols, rows};
  out.bytes = static_cast<std::uint64_t>(tensor::row_bytes(type, cols) * rows);
  return out;
}

class HfRowsGolden : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(kGolden)) GTEST_SKIP() << "../shared/golden is not here";
    file_.emplace(SafetensorsFile::open(kGolden + GetParam() + ".safetensors").value());
    values_.emplace(NpyArray::read(system_file_system(), kGolden + GetParam() + ".npy").value());
  }
  std::span<const float> expected() const { return values_->float32().value(); }
  std::optional<SafetensorsFile> file_;
  std::optional<NpyArray> values_;
};

class HfRowsFp8 : public HfRowsGolden {};

TEST_P(HfRowsFp8, EqualsTheGolden) {
  const StTensor& weight = *find(*file_, "weight");
  const StTensor* scale = nullptr;
  for (const char* name : {"weight_scale_inv", "weight_scale", "scale"})
    if (scale == nullptr) scale = find(*file_, name);
  ASSERT_NE(scale, nullptr);
  HfRecipe recipe;
  recipe.kind = HfRecipe::Kind::kFp8Decoded;
  recipe.parts = {part(weight)};
  recipe.scales = {part(*scale)};
  recipe.scale_type = scale->type;
  recipe.source_rows = recipe.rows = weight.shape[0];
  recipe.source_cols = weight.shape[1];
  const bool blocks = std::string_view(GetParam()).find("block128") != std::string_view::npos;
  recipe.scale_rows = blocks ? 128 : scale->elements() == 1 ? weight.shape[0] : 1;
  recipe.scale_cols = blocks ? 128 : weight.shape[1];
  const TensorInfo out = info(tensor::DType::kF32, weight.shape[1], weight.shape[0]);
  expect_equal(decoded(recipe, out, *file_), expected());
  if (weight.shape[1] % 128 != 0) return;
  recipe.kind = HfRecipe::Kind::kFp8;
  const TensorInfo coded = info(tensor::DType::kF8E4M3, weight.shape[1], weight.shape[0]);
  expect_equal(decoded(recipe, coded, *file_), expected());
}

INSTANTIATE_TEST_SUITE_P(
    All,
    HfRowsFp8,
    ::testing::Values(
        "e4m3_block128_128x128",
        "e4m3_block128_129x128",
        "e4m3_block128_130x200",
        "e4m3_block128_1x300",
        "e4m3_block128_256x384",
        "e4m3_block128_64x64",
        "e4m3_block128_e8m0_128x128",
        "e4m3_block128_e8m0_129x128",
        "e4m3_block128_e8m0_130x200",
        "e4m3_block128_e8m0_1x300",
        "e4m3_block128_e8m0_256x384",
        "e4m3_block128_e8m0_64x64",
        "e4m3_per_row",
        "e4m3_per_row_bf16_scale",
        "e4m3_per_tensor",
        "e4m3_per_tensor_bf16_scale"
    )
);

class HfRowsMxfp4 : public HfRowsGolden {};

TEST_P(HfRowsMxfp4, EqualsTheGolden) {
  const bool oss = std::string_view(GetParam()) == "mxfp4_gptoss";
  const StTensor& codes = *find(*file_, oss ? "w_blocks" : "weight");
  HfRecipe recipe;
  recipe.kind = HfRecipe::Kind::kMxfp4;
  recipe.parts = {part(codes)};
  recipe.scales = {part(*find(*file_, oss ? "w_scales" : "scale"))};
  recipe.source_rows = recipe.rows = 6;
  recipe.source_cols = 128;
  std::vector<float> values(expected().begin(), expected().end());
  // GGUF's table of sixteen values has no negative zero.
  for (float& value : values) value = value == 0 ? 0 : value;
  expect_equal(decoded(recipe, info(tensor::DType::kMXFP4, 128, 6), *file_), values);
}

INSTANTIATE_TEST_SUITE_P(All, HfRowsMxfp4, ::testing::Values("mxfp4_gptoss", "fp4_e8m0_group32"));

class HfRowsPlain : public HfRowsGolden {};

TEST_P(HfRowsPlain, EqualsTheGolden) {
  const StTensor& weight = *find(*file_, "weight");
  HfRecipe recipe;
  recipe.source_type = plain_type(weight.type);
  recipe.parts = {part(weight)};
  recipe.source_rows = recipe.rows = weight.shape[0];
  recipe.source_cols = weight.shape[1];
  const TensorInfo out = info(recipe.source_type, weight.shape[1], weight.shape[0]);
  expect_equal(decoded(recipe, out, *file_), expected());
}

INSTANTIATE_TEST_SUITE_P(All, HfRowsPlain, ::testing::Values("bf16_plain"));

TEST(HfRows, AllE4m3Codes) {
  if (!std::filesystem::exists(kGolden)) GTEST_SKIP() << "../shared/golden is not here";
  const auto values = NpyArray::read(system_file_system(), kGolden + "e4m3_all_codes.npy").value();
  std::vector<float> got;
  for (unsigned code = 0; code < 256; ++code)
    got.push_back(e4m3_value(static_cast<std::uint8_t>(code)));
  expect_equal(got, values.float32().value());
}

// The rest on a small matrix of numbered values.
class HfRowsSmall : public ::testing::Test {
 protected:
  HfRowsSmall() {
    for (std::size_t i = 0; i < values_.size(); ++i) values_[i] = static_cast<float>(i);
    bytes_[0] = std::as_bytes(std::span(values_));
    recipe_.parts = {{0, 0, 8 * 3 * 4}, {0, 8 * 3 * 4, 8 * 3 * 4}};
    recipe_.source_rows = recipe_.rows = 8;
    recipe_.source_cols = 3;
  }
  std::vector<float> rows(const TensorInfo& tensor, std::int64_t first, std::int64_t count) {
    std::vector<std::byte> scratch;
    const auto raw = lay_rows(recipe_, tensor, bytes_, first, count, scratch).value();
    std::vector<float> out(raw.size() / 4);
    std::memcpy(out.data(), raw.data(), raw.size());
    return out;
  }
  std::vector<float> values_ = std::vector<float>(48);
  std::span<const std::byte> bytes_[1];
  HfRecipe recipe_;
};

TEST_F(HfRowsSmall, PlainRowsOfOnePartAreAView) {
  std::vector<std::byte> scratch;
  const TensorInfo tensor = info(tensor::DType::kF32, 3, 16);
  const auto raw = lay_rows(recipe_, tensor, bytes_, 9, 2, scratch).value();
  EXPECT_EQ(raw.data(), bytes_[0].data() + 9 * 12);
  EXPECT_TRUE(scratch.empty());
  EXPECT_EQ(rows(tensor, 7, 2), (std::vector<float>{21, 22, 23, 24, 25, 26}));
}

TEST_F(HfRowsSmall, HeadsFromHalvesToPairs) {
  recipe_.head_rows = 4;
  recipe_.source_cols = 1;
  recipe_.parts = {{0, 0, 32}};
  const TensorInfo matrix = info(tensor::DType::kF32, 1, 8);
  const std::vector<float> order{0, 2, 1, 3, 4, 6, 5, 7};
  EXPECT_EQ(rows(matrix, 0, 8), order);
  EXPECT_EQ(rows(matrix, 5, 1), std::vector<float>{6});
  // A bias follows its matrix: one row of eight values.
  EXPECT_EQ(rows(info(tensor::DType::kF32, 8, 1), 0, 1), order);
}

TEST_F(HfRowsSmall, AlternateRowsAndTransposition) {
  recipe_.rows = 4;
  recipe_.first = 1;
  recipe_.stride = 2;
  const TensorInfo up = info(tensor::DType::kF32, 3, 8);
  EXPECT_EQ(rows(up, 0, 2), (std::vector<float>{3, 4, 5, 9, 10, 11}));
  EXPECT_EQ(rows(up, 4, 1), (std::vector<float>{27, 28, 29}));
  recipe_.kind = HfRecipe::Kind::kTransposed;
  recipe_.source_rows = 3;  // [in 3, out 8]
  recipe_.source_cols = 8;
  EXPECT_EQ(rows(up, 0, 2), (std::vector<float>{1, 9, 17, 3, 11, 19}));
  EXPECT_EQ(rows(up, 4, 1), (std::vector<float>{25, 33, 41}));
}

TEST_F(HfRowsSmall, OneIsAddedToNorms) {
  recipe_.kind = HfRecipe::Kind::kAddOne;
  recipe_.source_rows = recipe_.rows = 1;
  recipe_.source_cols = 4;
  recipe_.parts = {{0, 0, 16}};
  EXPECT_EQ(rows(info(tensor::DType::kF32, 4, 1), 0, 1), (std::vector<float>{1, 2, 3, 4}));
}

TEST(HfRows, ScalesThatAreNoNumbersAreRefused) {
  std::string data(17, '\xFF');
  const std::span<const std::byte> bytes[] = {std::as_bytes(std::span(data))};
  HfRecipe recipe;
  recipe.kind = HfRecipe::Kind::kMxfp4;
  recipe.parts = {{0, 0, 16}};
  recipe.scales = {{0, 16, 1}};
  recipe.source_rows = recipe.rows = 1;
  recipe.source_cols = 32;
  TensorInfo tensor = info(tensor::DType::kMXFP4, 32, 1);
  tensor.source = "w_blocks";
  std::vector<std::byte> scratch;
  const auto row = lay_rows(recipe, tensor, bytes, 0, 1, scratch);
  ASSERT_FALSE(row);
  EXPECT_EQ(row.error().code, Code::kBadFile);
  EXPECT_NE(row.error().message.find("w_blocks: the scale of row 0"), std::string::npos);
}

}  // namespace
}  // namespace artery::model
