#pragma once
// Loops of nothing but multiply-adds on registers, and of nothing but loads, one set per ISA. Pure
// functions, any thread; only on a CPU that has the ISA. The return value keeps the compiler from
// dropping the loop.

#include <cstddef>
#include <cstdint>

namespace artery::bench {

// Operations (multiply-adds x 2) in one round of a loop below.
struct PeakKernel {
  float (*run)(std::int64_t rounds);
  std::int64_t ops_per_round;
};

namespace avx2 {
float fp32_fma(std::int64_t rounds);  // 10 chains of 8 lanes
float int8_dot(std::int64_t rounds);  // 8 chains of 32 products (maddubs, madd, add)
// Loads of the full width over `bytes` (a multiple of 128) at `base`, aligned to a cache line.
std::uint64_t read_all(const void* base, std::size_t bytes);
}  // namespace avx2
namespace avx512 {
float fp32_fma(std::int64_t rounds);  // 10 chains of 16 lanes
float int8_dot(std::int64_t rounds);  // 10 chains of 64 products (VNNI)
std::uint64_t read_all(const void* base, std::size_t bytes);
}  // namespace avx512
namespace avx512bf16 {
float bf16_dot(std::int64_t rounds);  // 10 chains of 32 products (VDPBF16PS)
}  // namespace avx512bf16

}  // namespace artery::bench
