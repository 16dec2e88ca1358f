#pragma once
// A Random that repeats from a seed: splitmix64 (Steele, Lea, Flood 2014). One thread.

#include <cstdint>

#include "base/random.h"

namespace artery::testing {

class SeqRandom final : public Random {
 public:
  explicit SeqRandom(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next() override { return mix(state_ += 0x9E3779B97F4A7C15u); }
  // Uniform in [low, high].
  std::int64_t between(std::int64_t low, std::int64_t high) {
    return low + static_cast<std::int64_t>(next() % static_cast<std::uint64_t>(high - low + 1));
  }
  double unit() { return static_cast<double>(next() >> 11) * 0x1p-53; }  // [0, 1)
  bool chance(double probability) { return unit() < probability; }

  // A good hash of 64 bits.
  static std::uint64_t mix(std::uint64_t x) {
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    return x ^ (x >> 31);
  }

 private:
  std::uint64_t state_;
};

}  // namespace artery::testing
