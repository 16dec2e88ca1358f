#pragma once
// What this machine can do right now, measured in a fraction of a second: memory bandwidth and
// arithmetic peak of the pool's threads together. The figures `bench model` and `doctor` put beside
// what the model reaches. Called by the thread that owns the pool; allocates up to 512 MiB while it
// runs.

#include <cstddef>

#include "base/clock.h"
#include "bench/spread.h"
#include "tensor/compute_pool.h"
#include "tensor/isa.h"

namespace artery::bench {

struct MachineLimits {
  Spread read_gb_s;       // 1e9 bytes per second, sequential reads from memory
  Spread int8_dot_gop_s;  // 1e9 multiply-adds x 2 per second, 8-bit products summed in 32 bits
  Spread fp32_fma_gop_s;  // the same with float32 multiply-adds
};

// Bytes per second over a buffer of `buffer_bytes`, `passes` times after one to touch it.
Spread measure_read_bandwidth(
    tensor::ComputePool& pool, std::size_t buffer_bytes, int passes, const Clock& clock
);

// `tries` bursts of about 10 ms each. Zero for Isa::kScalar, which has no peak worth a name.
Spread measure_int8_dot(tensor::ComputePool& pool, tensor::Isa isa, int tries, const Clock& clock);
Spread measure_fp32_fma(tensor::ComputePool& pool, tensor::Isa isa, int tries, const Clock& clock);

// Memory far beyond any cache of one socket's share; tests take less.
constexpr std::size_t kProbeBytes = std::size_t{512} << 20;

MachineLimits measure_limits(
    tensor::ComputePool& pool, tensor::Isa isa, const Clock& clock, std::size_t probe_bytes
);

}  // namespace artery::bench
