// Speed of a layer of experts, routing included: milliseconds, GB/s of weights read, Gop/s. Run it
// on an idle machine.
//   experts_bench [threads] [isa] [type] [experts] [used] [embedding] [hidden] [rows ...]
// The default is a layer of Qwen3-30B-A3B. Built with -DARTERY_BENCH=ON.

#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "tensor/backend.h"

namespace {

using namespace artery::tensor;

// Of this thread alone where it does all the work, so that other processes do not count.
double now(bool one_thread) {
  timespec t = {};
  clock_gettime(one_thread ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

struct Shape {
  DType type = DType::kQ4_0;
  std::int64_t experts = 128;
  int used = 8;
  std::int64_t embedding = 2048;
  std::int64_t hidden = 768;
};

std::vector<WeightMatrix> matrices(
    const Shape& s, std::int64_t rows, std::int64_t cols, ComputePool& pool
) {
  const auto bytes = static_cast<std::size_t>(row_bytes(s.type, cols) * rows);
  const std::vector<std::byte> raw(bytes, std::byte{0x11});
  std::vector<WeightMatrix> all;
  for (std::int64_t e = 0; e < s.experts; ++e) {
    auto w = WeightMatrix::pack(s.type, rows, cols, raw, pool);
    if (!w) std::exit(1);
    all.push_back(w.take());
  }
  return all;
}

void measure(Backend& backend, const Shape& s, const Experts& experts, std::int64_t rows) {
  const bool one_thread = backend.pool().threads() == 1;
  std::mt19937_64 rng(1);
  std::vector<float> logits(static_cast<std::size_t>(rows * s.experts));
  double best = 1e9;
  double spent = 0;
  double reads = 0;
  do {
    for (float& v : logits) v = static_cast<float>(rng() >> 40) * 0x1p-24f;
    backend.reset();
    Rows router = backend.alloc(rows, s.experts);
    backend.load(logits, router);
    Rows x = backend.alloc(rows, s.embedding);
    Rows out = backend.alloc(rows, s.embedding);
    backend.load(std::vector<float>(static_cast<std::size_t>(rows * s.embedding), 0.25f), x);
    const double from = now(one_thread);
    const Routing routing = backend.route(router, {.used = s.used, .renormalize = true});
    backend.experts(x, routing, experts, out);
    const double took = now(one_thread) - from;
    spent += took;
    if (took >= best) continue;
    best = took;
    const std::set<std::int32_t> touched(routing.experts.begin(), routing.experts.end());
    reads = 0;
    for (const std::int32_t e : touched) {
      const auto at = static_cast<std::size_t>(e);
      reads += static_cast<double>(experts.gate[at].bytes() + experts.up[at].bytes());
      reads += static_cast<double>(experts.down[at].bytes());
    }
  } while (spent < 0.5);
  const double ops = 6.0 * static_cast<double>(rows * s.used * s.embedding * s.hidden);
  std::printf(
      "%5ld rows  %8.3f ms  %6.1f GB/s  %7.1f Gop/s\n",
      static_cast<long>(rows),
      1e3 * best,
      1e-9 * reads / best,
      1e-9 * ops / best
  );
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  const int threads = argc > 1 ? std::max(1, std::atoi(argv[1])) : default_threads();
  const auto isa = parse_isa(argc > 2 ? argv[2] : "auto");
  if (!isa) {
    std::fprintf(stderr, "%s\n", isa.error().message.c_str());
    return 2;
  }
  Shape s;
  for (std::uint32_t id = 0; argc > 3 && id < 64; ++id) {
    const TypeTraits* type = find_type(id);
    if (type != nullptr && type->is_weight && type->name == argv[3]) s.type = type->type;
  }
  if (argc > 3 && argv[3] == name(DType::kF8E4M3)) s.type = DType::kF8E4M3;
  if (argc > 4) s.experts = std::atol(argv[4]);
  if (argc > 5) s.used = std::atoi(argv[5]);
  if (argc > 6) s.embedding = std::atol(argv[6]);
  if (argc > 7) s.hidden = std::atol(argv[7]);
  std::vector<std::int64_t> rows;
  for (int i = 8; i < argc; ++i) rows.push_back(std::atol(argv[i]));
  if (rows.empty()) rows = {1, 2, 4, 8, 32, 128, 512};
  ComputePool pool(threads);
  auto backend = make_fast_backend(pool, *isa);
  const std::vector<WeightMatrix> gate = matrices(s, s.hidden, s.embedding, pool);
  const std::vector<WeightMatrix> up = matrices(s, s.hidden, s.embedding, pool);
  const std::vector<WeightMatrix> down = matrices(s, s.embedding, s.hidden, pool);
  std::printf("%d threads, %s\n", threads, std::string(name(*isa)).c_str());
  for (const std::int64_t n : rows) {
    measure(*backend, s, {gate, up, down, {}, {}, {}, Gating::kSilu}, n);
  }
}
