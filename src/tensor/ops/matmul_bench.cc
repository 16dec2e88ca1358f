// Speed of the matrix products: GB/s of weights read for one row, Gop/s for a prefill batch. Run
// it on an idle machine; compare with ../shared/spec/cpu-perf.md.
//   matmul_bench [threads] [isa]

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "tensor/backend.h"

namespace {

using namespace artery::tensor;

// A sink that the compiler must assume is read.
void keep(std::uint64_t value) { asm volatile("" : : "r"(value) : "memory"); }

double seconds_of(const std::function<void()>& body) {
  double best = 1e9;
  const auto start = std::chrono::steady_clock::now();
  const auto since = [](auto from) {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - from).count();
  };
  do {
    const auto from = std::chrono::steady_clock::now();
    body();
    best = std::min(best, since(from));
  } while (since(start) < 0.4);
  return best;
}

// What the memory gives at this moment, summed by the same pool.
double read_gbps(ComputePool& pool) {
  auto made = HugeBuffer::make(std::size_t{256} << 20);
  if (!made) return 0;
  const HugeBuffer buffer = made.take();
  std::fill_n(buffer.data(), buffer.bytes(), std::byte{1});
  const auto* words = reinterpret_cast<const std::uint64_t*>(buffer.data());
  const double s = seconds_of([&] {
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

struct Case {
  DType type;
  std::int64_t n;
  std::int64_t k;
};

void measure(Backend& backend, const Case& c) {
  // Enough copies that one row's products cannot come from the cache.
  const auto bytes = static_cast<std::size_t>(row_bytes(c.type, c.k) * c.n);
  const std::size_t copies = std::max<std::size_t>(1, (std::size_t{160} << 20) / bytes);
  const std::vector<std::byte> raw(bytes, std::byte{0x11});
  std::vector<WeightMatrix> weights;
  for (std::size_t i = 0; i < copies; ++i) {
    auto w = WeightMatrix::pack(c.type, c.n, c.k, raw, backend.pool());
    if (!w) std::exit(1);
    weights.push_back(w.take());
  }
  for (const std::int64_t rows : {1, 8, 512}) {
    backend.reset();
    std::vector<float> values(static_cast<std::size_t>(rows * c.k), 0.25f);
    Rows x = backend.alloc(rows, c.k);
    backend.load(values, x);
    Rows out = backend.alloc(rows, c.n);
    std::size_t used = rows == 512 ? 1 : copies;
    const double s = seconds_of([&] {
      for (std::size_t i = 0; i < used; ++i) backend.matmul(x, weights[i], {}, out);
    });
    const double reads = static_cast<double>(bytes * used) / s * 1e-9;
    const double ops = 2.0 * static_cast<double>(rows * c.n * c.k) * static_cast<double>(used) / s;
    std::printf(
        "%-5s %5ld x %5ld  rows %3ld  %7.1f GB/s  %7.1f Gop/s\n",
        std::string(name(c.type)).c_str(),
        static_cast<long>(c.n),
        static_cast<long>(c.k),
        static_cast<long>(rows),
        reads,
        ops * 1e-9
    );
  }
}

}  // namespace

int main(int argc, char** argv) {
  const int threads = argc > 1 ? std::max(1, std::atoi(argv[1])) : default_threads();
  const auto isa = parse_isa(argc > 2 ? argv[2] : "auto");
  if (!isa) {
    std::fprintf(stderr, "%s\n", isa.error().message.c_str());
    return 2;
  }
  ComputePool pool(threads);
  std::printf(
      "%d threads, %s, reads %.1f GB/s\n", threads, std::string(name(*isa)).c_str(), read_gbps(pool)
  );
  auto backend = make_fast_backend(pool, *isa);
  for (const Case& c :
       {Case{DType::kQ4_1, 1536, 576},
        Case{DType::kQ4_1, 8960, 1536},
        Case{DType::kQ4_1, 1536, 8960},
        Case{DType::kQ8_0, 1536, 8960},
        Case{DType::kBF16, 1536, 1536},
        Case{DType::kBF16, 8960, 1536},
        Case{DType::kBF16, 1536, 8960},
        Case{DType::kF16, 1536, 1536},
        Case{DType::kQ4_K, 1536, 1536}}) {
    measure(*backend, c);
  }
}
