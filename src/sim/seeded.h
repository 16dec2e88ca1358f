#pragma once
// Random numbers that are the same on every machine: SplitMix64 (Steele, Lea, Flood, 2014). A plain
// value, one thread.

#include <cstdint>

namespace artery::sim {

constexpr std::uint64_t mix(std::uint64_t z) {
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
  return z ^ (z >> 31);
}

class Seeded {
 public:
  explicit Seeded(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next() { return mix(state_ += 0x9E3779B97F4A7C15ULL); }
  double unit() { return static_cast<double>(next() >> 11) * 0x1p-53; }  // in [0, 1)

 private:
  std::uint64_t state_;
};

}  // namespace artery::sim
