#include "bench/limits.h"

#include <sys/mman.h>

#include <atomic>
#include <cstdint>
#include <cstring>

#include "base/check.h"
#include "bench/peak_kernels.h"

namespace artery::bench {
namespace {

constexpr std::size_t kReadChunk = std::size_t{1} << 20;
constexpr double kBurstSeconds = 0.01;

// Results nobody reads, so that no loop is dropped.
std::atomic<std::uint64_t> sink{0};

std::uint64_t sum_words(const std::uint64_t* words, std::size_t count) {
  std::uint64_t sums[8] = {};
  for (std::size_t i = 0; i + 8 <= count; i += 8)
    for (std::size_t lane = 0; lane < 8; ++lane) sums[lane] += words[i + lane];
  std::uint64_t sum = 0;
  for (const std::uint64_t lane : sums) sum += lane;
  return sum;
}

Spread measure_peak(
    tensor::ComputePool& pool, const PeakKernel& kernel, int tries, const Clock& clock
) {
  const auto burst = [&](std::int64_t rounds) {
    const std::int64_t start = clock.monotonic_ns();
    pool.parallel_for(pool.threads(), 1, [&](std::int64_t begin, std::int64_t end, int) {
      for (std::int64_t i = begin; i < end; ++i)
        sink.fetch_add(kernel.run(rounds) > 0 ? 1u : 0u, std::memory_order_relaxed);
    });
    return static_cast<double>(clock.monotonic_ns() - start) * 1e-9;
  };
  constexpr std::int64_t kFirstRounds = 20'000;
  burst(kFirstRounds);  // wakes the threads and the clock
  const double first = burst(kFirstRounds);
  const auto rounds = static_cast<std::int64_t>(
      static_cast<double>(kFirstRounds) * kBurstSeconds / (first > 1e-6 ? first : 1e-6)
  );
  std::vector<double> values;
  for (int i = 0; i < tries; ++i) {
    const double ops =
        static_cast<double>(rounds * kernel.ops_per_round) * static_cast<double>(pool.threads());
    values.push_back(ops / burst(rounds) * 1e-9);
  }
  return spread_of(std::move(values));
}

}  // namespace

Spread measure_read_bandwidth(
    tensor::ComputePool& pool, std::size_t buffer_bytes, int passes, const Clock& clock
) {
  const std::size_t bytes = buffer_bytes / kReadChunk * kReadChunk;
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return {};
  madvise(memory, bytes, MADV_HUGEPAGE);
  auto* base = static_cast<std::byte*>(memory);
  const auto chunks = static_cast<std::int64_t>(bytes / kReadChunk);
  pool.parallel_for(chunks, 4, [&](std::int64_t begin, std::int64_t end, int) {
    std::memset(
        base + static_cast<std::size_t>(begin) * kReadChunk,
        1,
        static_cast<std::size_t>(end - begin) * kReadChunk
    );
  });
  std::vector<double> values;
  for (int pass = 0; pass < passes; ++pass) {
    const std::int64_t start = clock.monotonic_ns();
    pool.parallel_for(chunks, 4, [&](std::int64_t begin, std::int64_t end, int) {
      const auto* words = reinterpret_cast<const std::uint64_t*>(
          base + static_cast<std::size_t>(begin) * kReadChunk
      );
      sink += sum_words(words, static_cast<std::size_t>(end - begin) * kReadChunk / 8);
    });
    const double seconds = static_cast<double>(clock.monotonic_ns() - start) * 1e-9;
    values.push_back(static_cast<double>(bytes) / seconds * 1e-9);
  }
  munmap(memory, bytes);
  return spread_of(std::move(values));
}

Spread measure_int8_dot(tensor::ComputePool& pool, tensor::Isa isa, int tries, const Clock& clock) {
  if (isa == tensor::Isa::kScalar) return {};
  const PeakKernel kernel = isa == tensor::Isa::kAvx512 ? PeakKernel{avx512::int8_dot, 10 * 64 * 2}
                                                        : PeakKernel{avx2::int8_dot, 8 * 32 * 2};
  return measure_peak(pool, kernel, tries, clock);
}

Spread measure_fp32_fma(tensor::ComputePool& pool, tensor::Isa isa, int tries, const Clock& clock) {
  if (isa == tensor::Isa::kScalar) return {};
  const PeakKernel kernel = isa == tensor::Isa::kAvx512 ? PeakKernel{avx512::fp32_fma, 10 * 16 * 2}
                                                        : PeakKernel{avx2::fp32_fma, 10 * 8 * 2};
  return measure_peak(pool, kernel, tries, clock);
}

MachineLimits measure_limits(
    tensor::ComputePool& pool, tensor::Isa isa, const Clock& clock, std::size_t probe_bytes
) {
  constexpr int kTries = 5;
  return {
      measure_read_bandwidth(pool, probe_bytes, kTries, clock),
      measure_int8_dot(pool, isa, kTries, clock),
      measure_fp32_fma(pool, isa, kTries, clock),
  };
}

}  // namespace artery::bench
