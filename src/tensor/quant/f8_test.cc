// FP8 E4M3 against golden/models/quant/safetensors, bit for bit, and the place of its type.

#include <gtest/gtest.h>

#include <bit>
#include <boost/json.hpp>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "base/file_system.h"
#include "base/npy.h"
#include "tensor/dtype.h"
#include "tensor/quant/decode.h"
#include "tensor/quant/half.h"

namespace artery::tensor::quant {
namespace {

namespace json = boost::json;

const std::string kFolder =
    std::string(ARTERY_SOURCE_DIR) + "/../shared/golden/models/quant/safetensors/";

struct Checkpoint {
  std::int64_t rows = 0, cols = 0;
  std::string weight, scales;  // bytes
  std::vector<float> values;
};

// A file of one FP8 matrix (rows of the whole where it has one dimension) and its float32 scales.
Checkpoint read_checkpoint(const std::string& name) {
  Checkpoint c;
  const Result<std::string> file =
      system_file_system().read(kFolder + name + ".safetensors", 1 << 24);
  const Result<NpyArray> array = NpyArray::read(system_file_system(), kFolder + name + ".npy");
  if (!file || !array) return c;
  std::uint64_t header = 0;
  std::memcpy(&header, file->data(), sizeof header);
  const json::value parsed = json::parse(std::string_view(*file).substr(8, header));
  const auto bytes_of = [&](const char* tensor) {
    const json::value* row = parsed.as_object().if_contains(tensor);
    if (row == nullptr) return std::string();
    const auto begin = row->at("data_offsets").at(0).to_number<std::size_t>();
    const auto end = row->at("data_offsets").at(1).to_number<std::size_t>();
    return file->substr(8 + header + begin, end - begin);
  };
  const json::array& shape = parsed.at("weight").at("shape").as_array();
  c.cols = shape.back().to_number<std::int64_t>();
  c.rows = shape.size() > 1 ? shape.front().to_number<std::int64_t>() : 1;
  c.weight = bytes_of("weight");
  c.scales = bytes_of("weight_scale_inv");
  const auto values = array->float32();
  if (values) c.values.assign(values->begin(), values->end());
  return c;
}

// Blocks of one row as kF8E4M3 has them; scale 1 where the file has none.
std::vector<std::byte> blocks_of(const Checkpoint& c, std::int64_t row) {
  std::vector<std::byte> out;
  for (std::int64_t b = 0; b < c.cols / 128; ++b) {
    const auto at = static_cast<std::size_t>(row * c.cols + b * 128);
    const auto codes = std::as_bytes(std::span(c.weight).subspan(at, 128));
    out.insert(out.end(), codes.begin(), codes.end());
    float scale = 1;
    const auto place = static_cast<std::size_t>(row / 128 * (c.cols / 128) + b) * sizeof scale;
    if (!c.scales.empty()) std::memcpy(&scale, c.scales.data() + place, sizeof scale);
    const auto bytes = std::as_bytes(std::span(&scale, 1));
    out.insert(out.end(), bytes.begin(), bytes.end());
  }
  return out;
}

TEST(F8, DecodesGoldenCheckpointsBitForBit) {
  for (const std::string name :
       {"e4m3_all_codes", "e4m3_block128_128x128", "e4m3_block128_256x384"}) {
    const Checkpoint c = read_checkpoint(name);
    if (c.values.empty()) GTEST_SKIP() << "no golden data at " << kFolder;
    ASSERT_EQ(c.values.size(), static_cast<std::size_t>(c.rows * c.cols)) << name;
    for (std::int64_t r = 0; r < c.rows; ++r) {
      std::vector<float> got(static_cast<std::size_t>(c.cols));
      decode_row(DType::kF8E4M3, blocks_of(c, r), got);
      for (std::size_t i = 0; i < got.size(); ++i) {
        const float wanted = c.values[static_cast<std::size_t>(r * c.cols) + i];
        const bool same = std::isnan(wanted) ? std::isnan(got[i])
                                             : std::bit_cast<std::uint32_t>(wanted) ==
                                                   std::bit_cast<std::uint32_t>(got[i]);
        ASSERT_TRUE(same) << name << " row " << r << ", " << i << ": " << wanted << " " << got[i];
      }
    }
  }
}

TEST(F8, EveryCodeIsItsValue) {
  for (int code = 0; code < 256; ++code) {
    const float got = f8_e4m3_to_f32(static_cast<std::uint8_t>(code));
    const int exponent = code >> 3 & 15;
    const int mantissa = code & 7;
    if (exponent == 15 && mantissa == 7) {
      EXPECT_TRUE(std::isnan(got)) << code;
      continue;
    }
    const double magnitude =
        exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8 + mantissa, exponent - 10);
    EXPECT_EQ(std::signbit(got), code >= 128) << code;
    EXPECT_EQ(std::fabs(got), magnitude) << code;
  }
}

TEST(F8, IsNoTypeOfGguf) {
  EXPECT_EQ(find_type(static_cast<std::uint32_t>(DType::kF8E4M3)), nullptr);
  EXPECT_EQ(name(DType::kF8E4M3), "F8_E4M3");
  EXPECT_EQ(row_bytes(DType::kF8E4M3, 384), 3 * 132);
  for (std::uint32_t id = 0; id < 1024; ++id) {
    const TypeTraits* type = find_type(id);
    if (type != nullptr) {
      EXPECT_NE(type->name, "F8_E4M3");
    }
  }
}

}  // namespace
}  // namespace artery::tensor::quant
