#pragma once
// Little-endian fields at fixed offsets, and the prefix that everything in a store's folder opens
// with: magic of 8 characters, u32 version, u32 CRC-32C of the whole with that field as zero. Spans
// are checked by the caller. Pure functions, any thread.

#include <cstring>
#include <span>
#include <string_view>

#include "base/crc32c.h"
#include "base/result.h"

namespace artery::kvstore::wire {

constexpr std::size_t kPrefixBytes = 16;
constexpr std::size_t kCrcAt = 12;

template <typename T>
T get(std::span<const std::byte> from, std::size_t at) {
  T value{};
  std::memcpy(&value, from.subspan(at, sizeof(T)).data(), sizeof(T));
  return value;
}

template <typename T>
void put(std::span<std::byte> into, std::size_t at, const T& value) {
  std::memcpy(into.subspan(at, sizeof(T)).data(), &value, sizeof(T));
}

// Of `bytes`, whose CRC field counts as zero.
inline std::uint32_t crc_of(std::span<const std::byte> bytes) {
  const std::byte zero[4] = {};
  return crc32c(bytes.subspan(kPrefixBytes), crc32c(zero, crc32c(bytes.first(kCrcAt))));
}

// Writes the prefix; everything else of `bytes` is final.
inline void seal(std::span<std::byte> bytes, std::string_view magic, std::uint32_t version) {
  std::memcpy(bytes.data(), magic.data(), 8);
  put(bytes, 8, version);
  put(bytes, kCrcAt, crc_of(bytes));
}

// Something else altogether is kBadFile. At least kPrefixBytes bytes.
inline Result<> check_magic(
    std::span<const std::byte> bytes, std::string_view magic, std::string_view where
) {
  if (std::memcmp(bytes.data(), magic.data(), 8) == 0) return {};
  return fail(Code::kBadFile, "{}: not a \"{}\" block", where, magic);
}

// Another version is kUnsupported. To be asked after check_crc(), whose rule all versions share: a
// flipped bit is damage and not another version.
inline Result<> check_version(
    std::span<const std::byte> bytes, std::uint32_t version, std::string_view where
) {
  const auto found = get<std::uint32_t>(bytes, 8);
  if (found == version) return {};
  return fail(
      Code::kUnsupported,
      "{}: format version {}; this build knows version {}",
      where,
      found,
      version
  );
}

inline Result<> check_crc(std::span<const std::byte> bytes, std::string_view where) {
  const auto found = get<std::uint32_t>(bytes, kCrcAt);
  const std::uint32_t computed = crc_of(bytes);
  if (found == computed) return {};
  return fail(
      Code::kBadFile,
      "{}: CRC-32C is {:08x}, the bytes give {:08x}: damaged",
      where,
      found,
      computed
  );
}

}  // namespace artery::kvstore::wire
