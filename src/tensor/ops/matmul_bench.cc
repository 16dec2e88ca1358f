// Speed of the matrix products: GB/s of weights read for one row, Gop/s for a prefill batch. Run
// it on an idle machine; compare with ../shared/spec/cpu-perf.md.
//   matmul_bench [threads] [isa] [type or "all"] [weight rows] [cols] [activation rows ...]
// Built with -DARTERY_BENCH=ON.

#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "tensor/backend.h"

namespace {

using namespace artery::tensor;

// A sink that the compiler must assume is read.
void keep(std::uint64_t value) { asm volatile("" : : "r"(value) : "memory"); }

// Of this thread alone where it does all the work, so that other processes do not count.
double now(bool one_thread) {
  timespec t = {};
  clock_gettime(one_thread ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

double seconds_of(bool one_thread, const std::function<void()>& body) {
  constexpr double kLong = 0.3;
  double best = 1e9;
  double spent = 0;
  do {
    const double from = now(one_thread);
    body();
    const double took = now(one_thread) - from;
    best = std::min(best, took);
    spent += took;
  } while (spent < kLong);
  return best;
}

// What the memory gives at this moment, summed by the same pool.
double read_gbps(ComputePool& pool) {
  auto made = HugeBuffer::make(std::size_t{256} << 20);
  if (!made) return 0;
  const HugeBuffer buffer = made.take();
  std::fill_n(buffer.data(), buffer.bytes(), std::byte{1});
  const auto* words = reinterpret_cast<const std::uint64_t*>(buffer.data());
  const double s = seconds_of(pool.threads() == 1, [&] {
    pool.parallel_for(256, 1, [&](std::int64_t begin, std::int64_t end, int) {
      std::uint64_t sums[8] = {};
      for (std::int64_t i = begin << 17; i < end << 17; i += 8) {
        for (int j = 0; j < 8; ++j) sums[j] += words[i + j];
      }
      keep(sums[0] + sums[1] + sums[2] + sums[3] + sums[4] + sums[5] + sums[6] + sums[7]);
    });
  });
  return static_cast<double>(buffer.bytes()) / s * 1e-9;
}

// int8 multiply-adds of register operands, two operations each; 0 without the instruction.
double peak_gops(ComputePool& pool) {
#if defined(__x86_64__)
  if (!supported(Isa::kAvx512)) return 0;
  constexpr std::int64_t kLoops = 1 << 20;
  const double s = seconds_of(pool.threads() == 1, [&] {
    pool.parallel_for(pool.threads(), 1, [&](std::int64_t, std::int64_t, int) {
      for (std::int64_t i = 0; i < kLoops; ++i) {
        asm volatile(
            "vpdpbusd %%zmm31, %%zmm31, %%zmm0\n\tvpdpbusd %%zmm31, %%zmm31, %%zmm1\n\t"
            "vpdpbusd %%zmm31, %%zmm31, %%zmm2\n\tvpdpbusd %%zmm31, %%zmm31, %%zmm3\n\t"
            "vpdpbusd %%zmm31, %%zmm31, %%zmm4\n\tvpdpbusd %%zmm31, %%zmm31, %%zmm5\n\t"
            "vpdpbusd %%zmm31, %%zmm31, %%zmm6\n\tvpdpbusd %%zmm31, %%zmm31, %%zmm7\n\t"
            "vpdpbusd %%zmm31, %%zmm31, %%zmm8\n\tvpdpbusd %%zmm31, %%zmm31, %%zmm9"
            :
            :
            : "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9"
        );
      }
    });
  });
  return 10.0 * 128 * static_cast<double>(kLoops) * pool.threads() / s * 1e-9;
#else
  (void)pool;
  return 0;
#endif
}

struct Limits {
  double gbps;
  double gops;
};

struct Case {
  DType type;
  std::int64_t n;
  std::int64_t k;
};

Rows make_rows(Backend& backend, std::int64_t rows, std::int64_t cols) {
  const std::vector<float> values(static_cast<std::size_t>(rows * cols), 0.25f);
  Rows x = backend.alloc(rows, cols);
  backend.load(values, x);
  return x;
}

void measure(Backend& backend, const Case& c, const std::vector<std::int64_t>& rows_list) {
  ComputePool& pool = backend.pool();
  const bool one_thread = pool.threads() == 1;
  // Enough copies that one row's products cannot come from the cache.
  const auto bytes = static_cast<std::size_t>(row_bytes(c.type, c.k) * c.n);
  const std::size_t copies = std::max<std::size_t>(1, (std::size_t{160} << 20) / bytes);
  const std::vector<std::byte> raw(bytes, std::byte{0x11});
  std::vector<WeightMatrix> weights;
  double pack = 1e9;
  for (std::size_t i = 0; i < copies; ++i) {
    const double from = now(one_thread);
    auto w = WeightMatrix::pack(c.type, c.n, c.k, raw, pool);
    pack = std::min(pack, now(one_thread) - from);
    if (!w) std::exit(1);
    weights.push_back(w.take());
  }
  std::printf(
      "%-8s %5ld x %5ld",
      std::string(name(c.type)).c_str(),
      static_cast<long>(c.n),
      static_cast<long>(c.k)
  );
  std::printf("  pack %5.2f GB/s", static_cast<double>(bytes) / pack * 1e-9);
  for (const std::int64_t rows : rows_list) {
    backend.reset();
    Rows x = make_rows(backend, rows, c.k);
    Rows out = backend.alloc(rows, c.n);
    const std::size_t used = rows > 16 ? 1 : copies;
    // What the best of the moment is, before and after: the memory's speed changes by itself.
    const double s = seconds_of(one_thread, [&] {
      for (std::size_t i = 0; i < used; ++i) backend.matmul(x, weights[i], {}, out);
    });
    const double reads = static_cast<double>(bytes * used) / s * 1e-9;
    const double ops = 2.0 * static_cast<double>(rows * c.n * c.k) * static_cast<double>(used) / s;
    std::printf(
        rows <= 4 ? " | %ld: %5.1f GB/s" : " | %ld: %6.1f Gop/s",
        static_cast<long>(rows),
        rows <= 4 ? reads : ops * 1e-9
    );
    const Limits limits = {read_gbps(pool), peak_gops(pool)};
    const double share = rows <= 4 ? reads / limits.gbps : ops * 1e-9 / limits.gops;
    std::printf(" %3.0f %%", 100 * share);
  }
  std::printf("\n");
  std::fflush(stdout);
}

const std::vector<DType>& types_of(std::string_view which) {
  static std::vector<DType> types;
  for (std::uint32_t id = 0; id < 64; ++id) {
    const TypeTraits* type = find_type(id);
    if (type == nullptr || !type->is_weight) continue;
    if (which == "all" || which == type->name) types.push_back(type->type);
  }
  if (which == "all" || which == "F8_E4M3") types.push_back(DType::kF8E4M3);
  return types;
}

}  // namespace

int main(int argc, char** argv) {
  const int threads = argc > 1 ? std::max(1, std::atoi(argv[1])) : default_threads();
  const auto isa = parse_isa(argc > 2 ? argv[2] : "auto");
  if (!isa) {
    std::fprintf(stderr, "%s\n", isa.error().message.c_str());
    return 2;
  }
  std::vector<std::int64_t> rows;
  for (int i = 6; i < argc; ++i) rows.push_back(std::atol(argv[i]));
  if (rows.empty()) rows = {1, 4, 8, 512};
  ComputePool pool(threads);
  auto backend = make_fast_backend(pool, *isa);
  std::printf(
      "%d threads, %s, reads %.1f GB/s, int8 peak %.0f Gop/s\n",
      threads,
      std::string(name(*isa)).c_str(),
      read_gbps(pool),
      peak_gops(pool)
  );
  const std::int64_t n = argc > 4 ? std::atol(argv[4]) : 1536;
  const std::int64_t k = argc > 5 ? std::atol(argv[5]) : 8960;
  for (const DType type : types_of(argc > 3 ? argv[3] : "all"))
    measure(*backend, {type, n, k}, rows);
}
