#include "model/format/hf_rows.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "model/format/text.h"
#include "tensor/quant/decode.h"

namespace artery::model {
namespace {

constexpr std::int64_t kMxfp4Values = 32;
constexpr std::int64_t kMxfp4Bytes = 17;

std::array<float, 256> make_e4m3_table() {
  std::array<float, 256> out{};
  for (unsigned code = 0; code < 256; ++code) {
    const int exponent = static_cast<int>(code >> 3) & 15;
    const auto mantissa = static_cast<float>(code & 7);
    float value =
        exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8 + mantissa, exponent - 10);
    if ((code & 0x7F) == 0x7F) value = std::numeric_limits<float>::quiet_NaN();
    out[code] = (code & 0x80) != 0 ? -value : value;
  }
  return out;
}

const std::array<float, 256>& e4m3_table() {
  static const std::array<float, 256> table = make_e4m3_table();
  return table;
}

template <typename T>
T load(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

class RowMaker {
 public:
  RowMaker(const HfRecipe& recipe, const TensorInfo& tensor, HfFiles files)
      : recipe_(recipe), tensor_(tensor), files_(files) {}

  // Of one of the recipe's rows; the output may hold several to a row of the tensor.
  std::int64_t unit_bytes() const {
    switch (recipe_.kind) {
      case HfRecipe::Kind::kCopy:
        return tensor::row_bytes(recipe_.source_type, recipe_.source_cols);
      case HfRecipe::Kind::kTransposed:
        return tensor::row_bytes(recipe_.source_type, recipe_.source_rows);
      default:
        return tensor::row_bytes(tensor_.type, recipe_.source_cols);
    }
  }

  // A part's rows in one run, when they are just that; else null.
  const std::byte* view(std::int64_t unit, std::int64_t count) const {
    const bool plain =
        recipe_.kind == HfRecipe::Kind::kCopy && recipe_.stride == 1 && recipe_.head_rows == 0;
    if (!plain || unit / recipe_.rows != (unit + count - 1) / recipe_.rows) return nullptr;
    return source(unit / recipe_.rows) + (recipe_.first + unit % recipe_.rows) * unit_bytes();
  }

  Result<> make(std::int64_t unit, std::byte* out) const {
    const std::int64_t part = unit / recipe_.rows;
    const std::int64_t row = source_row(unit % recipe_.rows);
    switch (recipe_.kind) {
      case HfRecipe::Kind::kCopy: {
        const std::int64_t bytes = unit_bytes();
        std::memcpy(out, source(part) + row * bytes, static_cast<std::size_t>(bytes));
        return {};
      }
      case HfRecipe::Kind::kTransposed:
        transpose(part, row, out);
        return {};
      case HfRecipe::Kind::kFp8:
        return fp8(part, row, out);
      case HfRecipe::Kind::kFp8Decoded:
        return fp8_decoded(part, row, out);
      case HfRecipe::Kind::kMxfp4:
        return mxfp4(part, row, out);
      default:
        add_one(part, row, out);
        return {};
    }
  }

 private:
  const std::byte* at(const HfPart& part) const { return files_[part.file].data() + part.offset; }
  const std::byte* source(std::int64_t part) const {
    return at(recipe_.parts[static_cast<std::size_t>(part)]);
  }

  std::int64_t source_row(std::int64_t row) const {
    if (recipe_.head_rows != 0) {
      const std::int64_t in_head = row % recipe_.head_rows;
      const std::int64_t half = recipe_.head_rows / 2;
      row += in_head / 2 + in_head % 2 * half - in_head;
    }
    return recipe_.first + recipe_.stride * row;
  }

  void transpose(std::int64_t part, std::int64_t column, std::byte* out) const {
    const auto size = static_cast<std::size_t>(tensor::row_bytes(recipe_.source_type, 1));
    const std::byte* from = source(part) + static_cast<std::size_t>(column) * size;
    const std::size_t step = static_cast<std::size_t>(recipe_.source_cols) * size;
    for (std::int64_t k = 0; k < recipe_.source_rows; ++k, from += step, out += size)
      std::memcpy(out, from, size);
  }

  float scale(std::int64_t part, std::int64_t row, std::int64_t column) const {
    const std::int64_t a_row = (recipe_.source_cols + recipe_.scale_cols - 1) / recipe_.scale_cols;
    const std::int64_t index = row / recipe_.scale_rows * a_row + column / recipe_.scale_cols;
    const std::byte* from = at(recipe_.scales[static_cast<std::size_t>(part)]);
    if (recipe_.scale_type == StType::kF8E8M0) {
      const int code = static_cast<int>(from[index]);
      return code == 255 ? std::numeric_limits<float>::quiet_NaN() : std::ldexp(1.0f, code - 127);
    }
    const tensor::DType type = plain_type(recipe_.scale_type);
    const auto bytes = static_cast<std::size_t>(tensor::row_bytes(type, 1));
    float value = 0;
    tensor::quant::decode_row(
        type, {from + static_cast<std::size_t>(index) * bytes, bytes}, {&value, 1}
    );
    return value;
  }

  Result<float> checked_scale(std::int64_t part, std::int64_t row, std::int64_t column) const {
    const float value = scale(part, row, column);
    if (std::isfinite(value)) return value;
    return fail(
        Code::kBadFile,
        "tensor {}: the scale of row {}, column {} is {}, expected a number",
        printable(tensor_.source),
        row,
        column,
        value
    );
  }

  // Blocks of 128 codes, then their scale.
  Result<> fp8(std::int64_t part, std::int64_t row, std::byte* out) const {
    constexpr std::int64_t kBlock = 128;
    const std::byte* from = source(part) + row * recipe_.source_cols;
    for (std::int64_t c = 0; c < recipe_.source_cols; c += kBlock) {
      const float value = TRY(checked_scale(part, row, c));
      std::memcpy(out, from + c, kBlock);
      std::memcpy(out + kBlock, &value, sizeof value);
      out += kBlock + sizeof value;
    }
    return {};
  }

  Result<> fp8_decoded(std::int64_t part, std::int64_t row, std::byte* out) const {
    const std::byte* from = source(part) + row * recipe_.source_cols;
    for (std::int64_t c = 0; c < recipe_.source_cols;) {
      const float block_scale = TRY(checked_scale(part, row, c));
      const std::int64_t end =
          std::min(recipe_.source_cols, (c / recipe_.scale_cols + 1) * recipe_.scale_cols);
      for (; c < end; ++c, out += sizeof(float)) {
        const float value = e4m3_table()[static_cast<std::size_t>(from[c])] * block_scale;
        std::memcpy(out, &value, sizeof value);
      }
    }
    return {};
  }

  // From values 2k and 2k + 1 in byte k to values k and k + 16 in byte k, behind their scale.
  Result<> mxfp4(std::int64_t part, std::int64_t row, std::byte* out) const {
    const std::int64_t groups = recipe_.source_cols / kMxfp4Values;
    const std::byte* from = source(part) + row * (recipe_.source_cols / 2);
    const std::byte* codes = at(recipe_.scales[static_cast<std::size_t>(part)]) + row * groups;
    for (std::int64_t g = 0; g < groups; ++g, from += 16, out += kMxfp4Bytes) {
      if (codes[g] == std::byte{255}) {
        return fail(
            Code::kBadFile,
            "tensor {}: the scale of row {}, group {} is 255 (not a number)",
            printable(tensor_.source),
            row,
            g
        );
      }
      out[0] = codes[g];
      auto value = [&](int i) { return (from[i / 2] >> (4 * (i % 2))) & std::byte{15}; };
      for (int k = 0; k < 16; ++k) out[1 + k] = value(k) | (value(k + 16) << 4);
    }
    return {};
  }

  void add_one(std::int64_t part, std::int64_t row, std::byte* out) const {
    const auto bytes =
        static_cast<std::size_t>(tensor::row_bytes(recipe_.source_type, recipe_.source_cols));
    std::vector<float> values(static_cast<std::size_t>(recipe_.source_cols));
    const std::byte* from = source(part) + static_cast<std::size_t>(row) * bytes;
    tensor::quant::decode_row(recipe_.source_type, {from, bytes}, values);
    for (float& value : values) value += 1.0f;
    std::memcpy(out, values.data(), values.size() * sizeof(float));
  }

  const HfRecipe& recipe_;
  const TensorInfo& tensor_;
  HfFiles files_;
};

}  // namespace

float e4m3_value(std::uint8_t code) { return e4m3_table()[code]; }

Result<std::span<const std::byte>> lay_rows(
    const HfRecipe& recipe,
    const TensorInfo& tensor,
    HfFiles files,
    std::int64_t first,
    std::int64_t count,
    std::vector<std::byte>& scratch
) {
  const auto row = static_cast<std::size_t>(tensor.row_bytes());
  const std::size_t bytes = row * static_cast<std::size_t>(count);
  if (count == 0) return std::span<const std::byte>();
  if (recipe.kind == HfRecipe::Kind::kOwned) {
    const auto all = std::as_bytes(std::span(recipe.owned));
    return all.subspan(row * static_cast<std::size_t>(first), bytes);
  }
  const RowMaker maker(recipe, tensor, files);
  const auto unit = static_cast<std::size_t>(maker.unit_bytes());
  const auto per_row = static_cast<std::int64_t>(row / unit);
  if (const std::byte* view = maker.view(first * per_row, count * per_row))
    return std::span(view, bytes);
  scratch.resize(bytes);
  for (std::int64_t i = 0; i < count * per_row; ++i) {
    std::byte* out = scratch.data() + static_cast<std::size_t>(i) * unit;
    TRY(maker.make(first * per_row + i, out));
  }
  return std::span<const std::byte>(scratch);
}

}  // namespace artery::model
