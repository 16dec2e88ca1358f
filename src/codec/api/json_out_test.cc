#include "codec/api/json_out.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace artery::codec::api {
namespace {

std::string inside(std::string_view text) {
  std::string out;
  put_json_inside(out, text);
  return out;
}

template <typename Number>
std::string number(Number value) {
  std::string out;
  put_json_number(out, value);
  return out;
}

TEST(JsonOut, EscapesAsSerdeDoes) {
  EXPECT_EQ(inside("a\"b\\c/d"), R"(a\"b\\c/d)");
  EXPECT_EQ(inside("\b\f\n\r\t"), R"(\b\f\n\r\t)");
  EXPECT_EQ(inside(std::string_view("\0\x01\x1f\x7f", 4)), "\\u0000\\u0001\\u001f\x7f");
  EXPECT_EQ(inside("<｜DSML｜ 你好 😀 \u2028"), "<｜DSML｜ 你好 😀 \u2028");
  std::string out;
  put_json_string(out, "");
  put_json_string(out, "x");
  EXPECT_EQ(out, R"("""x")");
}

TEST(JsonOut, EveryByteAtEveryPlace) {
  // Words of eight are looked at at once: a byte must be found wherever it stands.
  for (int byte = 0; byte < 128; ++byte) {
    const std::string one = inside(std::string(1, static_cast<char>(byte)));
    for (std::size_t at = 0; at < 17; ++at) {
      std::string text(17, 'x');
      text[at] = static_cast<char>(byte);
      EXPECT_EQ(inside(text), std::string(at, 'x') + one + std::string(16 - at, 'x'));
    }
  }
}

TEST(JsonOut, BrokenUtf8BecomesReplacementCharacters) {
  EXPECT_EQ(inside("a\xF0\x9F\x98"), "a\uFFFD");
  EXPECT_EQ(inside("\xFFz\xC3"), "\uFFFDz\uFFFD");
  EXPECT_EQ(inside("\xED\xA0\x80"), "\uFFFD\uFFFD\uFFFD");
  EXPECT_EQ(inside("12345678\x80"), "12345678\uFFFD");
}

TEST(JsonOut, WholeNumbers) {
  std::string out;
  put_json_int(out, std::numeric_limits<std::int64_t>::min());
  out += ' ';
  put_json_uint(out, std::numeric_limits<std::uint64_t>::max());
  EXPECT_EQ(out, "-9223372036854775808 18446744073709551615");
}

TEST(JsonOut, DoublesAsSerdeSpellsThem) {
  const std::vector<std::pair<double, std::string>> cases = {
      {0.0, "0.0"},
      {-0.0, "-0.0"},
      {1, "1.0"},
      {-2.5, "-2.5"},
      {0.1, "0.1"},
      {0.00001, "0.00001"},
      {0.000001, "1e-6"},
      {1.5e-7, "1.5e-7"},
      {-1e-7, "-1e-7"},
      {1e15, "1000000000000000.0"},
      {1e16, "1e+16"},
      {123456789012345680.0, "1.2345678901234568e+17"},
      {1.7976931348623157e308, "1.7976931348623157e+308"},
      {5e-324, "5e-324"},
      {12.5, "12.5"},
      {std::numeric_limits<double>::infinity(), "null"}
  };
  for (const auto& [value, text] : cases) EXPECT_EQ(number(value), text);
}

// Spellings seen in events of the official package.
TEST(JsonOut, FloatsAsSerdeSpellsThem) {
  const std::vector<std::pair<float, std::string>> cases = {
      {-0.0F, "-0.0"},
      {-0.125F, "-0.125"},
      {-1e-7F, "-1e-7"},
      {-0.0001234F, "-0.0001234"},
      {-1e-6F, "-0.000001"},
      {9.9e-7F, "9.9e-7"},
      {1e12F, "1000000000000.0"},
      {1e13F, "1e+13"},
      {123456789012.0F, "123456790000.0"},
      {3.4e38F, "3.4e+38"},
      {1e-45F, "1e-45"},
      {-12.345678901F, "-12.345679"},
      {16777217.0F, "16777216.0"},
      {1.0F / 3, "0.33333334"},
      {-1.1754944e-38F, "-1.1754944e-38"},
      {std::numeric_limits<float>::quiet_NaN(), "null"}
  };
  for (const auto& [value, text] : cases) EXPECT_EQ(number(value), text);
}

}  // namespace
}  // namespace artery::codec::api
