#include "base/aead.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/hash.h"

namespace artery {
namespace {

std::vector<std::byte> bytes(std::string_view digits) {
  std::vector<std::uint8_t> out(digits.size() / 2);
  EXPECT_TRUE(parse_hex(digits, out));
  const auto all = std::as_bytes(std::span(out));
  return {all.begin(), all.end()};
}

template <typename T>
T fixed(std::string_view digits) {
  T out{};
  EXPECT_TRUE(parse_hex(digits, out));
  return out;
}

std::string text(std::span<const std::byte> data) {
  return hex({reinterpret_cast<const std::uint8_t*>(data.data()), data.size()});
}

struct Case {
  std::string_view key, nonce, associated, plain, sealed, tag;
};

constexpr std::string_view kZeroKey =
    "0000000000000000000000000000000000000000000000000000000000000000";
constexpr std::string_view kKey =
    "feffe9928665731c6d6a8f9467308308feffe9928665731c6d6a8f9467308308";
constexpr std::string_view kPlain =
    "d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a72"
    "1c3c0c95956809532fcf0e2449a6b525b16aedf5aa0de657ba637b391aafd255";
constexpr std::string_view kSealed =
    "522dc1f099567d07f47f37a32a84427d643a8cdcbfe5c0c97598a2bd2555d1aa"
    "8cb08e48590dbb3da7b08b1056828838c5f61e6393ba7a0abcc9f662898015ad";

// Test cases 13 to 16 of the GCM specification submitted to NIST (McGrew and Viega, appendix B).
constexpr Case kCases[] = {
    {kZeroKey, "000000000000000000000000", "", "", "", "530f8afbc74536b9a963b4f1c4cb738b"},
    {kZeroKey,
     "000000000000000000000000",
     "",
     "00000000000000000000000000000000",
     "cea7403d4d606b6e074ec5d3baf39d18",
     "d0d1c8a799996bf0265b98b5d48ab919"},
    {kKey, "cafebabefacedbaddecaf888", "", kPlain, kSealed, "b094dac5d93471bdec1a502270e3cc6c"},
    {kKey,
     "cafebabefacedbaddecaf888",
     "feedfacedeadbeeffeedfacedeadbeefabaddad2",
     kPlain.substr(0, 120),
     kSealed.substr(0, 120),
     "76fc6ece0f4e1768cddf8853bb2d551b"},
};

TEST(Aes256GcmTest, KnownAnswersInBothDirections) {
  for (const Case& c : kCases) {
    Aes256Gcm cipher(fixed<AeadKey>(c.key));
    const auto nonce = fixed<AeadNonce>(c.nonce);
    const std::vector<std::byte> associated = bytes(c.associated);
    for (int round = 0; round < 2; ++round) {  // the context is used again
      std::vector<std::byte> data = bytes(c.plain);
      const AeadTag tag = cipher.seal(nonce, associated, data);
      EXPECT_EQ(text(data), c.sealed);
      EXPECT_EQ(hex(tag), c.tag);
      EXPECT_TRUE(cipher.open(nonce, associated, data, tag));
      EXPECT_EQ(text(data), c.plain);
    }
  }
}

TEST(Aes256GcmTest, EveryFlippedBitIsSeen) {
  const Case& c = kCases[3];
  Aes256Gcm cipher(fixed<AeadKey>(c.key));
  const std::vector<std::byte> sealed = bytes(c.sealed);
  const auto opens = [&](AeadNonce nonce,
                         std::vector<std::byte> associated,
                         std::vector<std::byte> data,
                         AeadTag tag) {
    const bool fine = cipher.open(nonce, associated, data, tag);
    // Nothing of a message that is not sound is handed out.
    if (!fine) {
      EXPECT_EQ(text(data), std::string(2 * data.size(), '0'));
    }
    return fine;
  };
  const auto nonce = fixed<AeadNonce>(c.nonce);
  const auto associated = bytes(c.associated);
  const auto tag = fixed<AeadTag>(c.tag);
  const auto flip = [](auto value, std::size_t bit) {
    using Unit = std::remove_reference_t<decltype(value[0])>;
    value[bit / 8] = static_cast<Unit>(static_cast<unsigned>(value[bit / 8]) ^ (1u << bit % 8));
    return value;
  };
  EXPECT_TRUE(opens(nonce, associated, sealed, tag));
  for (std::size_t i = 0; i < 8 * nonce.size(); ++i)
    EXPECT_FALSE(opens(flip(nonce, i), associated, sealed, tag)) << i;
  for (std::size_t i = 0; i < 8 * associated.size(); ++i)
    EXPECT_FALSE(opens(nonce, flip(associated, i), sealed, tag)) << i;
  for (std::size_t i = 0; i < 8 * sealed.size(); ++i)
    EXPECT_FALSE(opens(nonce, associated, flip(sealed, i), tag)) << i;
  for (std::size_t i = 0; i < 8 * tag.size(); ++i)
    EXPECT_FALSE(opens(nonce, associated, sealed, flip(tag, i))) << i;
  for (std::size_t i = 0; i < 256; ++i) {
    Aes256Gcm other(flip(fixed<AeadKey>(c.key), i));
    std::vector<std::byte> data = sealed;
    EXPECT_FALSE(other.open(nonce, associated, data, tag)) << i;
  }
  auto cut = sealed;
  cut.pop_back();
  EXPECT_FALSE(opens(nonce, associated, cut, tag));
  EXPECT_TRUE(opens(nonce, associated, sealed, tag));  // the object is sound after failures
}

TEST(HexTest, ReadsExactlyItsDigits) {
  std::array<std::uint8_t, 2> out{};
  EXPECT_TRUE(parse_hex("0aFf", out));
  EXPECT_EQ(out, (std::array<std::uint8_t, 2>{0x0a, 0xff}));
  for (const char* bad : {"", "0a", "0aff0", "0aff00", "0ag0", "0a f", "0x0f", "0a\xff\x30"})
    EXPECT_FALSE(parse_hex(bad, out)) << bad;
}

}  // namespace
}  // namespace artery
