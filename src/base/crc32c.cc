#include "base/crc32c.h"

#include <array>
#include <bit>
#include <cstring>

namespace artery {

namespace crc32c_sse42 {
std::uint32_t update(const unsigned char* at, std::size_t bytes, std::uint32_t crc);
}  // namespace crc32c_sse42

namespace {

static_assert(std::endian::native == std::endian::little);

constexpr std::uint32_t kPolynomial = 0x82F63B78;  // bits reversed: bit 31 is x^0

using Tables = std::array<std::array<std::uint32_t, 256>, 8>;

// tables[k][b]: what byte b leaves in the register once k more zero bytes have passed.
constexpr Tables make_tables() {
  Tables t{};
  for (std::uint32_t b = 0; b < 256; ++b) {
    std::uint32_t crc = b;
    for (int i = 0; i < 8; ++i) crc = (crc >> 1) ^ ((crc & 1) != 0 ? kPolynomial : 0);
    t[0][b] = crc;
  }
  for (std::size_t k = 1; k < 8; ++k) {
    for (std::size_t b = 0; b < 256; ++b) {
      t[k][b] = (t[k - 1][b] >> 8) ^ t[0][t[k - 1][b] & 0xFF];
    }
  }
  return t;
}

constexpr Tables kTables = make_tables();

using Update = std::uint32_t (*)(const unsigned char*, std::size_t, std::uint32_t);

std::uint32_t update_plain(const unsigned char* at, std::size_t bytes, std::uint32_t crc) {
  for (; bytes >= 8; bytes -= 8, at += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, at, 8);
    word ^= crc;
    crc = 0;
    for (std::size_t k = 0; k < 8; ++k) crc ^= kTables[7 - k][(word >> (8 * k)) & 0xFF];
  }
  for (; bytes > 0; --bytes, ++at) crc = (crc >> 8) ^ kTables[0][(crc ^ *at) & 0xFF];
  return crc;
}

Update pick() {
  const bool has = __builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("pclmul");
  return has ? crc32c_sse42::update : update_plain;
}

const unsigned char* bytes_of(std::span<const std::byte> bytes) {
  return reinterpret_cast<const unsigned char*>(bytes.data());
}

}  // namespace

std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t before) {
  static const Update update = pick();
  return ~update(bytes_of(bytes), bytes.size(), ~before);
}

std::uint32_t crc32c_plain(std::span<const std::byte> bytes, std::uint32_t before) {
  return ~update_plain(bytes_of(bytes), bytes.size(), ~before);
}

}  // namespace artery
