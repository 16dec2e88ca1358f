#pragma once
// The counter-based noise of Gumbel-max sampling: a pure function of (seed, choice, position,
// token), so batch mates, preemption, speculation and fail-over change nothing. Philox-4x32-10
// (Salmon et al., SC 2011), two 32-bit words to a uniform in (0, 1), Gumbel = -log(-log(u)) with
// our own log. Any thread.

#include <cstdint>

#include "base/ids.h"

namespace artery::engine {

// Uniform in (0, 1), never 0 or 1.
double noise_uniform(std::uint64_t seed, std::uint32_t choice, Position position, TokenId token);
// Standard Gumbel.
double noise_gumbel(std::uint64_t seed, std::uint32_t choice, Position position, TokenId token);

}  // namespace artery::engine
