#include "base/crc32c.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <vector>

namespace artery {
namespace {

using Bytes = std::vector<std::byte>;

Bytes random_bytes(std::size_t count, std::uint64_t seed) {
  Bytes out(count);
  std::uint64_t state = seed * 0x9E3779B97F4A7C15 + 1;
  for (std::byte& b : out) {
    state = state * 6364136223846793005 + 1442695040888963407;
    b = static_cast<std::byte>(state >> 56);
  }
  return out;
}

void expect_crc(const Bytes& bytes, std::uint32_t crc) {
  EXPECT_EQ(crc32c(bytes), crc);
  EXPECT_EQ(crc32c_plain(bytes), crc);
}

TEST(Crc32c, ExamplesOfRfc3720B4) {
  Bytes bytes(32);
  expect_crc(bytes, 0x8A9136AA);
  std::fill(bytes.begin(), bytes.end(), std::byte{0xFF});
  expect_crc(bytes, 0x62A8AB43);
  for (std::size_t i = 0; i < 32; ++i) bytes[i] = static_cast<std::byte>(i);
  expect_crc(bytes, 0x46DD794E);
  for (std::size_t i = 0; i < 32; ++i) bytes[i] = static_cast<std::byte>(31 - i);
  expect_crc(bytes, 0x113FDB5C);
  const std::array<std::uint8_t, 48> scsi = {0x01, 0xc0, 0, 0,    0,    0, 0, 0,    0,    0, 0, 0,
                                             0,    0,    0, 0,    0x14, 0, 0, 0,    0,    0, 4, 0,
                                             0,    0,    0, 0x14, 0,    0, 0, 0x18, 0x28, 0, 0, 0,
                                             0,    0,    0, 0,    2,    0, 0, 0,    0,    0, 0, 0};
  const auto view = std::as_bytes(std::span(scsi));
  expect_crc(Bytes(view.begin(), view.end()), 0xD9963A56);
  const std::string_view digits = "123456789";
  EXPECT_EQ(crc32c(std::as_bytes(std::span(digits))), 0xE3069283u);
  expect_crc({}, 0);
}

TEST(Crc32c, TheInstructionAndTheTablesAgreeOnEverySizeAndAlignment) {
  const Bytes bytes = random_bytes(40000, 1);
  const std::span<const std::byte> all(bytes);
  for (std::size_t size = 0; size < 1700; ++size) {
    const auto part = all.subspan(size % 9, size);
    ASSERT_EQ(crc32c(part), crc32c_plain(part)) << size;
  }
  for (const std::size_t size : {12287u, 12288u, 12289u, 24576u, 25344u, 39990u}) {
    const auto part = all.subspan(size % 8, size);
    ASSERT_EQ(crc32c(part), crc32c_plain(part)) << size;
  }
}

TEST(Crc32c, GoesOnWhereItEnded) {
  const Bytes bytes = random_bytes(30000, 2);
  const std::span<const std::byte> all(bytes);
  const std::uint32_t whole = crc32c(all);
  for (std::size_t cut = 0; cut <= all.size(); cut += 997) {
    ASSERT_EQ(crc32c(all.subspan(cut), crc32c(all.first(cut))), whole) << cut;
    ASSERT_EQ(crc32c_plain(all.subspan(cut), crc32c_plain(all.first(cut))), whole) << cut;
  }
}

TEST(Crc32c, SeesEveryFlippedBit) {
  Bytes bytes = random_bytes(4096, 3);
  const std::uint32_t before = crc32c(bytes);
  for (std::size_t bit = 0; bit < 8 * bytes.size(); bit += 37) {
    const auto mask = static_cast<std::byte>(1u << (bit % 8));
    bytes[bit / 8] ^= mask;
    ASSERT_NE(crc32c(bytes), before) << bit;
    bytes[bit / 8] ^= mask;
  }
}

}  // namespace
}  // namespace artery
