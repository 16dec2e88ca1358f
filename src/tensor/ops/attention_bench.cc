// Speed of attention for all KV types, in prefill and in decode, with and without a window, beside
// what the processor's multiply-adds reach at this moment. Run it on an idle machine.
//   attention_bench [threads] [isa] [shapes whose name begins so]

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <vector>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "tensor/backend.h"

namespace {

using namespace artery::tensor;
using artery::kPageTokens;
using artery::PageId;
using artery::Position;

bool cpu_time = false;  // one thread: what others do on the machine then disturbs less

double now() {
  timespec t = {};
  clock_gettime(cpu_time ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}

double seconds_of(const std::function<void()>& body) {
  double best = 1e9;
  const double start = now();
  do {
    const double from = now();
    body();
    best = std::min(best, now() - from);
  } while (now() - start < 0.3);
  return best;
}

#if defined(__x86_64__)
constexpr std::int64_t kPeakLoops = 20'000;
constexpr int kChains = 16;

// Multiply-adds of 16-bit pairs (32 products an instruction) or of float32 (16), in registers.
template <bool kWords>
[[gnu::target("avx512f,avx512vnni")]] void spin() {
  __m512i sums[kChains];
  const __m512i a = _mm512_set1_epi32(0x3F003F00);
#pragma GCC unroll 16
  for (int i = 0; i < kChains; ++i) sums[i] = _mm512_setzero_si512();
  for (std::int64_t n = 0; n < kPeakLoops; ++n) {
#pragma GCC unroll 16
    for (int i = 0; i < kChains; ++i) {
      if constexpr (kWords) {
        sums[i] = _mm512_dpwssd_epi32(sums[i], a, a);
      } else {
        const __m512 x = _mm512_castsi512_ps(a);
        sums[i] = _mm512_castps_si512(_mm512_fmadd_ps(x, x, _mm512_castsi512_ps(sums[i])));
      }
      asm volatile("" : "+v"(sums[i]));
    }
  }
}

double peak(ComputePool& pool, bool words) {
  const double s = seconds_of([&] {
    pool.parallel_for(pool.threads(), 1, [&](std::int64_t, std::int64_t, int) {
      words ? spin<true>() : spin<false>();
    });
  });
  return 2.0 * (words ? 32 : 16) * kChains * static_cast<double>(kPeakLoops * pool.threads()) / s;
}
#else
double peak(ComputePool&, bool) { return 0; }
#endif

struct Shape {
  const char* name;
  int kv_heads;
  int group;
  int head_dim;
  int window = 0;
};

// Rows [first, last) of one sequence, layer after layer so that KV comes from memory as it does
// between the weights of a model.
void measure(Backend& backend, const Shape& shape, KvType type, int first, int last, double limit) {
  constexpr int kLayers = 12;
  const KvGeometry geometry = {kLayers, shape.kv_heads, shape.head_dim, type};
  const std::int64_t pages = (last + kPageTokens - 1) / kPageTokens;
  auto memory = HugeBuffer::make(static_cast<std::size_t>(pages * geometry.page_bytes()));
  if (!memory) std::exit(1);
  const KvPages kv = {memory->data(), geometry};
  std::vector<PageId> table;
  for (PageId p = 0; p < pages; ++p) table.push_back(p);
  const std::int64_t kv_cols = std::int64_t{shape.kv_heads} * shape.head_dim;
  const auto rows_of = [&](int begin, int end, const auto& body) {
    std::vector<Position> positions;
    for (int p = begin; p < end; ++p) positions.push_back(p);
    const std::vector<std::int32_t> offsets = {0, end - begin};
    body(AttentionBatch{positions, offsets, table, pages});
  };
  const auto noise = [&](std::int64_t rows, std::int64_t cols) {
    std::vector<float> values(static_cast<std::size_t>(rows * cols));
    std::uint32_t state = 1;
    for (float& v : values) {
      state = state * 1664525u + 1013904223u;
      v = static_cast<float>(state >> 8) * 0x1p-23f - 1.0f;
    }
    Rows out = backend.alloc(rows, cols);
    backend.load(values, out);
    return out;
  };
  backend.reset();
  const Rows written = noise(last, kv_cols);
  rows_of(0, last, [&](const AttentionBatch& batch) {
    for (int l = 0; l < kLayers; ++l) backend.kv_write(written, written, kv, l, batch);
  });
  const Rows q = noise(last - first, kv_cols * shape.group);
  const Rows out = backend.alloc(last - first, kv_cols * shape.group);
  double operations = 0;
  for (int p = first; p < last; ++p) {
    const int seen = shape.window > 0 ? std::min(shape.window, p + 1) : p + 1;
    operations += 4.0 * shape.head_dim * shape.kv_heads * shape.group * seen;
  }
  rows_of(first, last, [&](const AttentionBatch& batch) {
    const int layers = last - first > 1 ? 1 : kLayers;
    const double s = seconds_of([&] {
      for (int l = 0; l < layers; ++l) {
        backend.attention(q, kv, l, batch, {.scale = 0.1f, .window = shape.window}, out);
      }
    });
    const double rate = operations * layers / s;
    std::printf(
        "%-14s window %4d  %-7s rows %4d of %4d  %8.1f us  %6.1f GFLOP/s  %5.1f %%\n",
        shape.name,
        shape.window,
        std::string(name(type)).c_str(),
        last - first,
        last,
        s / layers * 1e6,
        rate * 1e-9,
        limit > 0 ? 100 * rate / limit : 0
    );
  });
}

}  // namespace

int main(int argc, char** argv) {
  const int threads = argc > 1 ? std::max(1, std::atoi(argv[1])) : default_threads();
  const auto isa = parse_isa(argc > 2 ? argv[2] : "auto");
  if (!isa) {
    std::fprintf(stderr, "%s\n", isa.error().message.c_str());
    return 2;
  }
  cpu_time = threads == 1;
  ComputePool pool(threads);
  auto backend = make_fast_backend(pool, *isa);
  const bool wide = supported(Isa::kAvx512);
  const double words = wide ? peak(pool, true) : 0;
  const double floats = wide ? peak(pool, false) : 0;
  std::printf(
      "%d threads, %s; peak int16 %.0f, float32 %.0f GFLOP/s\n",
      threads,
      std::string(name(*isa)).c_str(),
      words * 1e-9,
      floats * 1e-9
  );
  const std::string only = argc > 3 ? argv[3] : "";
  constexpr Shape kShapes[] = {
      {"Qwen2.5-1.5B", 2, 6, 128},
      {"SmolLM2-135M", 3, 3, 64},
      {"Gemma3-270M", 1, 4, 256},
      {"Gemma3-270M", 1, 4, 256, 512},
      {"gpt-oss-20B", 8, 8, 64},
      {"gpt-oss-20B", 8, 8, 64, 128},
      {"Phi-3-mini", 32, 1, 96},
      {"Danube", 8, 4, 80, 2048},
  };
  for (const Shape& shape : kShapes) {
    if (!std::string_view(shape.name).starts_with(only)) continue;
    for (const int positions : {512, 8000}) {
      for (const int rows : {512, 1}) {
        for (const KvType type : {KvType::kF16, KvType::kI16, KvType::kI16V8}) {
          const double limit = is_integer(type) ? words : floats;
          measure(*backend, shape, type, positions - rows, positions, limit);
        }
      }
    }
  }
}
