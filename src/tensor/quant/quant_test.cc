// Decoders against golden/models/quant, bit for bit; encoders against the same reference's blocks.

#include <gtest/gtest.h>

#include <bit>
#include <boost/json.hpp>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "base/file_system.h"
#include "base/npy.h"
#include "tensor/dtype.h"
#include "tensor/quant/decode.h"
#include "tensor/quant/encode.h"
#include "tensor/quant/half.h"

namespace artery::tensor::quant {
namespace {

namespace json = boost::json;

const std::string kGolden = std::string(ARTERY_SOURCE_DIR) + "/../shared/golden/models/quant/";

struct Segment {
  std::string name;
  std::int64_t first_block, blocks;
};

struct GoldenType {
  std::string name;
  std::uint32_t ggml_id;
  std::int64_t block_values, block_bytes, blocks;
  std::vector<Segment> segments;
  double rms_error_of_reference;  // negative: no quantizer in the golden data
};

std::int64_t number(const json::value& of, const char* key) {
  return of.at(key).to_number<std::int64_t>();
}
std::string text(const json::value& of, const char* key) {
  return std::string(of.at(key).as_string());
}

GoldenType golden_type(const json::value& row) {
  GoldenType type;
  type.name = text(row, "type");
  type.ggml_id = static_cast<std::uint32_t>(number(row, "ggml_type_id"));
  type.block_values = number(row, "block_values");
  type.block_bytes = number(row, "block_bytes");
  type.blocks = number(row, "blocks");
  for (const json::value& segment : row.at("segments").as_array()) {
    type.segments.push_back(
        {text(segment, "name"), number(segment, "first_block"), number(segment, "blocks")}
    );
  }
  const json::value* quantizer = row.as_object().if_contains("quantizer");
  type.rms_error_of_reference =
      quantizer == nullptr ? -1 : quantizer->at("rms_error_of_reference").as_double();
  return type;
}

// Empty when the golden data are not there.
std::vector<GoldenType> golden_types() {
  const Result<std::string> file = system_file_system().read(kGolden + "manifest.json", 1 << 20);
  if (!file) return {};
  std::vector<GoldenType> types;
  const json::value manifest = json::parse(*file);
  for (const json::value& row : manifest.at("types").as_array()) types.push_back(golden_type(row));
  return types;
}

std::uint32_t bits_of(float value) { return std::bit_cast<std::uint32_t>(value); }
bool is_nan_bits(std::uint32_t bits) { return (bits & 0x7FFFFFFFu) > 0x7F800000u; }

// Compares with integers only, so that no compiler assumption about NaN can hide a difference.
bool same(float got, float wanted) {
  if (is_nan_bits(bits_of(wanted))) return is_nan_bits(bits_of(got));
  return bits_of(got) == bits_of(wanted);
}

class Golden : public testing::Test {
 protected:
  void SetUp() override {
    types_ = golden_types();
    if (types_.empty()) GTEST_SKIP() << "no golden data at " << kGolden;
  }

  static std::string raw(const GoldenType& type) {
    Result<std::string> file = system_file_system().read(kGolden + type.name + ".bin", 1 << 24);
    EXPECT_TRUE(file.has_value()) << type.name;
    return file ? file.take() : std::string();
  }
  static std::vector<float> floats(const std::string& name) {
    const Result<NpyArray> array = NpyArray::read(system_file_system(), kGolden + name);
    EXPECT_TRUE(array.has_value()) << name;
    if (!array) return {};
    const auto values = array->float32();
    EXPECT_TRUE(values.has_value()) << name;
    if (!values) return {};
    return {values->begin(), values->end()};
  }

