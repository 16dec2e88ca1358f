#include "model/arch/rope.h"

#include <gtest/gtest.h>

#include <cmath>

#include "testing/mem_file_system.h"
#include "testing/tiny_model.h"

namespace artery::model {
namespace {

using testing::GgufWriter;

constexpr int kHeadDim = 64;

Result<RopeSpec> spec_of(GgufWriter writer) {
  testing::MemFileSystem files;
  files.add("m.gguf", writer.bytes());
  const auto file = TRY(GgufFile::open("m.gguf", files));
  return read_rope(
      HyperParameters(*file, "llama"), tensor::RopeStyle::kAdjacentPairs, kHeadDim, 4096
  );
}

tensor::RopeTable table_of(const GgufWriter& writer, std::vector<float> divisors = {}) {
  tensor::ComputePool pool(2);
  const auto spec = spec_of(writer);
  EXPECT_TRUE(spec) << spec.error().message;
  auto table = make_rope_table(*spec, 3000, divisors, pool);
  EXPECT_TRUE(table) << table.error().message;
  return table.take();
}

// Cosine and sine of `position` for a frequency given in radians per position.
void expect_angle(const tensor::RopeTable& table, int position, int i, double turn, double scale) {
  const auto at = static_cast<std::size_t>(position * kHeadDim / 2 + i);
  EXPECT_NEAR(table.cos[at], scale * std::cos(position * turn), 1e-11) << position << " " << i;
  EXPECT_NEAR(table.sin[at], scale * std::sin(position * turn), 1e-11) << position << " " << i;
}

GgufWriter base_file() {
  GgufWriter writer;
  writer.set_float("llama.rope.freq_base", 10000);
  return writer;
}

double plain(int i) { return std::pow(10000.0, -2.0 * i / kHeadDim); }

TEST(Rope, PlainFrequencies) {
  const auto table = table_of(base_file());
  EXPECT_EQ(table.rotary_dims, kHeadDim);
  ASSERT_EQ(table.cos.size(), 3000u * kHeadDim / 2);
  for (const int position : {0, 1, 17, 2999})
    for (const int i : {0, 1, 15, 31}) expect_angle(table, position, i, plain(i), 1);
}

TEST(Rope, LinearScalingByBothKeys) {
  for (const char* key : {"llama.rope.scaling.factor", "llama.rope.scale_linear"}) {
    GgufWriter writer = base_file();
    writer.set_float(key, 4);
    const auto table = table_of(writer);
    for (const int i : {0, 7, 31}) expect_angle(table, 2999, i, plain(i) / 4, 1);
  }
}

TEST(Rope, NoneIgnoresTheFactor) {
  GgufWriter writer = base_file();
  writer.set_string("llama.rope.scaling.type", "none");
  writer.set_float("llama.rope.scaling.factor", 4);
  expect_angle(table_of(writer), 2999, 7, plain(7), 1);
}

// Values worked out by hand from the paper for dims 64, base 10000, original context 2048, factor
// 4: the ramp runs from floor(64 ln(2048 / (32 * 2 pi)) / (2 ln 10000)) = 8 to
// ceil(64 ln(2048 / (2 pi)) / (2 ln 10000)) = 21; magnitude 1 + 0.1 ln 4.
TEST(Rope, Yarn) {
  GgufWriter writer = base_file();
  writer.set_string("llama.rope.scaling.type", "yarn");
  writer.set_float("llama.rope.scaling.factor", 4);
  writer.set_unsigned("llama.rope.scaling.original_context_length", 2048);
  const auto table = table_of(writer);
  const double scale = 1.1386294361119891;
  for (const int position : {0, 1, 2999}) {
    for (const int i : {0, 8}) expect_angle(table, position, i, plain(i), scale);
    for (const int i : {21, 31}) expect_angle(table, position, i, plain(i) / 4, scale);
    const double mix = (15 - 8) / 13.0;  // share that is interpolated at index 15
    expect_angle(table, position, 15, plain(15) * ((1 - mix) + mix / 4), scale);
  }
}

TEST(Rope, Llama3Divisors) {
  std::vector<float> divisors(kHeadDim / 2, 1);
  divisors[10] = 2.5f;
  divisors[31] = 8;
  const auto table = table_of(base_file(), divisors);
  expect_angle(table, 2999, 9, plain(9), 1);
  expect_angle(table, 2999, 10, plain(10) / 2.5, 1);
  expect_angle(table, 2999, 31, plain(31) / 8, 1);
}

TEST(Rope, RefusesWhatItCannotDo) {
  struct Case {
    void (*spoil)(GgufWriter&);
    Code code;
    const char* piece;
  };
  const Case cases[] = {
      {[](GgufWriter& w) { w.set_string("llama.rope.scaling.type", "dynamic"); },
       Code::kUnsupported,
       "'dynamic'"},
      {[](GgufWriter& w) { w.set_string("llama.rope.scaling.type", "longrope"); },
       Code::kBadFile,
       "missing metadata llama.rope.scaling.original_context_length"},
      {[](GgufWriter& w) { w.set_float("llama.rope.scaling.factor", -2); },
       Code::kBadFile,
       "above 0"},
      {[](GgufWriter& w) { w.set_float("llama.rope.freq_base", 0); },
       Code::kBadFile,
       "llama.rope.freq_base is 0"},
      {[](GgufWriter& w) { w.set_float("llama.rope.freq_base", NAN); },
       Code::kBadFile,
       "not a finite number"},
      {[](GgufWriter& w) { w.set_unsigned("llama.rope.dimension_count", 66); },
       Code::kBadFile,
       "66 is odd or larger than the head size 64"},
  };
  for (const Case& c : cases) {
    GgufWriter writer = base_file();
    c.spoil(writer);
    const auto spec = spec_of(writer);
    ASSERT_FALSE(spec) << c.piece;
    EXPECT_EQ(spec.error().code, c.code);
    EXPECT_NE(spec.error().message.find(c.piece), std::string::npos) << spec.error().message;
  }
}

// sqrt(1 + ln(4096 / 1024) / ln(1024)) where the file does not give the magnitude.
TEST(Rope, LongRopeChoosesItsDivisorsByTheContext) {
  GgufWriter writer = base_file();
  writer.set_string("llama.rope.scaling.type", "longrope");
  writer.set_unsigned("llama.rope.scaling.original_context_length", 1024);
  const auto spec = spec_of(writer);
  ASSERT_TRUE(spec) << spec.error().message;
  EXPECT_STREQ(divisors_tensor(*spec, 1024), "rope_factors_short.weight");
  EXPECT_STREQ(divisors_tensor(*spec, 1025), "rope_factors_long.weight");
  std::vector<float> divisors(kHeadDim / 2, 3);
  const double magnitude = std::sqrt(1 + std::log(4.0) / std::log(1024.0));
  for (const int i : {0, 7, 31})
    expect_angle(table_of(writer, divisors), 2999, i, plain(i) / 3, magnitude);
  writer.set_float("llama.rope.scaling.attn_factor", 1.5f);
  expect_angle(table_of(writer, divisors), 2999, 7, plain(7) / 3, 1.5);
}

TEST(Rope, RefusesDivisorsOutOfRange) {
  tensor::ComputePool pool(1);
  const auto spec = spec_of(base_file());
  std::vector<float> divisors(kHeadDim / 2, 1);
  for (const float bad : {0.0f, NAN, 1e-20f}) {
    divisors[3] = bad;
    EXPECT_EQ(make_rope_table(*spec, 100, divisors, pool).error().code, Code::kBadFile) << bad;
  }
}

TEST(Rope, RefusesATableBeyondItsLimit) {
  tensor::ComputePool pool(1);
  const auto spec = spec_of(base_file());
  EXPECT_EQ(make_rope_table(*spec, 1 << 28, {}, pool).error().code, Code::kOutOfMemory);
}

}  // namespace
}  // namespace artery::model
