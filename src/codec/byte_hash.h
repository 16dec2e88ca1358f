#pragma once
// A quick hash for the tables of this room, other in each process: files and texts come from
// anywhere, and none can be made to collide on purpose. No result may depend on it. Any thread.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace artery::codec {

extern const std::uint64_t kHashSeed;  // drawn when the program starts

namespace internal {

// Both halves of the product of two numbers, folded: the step of wyhash (public domain).
inline std::uint64_t folded_product(std::uint64_t a, std::uint64_t b) {
  __extension__ using Wide = unsigned __int128;
  const Wide product = static_cast<Wide>(a) * b;
  return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64);
}

template <typename T>
std::uint64_t load(const char* p) {
  T value;
  std::memcpy(&value, p, sizeof value);
  return value;
}

}  // namespace internal

inline std::uint64_t hash_number(std::uint64_t number) {
  return internal::folded_product(number ^ kHashSeed, 0x9E3779B97F4A7C15U);
}

inline std::uint64_t hash_bytes(std::string_view text) {
  using internal::folded_product;
  using internal::load;
  constexpr std::uint64_t kA = 0x9E3779B97F4A7C15U;
  const std::uint64_t seed = kHashSeed;
  const char* p = text.data();
  std::size_t left = text.size();
  std::uint64_t state = seed + left;
  for (; left > 16; left -= 16, p += 16)
    state = folded_product(load<std::uint64_t>(p) ^ seed, load<std::uint64_t>(p + 8) ^ state);
  std::uint64_t first = 0, last = 0;
  // Two loads that may overlap cover each length without reading outside the text.
  if (left >= 8) {
    first = load<std::uint64_t>(p);
    last = load<std::uint64_t>(p + left - 8);
  } else if (left >= 4) {
    first = load<std::uint32_t>(p);
    last = load<std::uint32_t>(p + left - 4);
  } else if (left > 0) {
    first = load<std::uint8_t>(p) | load<std::uint8_t>(p + left / 2) << 8;
    last = load<std::uint8_t>(p + left - 1);
  }
  return folded_product(folded_product(first ^ seed, last ^ state), kA);
}

}  // namespace artery::codec
