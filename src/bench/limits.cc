#include "bench/limits.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <vector>

#include "base/check.h"
#include "bench/peak_kernels.h"

namespace artery::bench {
namespace {

constexpr std::size_t kReadChunk = std::size_t{1} << 20;
constexpr std::size_t kHugePage = std::size_t{2} << 20;
constexpr double kBurstSeconds = 0.01;

// Results nobody reads, so that no loop is dropped.
std::atomic<std::uint64_t> sink{0};

std::uint64_t read_plainly(const void* base, std::size_t bytes) {
  const auto* words = static_cast<const std::uint64_t*>(base);
  std::uint64_t sums[8] = {};
  for (std::size_t i = 0; i + 8 <= bytes / 8; i += 8)
    for (std::size_t lane = 0; lane < 8; ++lane) sums[lane] += words[i + lane];
  std::uint64_t sum = 0;
  for (const std::uint64_t lane : sums) sum += lane;
  return sum;
}

// The widest loads there are, whatever ISA the model runs with: the limit is the memory's. One
// thread's plain loop reaches only three quarters of what wide loads do.
auto* widest_read() {
  switch (tensor::best_isa()) {
    case tensor::Isa::kAvx512:
      return &avx512::read_all;
    case tensor::Isa::kAvx2:
      return &avx2::read_all;
    case tensor::Isa::kScalar:
      break;
  }
  return &read_plainly;
}

PeakKernel kernel_of(PeakKind kind, tensor::Isa isa) {
  const bool wide = isa == tensor::Isa::kAvx512;
  switch (kind) {
    case PeakKind::kInt8Dot:
      return wide ? PeakKernel{avx512::int8_dot, 10 * 64 * 2}
                  : PeakKernel{avx2::int8_dot, 8 * 32 * 2};
    case PeakKind::kBf16Dot:
      return {avx512bf16::bf16_dot, 10 * 32 * 2};
    case PeakKind::kFp32Fma:
      break;
  }
  return wide ? PeakKernel{avx512::fp32_fma, 10 * 16 * 2} : PeakKernel{avx2::fp32_fma, 10 * 8 * 2};
}

}  // namespace

ReadProbe::ReadProbe(tensor::ComputePool& pool, std::size_t bytes, const Clock& clock)
    : pool_(pool), clock_(clock) {
  bytes_ = bytes / kReadChunk * kReadChunk;
  mapped_ = bytes_ + kHugePage;
  mapping_ = mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapping_ == MAP_FAILED) {
    mapping_ = nullptr;
    bytes_ = 0;
    return;
  }
  const auto address = reinterpret_cast<std::uintptr_t>(mapping_);
  auto* base = static_cast<std::byte*>(mapping_) + (kHugePage - address % kHugePage) % kHugePage;
  huge_pages_ = madvise(base, bytes_, MADV_HUGEPAGE) == 0;
  pool.parallel_for(
      static_cast<std::int64_t>(bytes_ / kReadChunk),
      4,
      [&](std::int64_t begin, std::int64_t end, int) {
        std::memset(
            base + static_cast<std::size_t>(begin) * kReadChunk,
            1,
            static_cast<std::size_t>(end - begin) * kReadChunk
        );
      }
  );
  base_ = base;
}

ReadProbe::~ReadProbe() {
  if (mapping_ != nullptr) munmap(mapping_, mapped_);
}

double ReadProbe::pass_seconds() {
  constexpr std::int64_t kGrain = 16;  // long streams, and a thread put off costs only its share
  auto* const read = widest_read();
  const std::int64_t start = clock_.monotonic_ns();
  pool_.parallel_for(
      static_cast<std::int64_t>(bytes_ / kReadChunk),
      kGrain,
      [&](std::int64_t begin, std::int64_t end, int) {
        sink += read(
            base_ + static_cast<std::size_t>(begin) * kReadChunk,
            static_cast<std::size_t>(end - begin) * kReadChunk
        );
      }
  );
  return static_cast<double>(clock_.monotonic_ns() - start) * 1e-9;
}

Spread ReadProbe::measure(int passes) {
  if (bytes_ == 0) return {};
  std::vector<double> values;
  for (int i = 0; i < passes; ++i) {
    const double seconds = std::max(pass_seconds(), 1e-9);
    values.push_back(static_cast<double>(bytes_) / seconds * 1e-9);
  }
  return spread_of(std::move(values));
}

std::string_view name(PeakKind kind) {
  switch (kind) {
    case PeakKind::kInt8Dot:
      return "int8 dot";
    case PeakKind::kBf16Dot:
      return "bf16 dot";
    case PeakKind::kFp32Fma:
      break;
  }
  return "fp32 fma";
}

bool has_peak(PeakKind kind, tensor::Isa isa) {
  if (isa == tensor::Isa::kScalar || !tensor::supported(isa)) return false;
  if (kind != PeakKind::kBf16Dot) return true;
  return isa == tensor::Isa::kAvx512 && __builtin_cpu_supports("avx512bf16") != 0;
}

PeakProbe::PeakProbe(tensor::ComputePool& pool, tensor::Isa isa, PeakKind kind, const Clock& clock)
    : pool_(pool), clock_(clock), kind_(kind) {
  if (!has_peak(kind, isa)) return;
  const PeakKernel kernel = kernel_of(kind, isa);
  run_ = kernel.run;
  ops_per_round_ = kernel.ops_per_round;
}

double PeakProbe::burst_seconds(std::int64_t rounds) {
  const std::int64_t start = clock_.monotonic_ns();
  pool_.parallel_for(pool_.threads(), 1, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t i = begin; i < end; ++i)
      sink.fetch_add(run_(rounds) > 0 ? 1u : 0u, std::memory_order_relaxed);
  });
  return std::max(static_cast<double>(clock_.monotonic_ns() - start) * 1e-9, 1e-9);
}

Spread PeakProbe::measure(int tries) {
  if (run_ == nullptr) return {};
  if (rounds_ == 0) {
    constexpr std::int64_t kFirstRounds = 20'000;
    burst_seconds(kFirstRounds);  // wakes the threads and the clock
    const double first = std::max(burst_seconds(kFirstRounds), 1e-6);
    rounds_ = std::max<std::int64_t>(
        1, static_cast<std::int64_t>(static_cast<double>(kFirstRounds) * kBurstSeconds / first)
    );
  }
  const double ops = static_cast<double>(rounds_ * ops_per_round_) * pool_.threads();
  std::vector<double> values;
  for (int i = 0; i < tries; ++i) values.push_back(ops / burst_seconds(rounds_) * 1e-9);
  return spread_of(std::move(values));
}

Spread measure_read_bandwidth(
    tensor::ComputePool& pool, std::size_t buffer_bytes, int passes, const Clock& clock
) {
  return ReadProbe(pool, buffer_bytes, clock).measure(passes);
}

Spread measure_int8_dot(tensor::ComputePool& pool, tensor::Isa isa, int tries, const Clock& clock) {
  return PeakProbe(pool, isa, PeakKind::kInt8Dot, clock).measure(tries);
}

Spread measure_fp32_fma(tensor::ComputePool& pool, tensor::Isa isa, int tries, const Clock& clock) {
  return PeakProbe(pool, isa, PeakKind::kFp32Fma, clock).measure(tries);
}

}  // namespace artery::bench
