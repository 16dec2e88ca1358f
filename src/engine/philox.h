#pragma once
// Philox-4x32-10, the counter-based generator behind engine/noise.h (Salmon, Moraes, Dror, Shaw:
// "Parallel random numbers: as easy as 1, 2, 3", SC 2011), inline because the sampler draws a block
// for every pair of tokens it cannot rule out. Pure functions, any thread.

#include <array>
#include <cstdint>

#include "base/ids.h"

namespace artery::engine {

using PhiloxBlock = std::array<std::uint32_t, 4>;

inline PhiloxBlock philox4x32_10(PhiloxBlock counter, std::array<std::uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t a = std::uint64_t{0xD2511F53u} * counter[0];
    const std::uint64_t b = std::uint64_t{0xCD9E8D57u} * counter[2];
    counter = {
        static_cast<std::uint32_t>(b >> 32) ^ counter[1] ^ key[0],
        static_cast<std::uint32_t>(b),
        static_cast<std::uint32_t>(a >> 32) ^ counter[3] ^ key[1],
        static_cast<std::uint32_t>(a)
    };
    key[0] += 0x9E3779B9u;
    key[1] += 0xBB67AE85u;
  }
  return counter;
}

// One block serves two neighbouring tokens: `pair` is token / 2. The last counter word names the
// use, so that other draws can never collide with sampling noise.
inline PhiloxBlock noise_block(
    std::uint64_t seed, std::uint32_t choice, Position position, std::int32_t pair
) {
  constexpr std::uint32_t kSampling = 0x5A3B1E00u;
  return philox4x32_10(
      {static_cast<std::uint32_t>(position), choice, static_cast<std::uint32_t>(pair), kSampling},
      {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)}
  );
}

// The 64 bits of one of the block's two tokens.
inline std::uint64_t noise_bits(const PhiloxBlock& block, TokenId token) {
  const std::size_t at = (token & 1) != 0 ? 2 : 0;
  return (std::uint64_t{block[at]} << 32) | block[at + 1];
}

// 52 bits and a half: in [2^-53, 1 - 2^-53], exact in a double.
inline double uniform_of(std::uint64_t bits) {
  return (static_cast<double>(bits >> 12) + 0.5) * 0x1p-52;
}

// -log(-log(u)), in [-3.61, 36.74] for the uniforms above.
double gumbel_of(double uniform);
constexpr double kGumbelMax = 36.75;
constexpr double kGumbelMin = -3.61;

}  // namespace artery::engine
