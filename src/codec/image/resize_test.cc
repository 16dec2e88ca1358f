// Resizing and patches against numbers made by OpenCV 4.12 (its portable code), Pillow and numpy:
// scripts/codec-image-oracle makes them anew.

#include "codec/image/resize.h"

#include <gtest/gtest.h>

#include <array>
#include <numeric>

#include "codec/image/preprocess.h"
#include "codec/image/token_grid.h"

namespace artery::codec::image {
namespace {

// A pattern with slopes and edges in all channels.
Pixels pattern(int width, int height) {
  Pixels out{width, height, {}};
  for (int y = 0; y < height; ++y) {
    for (int x = 0; x < width; ++x) {
      for (const int value : {x * 37 + y * 11, x * x + y * 5, x * y * 3})
        out.rgb.push_back(static_cast<std::uint8_t>(value % 256));
    }
  }
  return out;
}

// Sum of byte times place (modulo 65,521), modulo 2^32.
std::uint32_t digest(const Pixels& pixels) {
  std::uint32_t sum = 0, place = 0;
  for (const std::uint8_t byte : pixels.rgb) sum += byte * (++place % 65521);
  return sum;
}

struct Case {
  Size from, to;
  std::uint32_t digest;
};

void expect_equal(const Case& one, Resize resize) {
  const Pixels out = resize(pattern(one.from.width, one.from.height), one.to);
  EXPECT_EQ((Size{out.width, out.height}), one.to);
  EXPECT_EQ(digest(out), one.digest) << one.from.width << " to " << one.to.width;
}

TEST(Resize, CubicIsOpenCvs) {
  for (const Case& one :
       {Case{{7, 5}, {20, 13}, 18794220},
        Case{{20, 13}, {7, 5}, 659431},
        Case{{31, 17}, {40, 9}, 72029847}})
    expect_equal(one, resize_cubic);
}

TEST(Resize, AreaIsOpenCvs) {
  for (const Case& one :
       {Case{{20, 13}, {7, 5}, 644358},
        Case{{64, 48}, {16, 12}, 21217472},
        Case{{31, 17}, {30, 16}, 127740340}})
    expect_equal(one, shrink_area);
}

TEST(Resize, AntialiasedIsPillows) {
  for (const Case& one :
       {Case{{7, 5}, {20, 13}, 18752376},
        Case{{20, 13}, {7, 5}, 647636},
        Case{{31, 17}, {40, 9}, 72155147}})
    expect_equal(one, resize_antialiased);
}

TEST(Resize, TheSameSizeIsTheSame) {
  const Pixels from = pattern(9, 4);
  for (const Resize resize : {shrink_area, resize_cubic, resize_antialiased})
    EXPECT_EQ(resize(from, {9, 4}).rgb, from.rgb);
}

// 600 x 500 becomes 602 x 504: a strip of grey beside the picture.
TEST(Patches, AreThoseOfTheReference) {
  const auto out = patches(pattern(600, 500));
  ASSERT_TRUE(out);
  EXPECT_EQ(out->rows, 36);
  EXPECT_EQ(out->columns, 43);
  ASSERT_EQ(out->values.size(), 910224U);
  constexpr std::array<std::pair<std::size_t, float>, 5> kSome = {{
      {0, -0.003921568393707275F},
      {587, 0.6313725709915161F},
      {588, -0.003921568393707275F},
      {30000, -0.1607843041419983F},
      {910223, -0.003921568393707275F},
  }};
  for (const auto& [at, value] : kSome) EXPECT_EQ(out->values[at], value) << at;
  EXPECT_NEAR(
      std::accumulate(out->values.begin(), out->values.end(), 0.0), -5168.19527387619, 1e-6
  );
}

TEST(Patches, NothingHasNone) { EXPECT_FALSE(patches(Pixels{})); }

TEST(TokenGrid, SettlesOrSaysSo) {
  EXPECT_EQ(fitted_size({0, 5}), std::nullopt);
  EXPECT_EQ(fitted_size({5, -1}), std::nullopt);
  EXPECT_EQ(fitted_size({1 << 30, 1}), std::nullopt);
  for (const int width : {1, 2, 13, 14, 15, 41, 42, 43, 544, 1344, 5000, 8192, 100000}) {
    for (const int height : {1, 3, 14, 545, 1386, 8192, 1 << 24}) {
      const auto fitted = fitted_size({width, height});
      ASSERT_TRUE(fitted) << width << " x " << height;
      EXPECT_LE(tokens_of(*fitted), kTokensMax);
      EXPECT_EQ(fitted->width % kPatch + fitted->height % kPatch, 0);
      const auto stored = stored_size({width, height});
      ASSERT_TRUE(stored);
      EXPECT_LE(std::max(stored->width, stored->height), kStoredSideMax);
    }
  }
}

}  // namespace
}  // namespace artery::codec::image
