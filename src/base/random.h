#pragma once
// The randomness seam: ids, secrets and default seeds. Any thread.

#include <cstdint>

namespace artery {

class Random {
 public:
  virtual ~Random() = default;
  virtual std::uint64_t next() = 0;  // 64 uniform bits
};

// The kernel's generator (getrandom).
Random& system_random();

}  // namespace artery
