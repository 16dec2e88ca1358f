// Damaged files and files that lie, beyond those of the record (tests/codec/recipe_images_test.cc).

#include "codec/image/decoders.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>

#include "codec/image/preprocess.h"

namespace artery::codec::image {
namespace {

constexpr int kSideMax = 8192;

// The seeds of the fuzz target: small images of each format behind a byte that names it.
std::map<std::string, std::string> samples() {
  const auto folder =
      std::filesystem::path(ARTERY_SOURCE_DIR) / "tests/fuzz/seeds/codec_image_fuzz";
  std::map<std::string, std::string> out;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    std::ifstream in(entry.path(), std::ios::binary);
    const std::string bytes(std::istreambuf_iterator<char>(in), {});
    out[entry.path().filename().string()] = bytes.substr(1);
  }
  return out;
}

std::string big_endian(std::uint32_t value) {
  std::string out;
  for (const int shift : {24, 16, 8, 0}) out += static_cast<char>(value >> shift & 0xFF);
  return out;
}

std::uint32_t crc(std::string_view bytes) {
  std::uint32_t value = 0xFFFFFFFF;
  for (const char c : bytes) {
    value ^= static_cast<unsigned char>(c);
    for (int bit = 0; bit < 8; ++bit) value = value >> 1 ^ (0xEDB88320 & (0 - (value & 1)));
  }
  return ~value;
}

// The PNG with another size in its header, and a checksum that is right again.
std::string with_size(std::string png, std::uint32_t width, std::uint32_t height) {
  png.replace(16, 8, big_endian(width) + big_endian(height));
  png.replace(29, 4, big_endian(crc(std::string_view(png).substr(12, 17))));
  return png;
}

long peak_kb() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss;
}

TEST(Decoders, ReadEachFormat) {
  const auto all = samples();
  ASSERT_EQ(all.size(), 9U);
  for (const auto& [name, bytes] : all) {
    const auto format = format_of(bytes);
    ASSERT_TRUE(format) << name;
    const auto pixels = decode(*format, bytes, kSideMax);
    ASSERT_TRUE(pixels) << name;
    EXPECT_EQ(pixels->width, 20) << name;
    EXPECT_EQ(pixels->height, 14) << name;
    EXPECT_EQ(pixels->rgb.size(), 20U * 14 * 3) << name;
    const auto refused = decode(*format, bytes, 19);
    ASSERT_FALSE(refused) << name;
    EXPECT_EQ(refused.error(), Fault::kTooLarge) << name;
  }
}

// Of GIF only the first frame is read.
TEST(Decoders, ACutFileIsAFault) {
  for (const auto& [name, bytes] : samples()) {
    const std::size_t needed = name.ends_with(".gif") ? bytes.size() / 3 : bytes.size();
    for (std::size_t size = 1; size < needed; ++size) {
      const std::string_view cut = std::string_view(bytes).substr(0, size);
      const auto format = format_of(cut);
      EXPECT_FALSE(format && decode(*format, cut, kSideMax)) << name << " cut at " << size;
    }
  }
}

TEST(Decoders, ASizeThatIsNotThereTakesNoMemory) {
  const std::string png = samples().at("rgb.png");
  const long before = peak_kb();
  for (const auto& [width, height, fault] :
       {std::tuple{8192U, 8192U, Fault::kPixels},
        std::tuple{8193U, 1U, Fault::kTooLarge},
        std::tuple{1U, 0x7FFFFFFFU, Fault::kTooLarge},
        std::tuple{0U, 5U, Fault::kHeader},
        std::tuple{0xFFFFFFFFU, 0xFFFFFFFFU, Fault::kHeader},
        std::tuple{20U, 15U, Fault::kPixels}}) {
    const auto pixels = decode_png(with_size(png, width, height), kSideMax);
    ASSERT_FALSE(pixels) << width;
    EXPECT_EQ(pixels.error(), fault) << width << " x " << height;
  }
  EXPECT_LT(peak_kb() - before, 20 << 10);
}

TEST(Decoders, AnInkIsNotTakenForAColour) {
  const auto all = samples();
  const auto ink = decode_jpeg(all.at("cmyk.jpeg"), kSideMax);
  const auto colour = decode_png(all.at("rgb.png"), kSideMax);
  ASSERT_TRUE(ink && colour);
  long difference = 0;
  for (std::size_t i = 0; i < ink->rgb.size(); ++i)
    difference += std::abs(ink->rgb[i] - colour->rgb[i]);
  EXPECT_LT(
      difference / static_cast<long>(ink->rgb.size()), 20
  );  // 131 where the inks are not inverted
}

TEST(Decoders, TransparencyLiesOverWhite) {
  EXPECT_EQ(over_white(10, 255), 10);
  EXPECT_EQ(over_white(10, 0), 255);
  EXPECT_EQ(over_white(10, 128), 132);
  std::vector<std::uint8_t> rgba = {1, 2, 3, 255, 4, 5, 6, 0};
  flatten_over_white(rgba);
  EXPECT_EQ(rgba, (std::vector<std::uint8_t>{1, 2, 3, 255, 255, 255}));
}

}  // namespace
}  // namespace artery::codec::image