  std::vector<GoldenType> types_;
};

TEST_F(Golden, TheTypeTableAgreesWithTheManifest) {
  EXPECT_EQ(types_.size(), 29u);
  for (const GoldenType& type : types_) {
    const TypeTraits* found = find_type(type.ggml_id);
    ASSERT_NE(found, nullptr) << type.name;
    EXPECT_EQ(found->name, type.name);
    EXPECT_EQ(static_cast<std::uint32_t>(found->type), type.ggml_id);
    EXPECT_EQ(found->block_values, type.block_values) << type.name;
    EXPECT_EQ(found->block_bytes, type.block_bytes) << type.name;
    EXPECT_TRUE(found->is_weight) << type.name;
  }
}

TEST_F(Golden, EveryBlockDecodesBitForBit) {
  for (const GoldenType& type : types_) {
    const std::string bytes = raw(type);
    const std::vector<float> wanted = floats(type.name + ".npy");
    ASSERT_EQ(bytes.size(), static_cast<std::size_t>(type.blocks * type.block_bytes)) << type.name;
    ASSERT_EQ(wanted.size(), static_cast<std::size_t>(type.blocks * type.block_values))
        << type.name;
    std::int64_t blocks_seen = 0;
    for (const Segment& segment : type.segments) {
      const auto first = static_cast<std::size_t>(segment.first_block * type.block_values);
      std::vector<float> got(static_cast<std::size_t>(segment.blocks * type.block_values), 12345.f);
      const auto in = std::as_bytes(std::span(bytes))
                          .subspan(
                              static_cast<std::size_t>(segment.first_block * type.block_bytes),
                              static_cast<std::size_t>(segment.blocks * type.block_bytes)
                          );
      decode_row(static_cast<DType>(type.ggml_id), in, got);
      for (std::size_t i = 0; i < got.size(); ++i) {
        ASSERT_TRUE(same(got[i], wanted[first + i]))
            << type.name << " " << segment.name << " value " << i << ": got " << got[i]
            << ", wanted " << wanted[first + i];
      }
      blocks_seen += segment.blocks;
    }
    EXPECT_EQ(blocks_seen, type.blocks) << type.name;
  }
}

// Rows start anywhere in a file, and a decoder must not touch what lies beyond its row.
TEST_F(Golden, MisalignedSingleBlocksStayWithinTheirRow) {
  for (const GoldenType& type : types_) {
    const std::string bytes = raw(type);
    const std::vector<float> wanted = floats(type.name + ".npy");
    const auto block_bytes = static_cast<std::size_t>(type.block_bytes);
    const auto block_values = static_cast<std::size_t>(type.block_values);
    for (std::size_t block = 0; block < 3; ++block) {
      // An exact heap buffer of its own, so that the sanitizers see any read beyond it.
      std::vector<std::byte> shifted(block_bytes + 1);
      std::memcpy(shifted.data() + 1, bytes.data() + block * block_bytes, block_bytes);
      std::vector<float> out(block_values + 2, 7.0f);
      decode_row(
          static_cast<DType>(type.ggml_id),
          std::span(shifted).subspan(1),
          std::span(out).subspan(1, block_values)
      );
      EXPECT_EQ(out.front(), 7.0f) << type.name;
      EXPECT_EQ(out.back(), 7.0f) << type.name;
      for (std::size_t i = 0; i < block_values; ++i) {
        ASSERT_TRUE(same(out[i + 1], wanted[block * block_values + i])) << type.name << " " << i;
      }
    }
  }
}

TEST_F(Golden, EncodersAreNoWorseThanTheReference) {
  int encoders = 0;
  for (const GoldenType& type : types_) {
    const auto dtype = static_cast<DType>(type.ggml_id);
    if (!can_encode(dtype) || type.rms_error_of_reference < 0) continue;
    ++encoders;
    const std::vector<float> source = floats(type.name + ".source.npy");
    ASSERT_FALSE(source.empty());
    const auto count = static_cast<std::int64_t>(source.size());
    std::vector<std::byte> encoded(static_cast<std::size_t>(row_bytes(dtype, count)));
    encode_row(dtype, source, encoded);
    std::vector<float> back(source.size());
    decode_row(dtype, encoded, back);
    double sum = 0;
    for (std::size_t i = 0; i < source.size(); ++i) {
      const double error = static_cast<double>(back[i]) - static_cast<double>(source[i]);
      sum += error * error;
    }
    const double rms = std::sqrt(sum / static_cast<double>(source.size()));
    // The margin is only for the order in which the reference summed.
    EXPECT_LE(rms, type.rms_error_of_reference * (1 + 1e-6)) << type.name;
    EXPECT_GT(rms, 0) << type.name;

    // The rule is the reference's, so the blocks are too.
    const std::string bytes = raw(type);
    for (const Segment& segment : type.segments) {
      if (segment.name != "quantized_gaussian_with_outliers") continue;
      const std::size_t at = static_cast<std::size_t>(segment.first_block * type.block_bytes);
      ASSERT_LE(at + encoded.size(), bytes.size());
      EXPECT_EQ(std::memcmp(encoded.data(), bytes.data() + at, encoded.size()), 0) << type.name;
    }
  }
  EXPECT_EQ(encoders, 3);
}

TEST(Half, EveryPatternComesBack) {
  for (std::uint32_t pattern = 0; pattern < 0x10000; ++pattern) {
    const auto half = static_cast<std::uint16_t>(pattern);
    const bool f16_nan = (half & 0x7FFF) > 0x7C00;
    const float f16 = f16_to_f32(half);
    EXPECT_EQ(is_nan_bits(bits_of(f16)), f16_nan) << pattern;
    EXPECT_EQ(f32_to_f16(f16), f16_nan ? half | 0x0200 : half) << pattern;
    const bool bf16_nan = (half & 0x7FFF) > 0x7F80;
    const float bf16 = bf16_to_f32(half);
    EXPECT_EQ(is_nan_bits(bits_of(bf16)), bf16_nan) << pattern;
    EXPECT_EQ(f32_to_bf16(bf16), bf16_nan ? half | 0x0040 : half) << pattern;
  }
}

// Between each two neighbours: just below the middle, the middle (to even), just above. The values
// come from the exact inverse, in double, so that this does not repeat the code under test.
template <typename ToFloat, typename ToHalf>
void check_rounding(std::uint16_t infinity, double beyond_largest, ToFloat to_float, ToHalf round) {
  for (std::uint16_t low = 0; low < infinity; ++low) {
    const auto high = static_cast<std::uint16_t>(low + 1);
    const double below = static_cast<double>(to_float(low));
    const double above = high == infinity ? beyond_largest : static_cast<double>(to_float(high));
    const auto middle = static_cast<float>((below + above) / 2);
    ASSERT_EQ(static_cast<double>(middle), (below + above) / 2) << low;
    const std::uint16_t even = low % 2 == 0 ? low : high;
    ASSERT_EQ(round(middle), even) << low;
    ASSERT_EQ(round(-middle), even | 0x8000) << low;
    ASSERT_EQ(round(std::nextafterf(middle, 0.0f)), low) << low;
    ASSERT_EQ(round(std::nextafterf(middle, std::numeric_limits<float>::infinity())), high) << low;
  }
}

TEST(Half, RoundsToNearestTiesToEven) {
  check_rounding(0x7C00, 0x1p16, f16_to_f32, f32_to_f16);
  check_rounding(0x7F80, 0x1p128, bf16_to_f32, f32_to_bf16);
}

TEST(Half, OverflowIsInfinityAndNanStays) {
  const float infinity = std::numeric_limits<float>::infinity();
  const float largest = std::numeric_limits<float>::max();
  EXPECT_EQ(f32_to_f16(65519.996f), 0x7BFF);
  EXPECT_EQ(f32_to_f16(65520.0f), 0x7C00);
  EXPECT_EQ(f32_to_f16(-largest), 0xFC00);
  EXPECT_EQ(f32_to_f16(infinity), 0x7C00);
  EXPECT_EQ(f32_to_bf16(largest), 0x7F80);
  EXPECT_EQ(f32_to_bf16(-infinity), 0xFF80);
  EXPECT_EQ(f32_to_f16(std::bit_cast<float>(0x00000001u)), 0);
  EXPECT_EQ(f32_to_f16(std::bit_cast<float>(0x80000001u)), 0x8000);
  // NaN whose payload lies only in the bits that are dropped, and one that a carry would overflow.
  for (const std::uint32_t nan : {0x7F800001u, 0xFF800001u, 0x7FFFFFFFu, 0xFFFFFFFFu}) {
    const float value = std::bit_cast<float>(nan);
    const auto sign = static_cast<std::uint16_t>(nan >> 16 & 0x8000u);
    EXPECT_GT(f32_to_f16(value) & 0x7FFF, 0x7C00);
    EXPECT_EQ(f32_to_f16(value) & 0x8000, sign);
    EXPECT_GT(f32_to_bf16(value) & 0x7FFF, 0x7F80);
    EXPECT_EQ(f32_to_bf16(value) & 0x8000, sign);
  }
}

TEST(Encode, ZeroConstantAndNonFiniteBlocksAreSafe) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float infinity = std::numeric_limits<float>::infinity();
  for (const DType type : {DType::kQ4_0, DType::kQ4_1, DType::kQ8_0}) {
    std::vector<std::byte> bytes(static_cast<std::size_t>(row_bytes(type, 32)));
    std::vector<float> back(32);
    for (const float constant : {0.0f, -0.0f, 0.5f, -2.0f}) {
      encode_row(type, std::vector<float>(32, constant), bytes);
      decode_row(type, bytes, back);
      for (const float value : back) EXPECT_NEAR(value, constant, 1e-3f) << name(type);
    }
    // No defined result, but no undefined conversion either (the sanitizer build judges this).
    std::vector<float> wild(32, 1.0f);
    wild[3] = nan;
    wild[20] = infinity;
    wild[21] = -infinity;
    encode_row(type, wild, bytes);
    encode_row(type, std::vector<float>(32, nan), bytes);
    encode_row(type, std::vector<float>(32, std::numeric_limits<float>::denorm_min()), bytes);
  }
}

TEST(Encode, FloatsRoundTripThroughRows) {
  const std::vector<float> values = {0.0f, -0.0f, 1.0f, -65504.0f, 0.333333343f};
  for (const DType type : {DType::kF32, DType::kF16, DType::kBF16}) {
    const auto count = static_cast<std::int64_t>(values.size());
    std::vector<std::byte> bytes(static_cast<std::size_t>(row_bytes(type, count)));
    encode_row(type, values, bytes);
    std::vector<float> back(values.size());
    decode_row(type, bytes, back);
    for (std::size_t i = 0; i < values.size(); ++i) {
      EXPECT_NEAR(back[i], values[i], std::fabs(values[i]) / 256) << name(type);
      EXPECT_EQ(std::signbit(back[i]), std::signbit(values[i])) << name(type);
    }
  }
}

TEST(Types, OnlyWeightTypesAndNoHoles) {
  int found_count = 0;
  for (std::uint32_t id = 0; id < 300; ++id) {
    const TypeTraits* found = find_type(id);
    EXPECT_FALSE(found != nullptr && removed_type(id).has_value()) << id;
    if (found == nullptr) continue;
    ++found_count;
    EXPECT_EQ(static_cast<std::uint32_t>(found->type), id);
    EXPECT_FALSE(found->name.empty());
    EXPECT_EQ(row_bytes(found->type, 0), 0);
    EXPECT_EQ(row_bytes(found->type, 3 * found->block_values), 3 * found->block_bytes);
    const std::vector<std::byte> bytes(static_cast<std::size_t>(found->block_bytes));
    std::vector<float> out(static_cast<std::size_t>(found->block_values), 1.0f);
    if (found->is_weight) decode_row(found->type, bytes, out);
  }
  EXPECT_EQ(found_count, 35);
  for (const DType type : {DType::kQ8_1, DType::kI8, DType::kI64, DType::kF64}) {
    EXPECT_FALSE(traits(type).is_weight) << name(type);
    EXPECT_FALSE(can_encode(type)) << name(type);
  }
}

TEST(Types, RemovedTypesSayWhatToDo) {
  for (const std::uint32_t id : {4u, 5u, 31u, 32u, 33u, 36u, 37u, 38u}) {
    EXPECT_EQ(find_type(id), nullptr) << id;
    ASSERT_TRUE(removed_type(id).has_value()) << id;
  }
  EXPECT_TRUE(removed_type(31)->starts_with("Q4_0_4_4: "));
  EXPECT_NE(removed_type(31)->find("as Q4_0"), std::string_view::npos);
  EXPECT_FALSE(removed_type(2).has_value());
  EXPECT_FALSE(removed_type(0xFFFFFFFFu).has_value());
  EXPECT_EQ(find_type(0xFFFFFFFFu), nullptr);
}

}  // namespace
}  // namespace artery::tensor::quant
