#include "engine/noise.h"

#include "engine/philox.h"
#include "tensor/math.h"

namespace artery::engine {

double noise_uniform(std::uint64_t seed, std::uint32_t choice, Position position, TokenId token) {
  const PhiloxBlock block = noise_block(seed, choice, position, token >> 1);
  return uniform_of(noise_bits(block, token));
}

double noise_gumbel(std::uint64_t seed, std::uint32_t choice, Position position, TokenId token) {
  return gumbel_of(noise_uniform(seed, choice, position, token));
}

double gumbel_of(double uniform) { return -tensor::log_d(-tensor::log_d(uniform)); }

}  // namespace artery::engine
