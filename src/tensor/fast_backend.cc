#include "tensor/fast_backend.h"

namespace artery::tensor {
namespace {

static_assert(ops::kLaneCount == kLanes && kLanes == kPageTokens);
static_assert(ops::kQuantBlock % ops::kActBlock == 0);

#if defined(ARTERY_X86_KERNELS)
// VDPBF16PS issues every cycle on Zen 4 and 5, every second one on Intel's cores, where it has half
// the rate of fma (../shared/spec/cpu-perf.md section 6). Both ways give the same bits.
bool has_fast_bf16_dot() { return __builtin_cpu_supports("avx512bf16") && __builtin_cpu_is("amd"); }

KernelTable avx512_kernels() {
  KernelTable table = ops::avx512::kTable;
  if (has_fast_bf16_dot()) table.bf16 = ops::avx512_bf16::kTable;
  return table;
}
#endif

KernelTable kernels_of(Isa isa) {
  CHECK(supported(isa), "{} is not supported here", name(isa));
#if defined(ARTERY_X86_KERNELS)
  if (isa == Isa::kAvx512) return avx512_kernels();
  if (isa == Isa::kAvx2) return ops::avx2::kTable;
#endif
  return ops::scalar::kTable;
}

}  // namespace

FastBackend::FastBackend(ComputePool& pool, Isa isa)
    : pool_(pool), isa_(isa), k_(kernels_of(isa)) {}

void FastBackend::rope(
    Rows x, int head_dim, std::span<const Position> positions, const RopeTable& table
) {
  ops::check_rope(x, head_dim, positions, table);
  const int dims = table.rotary_dims;
  const int half = dims / 2;
  const bool halves = table.style == RopeStyle::kHalves;
  const std::int64_t stride = std::int64_t{2} * dims;
  float* scratch = per_thread_.get(static_cast<std::size_t>(pool_.threads() * stride));
  const auto body = [&](std::int64_t begin, std::int64_t end, int thread) {
    float* c = scratch + thread * stride;
    float* s = c + dims;
    for (std::int64_t r = begin; r < end; ++r) {
      const std::int64_t at = std::int64_t{positions[static_cast<std::size_t>(r)]} * half;
      for (int i = 0; i < half; ++i) {
        const int first = halves ? i : 2 * i;
        const int second = halves ? i + half : 2 * i + 1;
        c[first] = c[second] = static_cast<float>(table.cos[static_cast<std::size_t>(at + i)]);
        s[second] = static_cast<float>(table.sin[static_cast<std::size_t>(at + i)]);
        s[first] = -s[second];
      }
      for (float* head = row_of(x, r); head != row_of(x, r + 1); head += head_dim) {
        k_.rope({head, c, s, dims, halves});
      }
    }
  };
  const std::int64_t grain =
      std::max<std::int64_t>(1, kSerialValues / std::max<std::int64_t>(1, x.cols));
  pool_.parallel_for(x.rows, grain, std::ref(body));
}

std::string_view name(KvType type) {
  switch (type) {
    case KvType::kF16:
      return "f16";
    case KvType::kF32:
      return "f32";
    case KvType::kF64:
      return "f64";
    case KvType::kI16:
      return "int16";
    case KvType::kI16V8:
      return "int16v8";
  }
  return "";
}

std::int64_t value_bytes(KvType type) { return type == KvType::kI16V8 ? 1 : key_bytes(type); }

std::int64_t key_bytes(KvType type) {
  switch (type) {
    case KvType::kF16:
    case KvType::kI16:
    case KvType::kI16V8:
      return 2;
    case KvType::kF32:
      return 4;
    case KvType::kF64:
      return 8;
  }
  return 0;
}

std::unique_ptr<Backend> make_fast_backend(ComputePool& pool, Isa isa) {
  return std::make_unique<FastBackend>(pool, isa);
}

}  // namespace artery::tensor
