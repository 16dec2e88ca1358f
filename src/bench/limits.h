#pragma once
// What this machine can do right now, measured in a fraction of a second: memory bandwidth and
// arithmetic peak of the pool's threads together. The figures `bench model` and `doctor` put beside
// what the model reaches. Both move while nothing of ours runs (a shared host), so a probe is made
// once and asked again right before and after each thing it is compared with. Called by the thread
// that owns the pool.

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/clock.h"
#include "bench/spread.h"
#include "tensor/compute_pool.h"
#include "tensor/isa.h"

namespace artery::bench {

// Memory far beyond any cache of one socket's share; tests take less.
constexpr std::size_t kProbeBytes = std::size_t{512} << 20;

// Sequential reads from memory with the widest loads, in 2 MiB pages where the kernel gives them,
// 16 MiB at a time dealt to the threads from a counter.
class ReadProbe {
 public:
  // Takes and touches `bytes` (rounded down to whole MiB) until destroyed. Without that memory
  // every figure is 0.
  ReadProbe(tensor::ComputePool& pool, std::size_t bytes, const Clock& clock);
  ~ReadProbe();
  ReadProbe(const ReadProbe&) = delete;
  ReadProbe& operator=(const ReadProbe&) = delete;

  // 1e9 bytes per second, each over one pass of the buffer.
  Spread measure(int passes);
  // The kernel was asked for 2 MiB pages and its setting allows them.
  bool huge_pages() const { return huge_pages_; }

 private:
  double pass_seconds();

  tensor::ComputePool& pool_;
  const Clock& clock_;
  void* mapping_ = nullptr;
  std::size_t mapped_ = 0;
  const std::byte* base_ = nullptr;
  std::size_t bytes_ = 0;
  bool huge_pages_ = false;
};

// Which multiply-add the machine's peak is measured with.
enum class PeakKind {
  kInt8Dot,  // 8-bit products summed in 32 bits
  kBf16Dot,  // bfloat16 products summed in float32
  kFp32Fma,
};
std::string_view name(PeakKind kind);  // "int8 dot", "bf16 dot", "fp32 fma"
// This CPU has the instruction and `isa` may use it.
bool has_peak(PeakKind kind, tensor::Isa isa);

// A loop of nothing but multiply-adds on registers, on all threads of the pool.
class PeakProbe {
 public:
  // Without has_peak() every figure is 0.
  PeakProbe(tensor::ComputePool& pool, tensor::Isa isa, PeakKind kind, const Clock& clock);
  // 1e9 operations (multiply-adds x 2) per second, `tries` bursts of about 10 ms.
  Spread measure(int tries);
  PeakKind kind() const { return kind_; }

 private:
  double burst_seconds(std::int64_t rounds);

  tensor::ComputePool& pool_;
  const Clock& clock_;
  PeakKind kind_;
  float (*run_)(std::int64_t rounds) = nullptr;
  std::int64_t ops_per_round_ = 0;
  std::int64_t rounds_ = 0;  // of about 10 ms; 0: not known yet
};

// One-off forms of the probes above.
Spread measure_read_bandwidth(
    tensor::ComputePool& pool, std::size_t buffer_bytes, int passes, const Clock& clock
);
Spread measure_int8_dot(tensor::ComputePool& pool, tensor::Isa isa, int tries, const Clock& clock);
Spread measure_fp32_fma(tensor::ComputePool& pool, tensor::Isa isa, int tries, const Clock& clock);

}  // namespace artery::bench
