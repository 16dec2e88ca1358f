#include "tensor/compute_pool.h"

#include <gtest/gtest.h>

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <thread>
#include <vector>

#include "tensor/isa.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace artery::tensor {
namespace {

TEST(ComputePool, CoversEveryIndexOnce) {
  for (const int threads : {1, 2, 3, 5}) {
    ComputePool pool(threads);
    EXPECT_EQ(pool.threads(), threads);
    for (const std::int64_t count : {0, 1, 2, 7, 64, 1000}) {
      for (const std::int64_t grain : {1, 3, 64, 5000}) {
        std::vector<std::atomic<int>> seen(static_cast<std::size_t>(count));
        pool.parallel_for(count, grain, [&](std::int64_t begin, std::int64_t end, int thread) {
          EXPECT_TRUE(begin < end && end - begin <= grain && thread >= 0 && thread < threads);
          for (std::int64_t i = begin; i < end; ++i) ++seen[static_cast<std::size_t>(i)];
        });
        for (const auto& n : seen) EXPECT_EQ(n.load(), 1);
      }
    }
  }
}

TEST(ComputePool, RangesAreWholeUnits) {
  for (const int threads : {1, 2, 5}) {
    ComputePool pool(threads);
    for (const std::int64_t count : {1, 8, 61, 1000}) {
      for (const std::int64_t unit : {1, 4, 12}) {
        std::vector<std::atomic<int>> seen(static_cast<std::size_t>(count));
        const auto body = [&](std::int64_t begin, std::int64_t end, int) {
          EXPECT_TRUE(begin < end && end - begin <= 24 && begin % unit == 0) << begin << " " << end;
          EXPECT_TRUE(end % unit == 0 || end == count) << begin << " " << end;
          for (std::int64_t i = begin; i < end; ++i) ++seen[static_cast<std::size_t>(i)];
        };
        pool.parallel_for(count, 24, body, unit);
        for (const auto& n : seen) EXPECT_EQ(n.load(), 1);
      }
    }
  }
}

double process_cpu_seconds() {
  timespec t = {};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

// Below 1 % of a processor between requests, whatever the number of threads.
TEST(ComputePool, SleepsBetweenRequests) {
  ComputePool pool(4);
  for (int request = 0; request < 3; ++request) {
    pool.parallel_for(64, 1, [](std::int64_t, std::int64_t, int) {});
    std::this_thread::sleep_for(std::chrono::milliseconds(5));  // the workers stop spinning
    const double before = process_cpu_seconds();
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    EXPECT_LT(process_cpu_seconds() - before, 0.01 * 0.2);
  }
}

// Loops of some 100 us a second, as a decode step has them.
double loops_per_second(ComputePool& pool) {
  const auto start = std::chrono::steady_clock::now();
  const auto since = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  std::atomic<std::uint64_t> sink{0};
  int loops = 0;
  for (; since() < 0.4; ++loops) {
    const auto body = [&](std::int64_t begin, std::int64_t end, int) {
      std::uint64_t x = static_cast<std::uint64_t>(begin);
      for (std::int64_t i = begin; i < end * 1000; ++i) x = x * 6364136223846793005u + 1;
      sink += x;
    };
    pool.parallel_for(200, 50, body, 5);
  }
  return loops / since();
}

// A thread of another program must not stop ours: peers whose threads wait for each other at every
// barrier fall to 2 %. The bound is far below the share (two thirds) because a busy test machine
// has other strangers too.
TEST(ComputePool, KeepsGoingBesideABusyThread) {
  const int threads = default_threads();
  if (threads < 2) GTEST_SKIP() << "one processor";
  ComputePool pool(threads);
  const double alone = loops_per_second(pool);
  std::atomic<bool> stop{false};
  std::thread stranger([&] {
    while (!stop.load(std::memory_order_relaxed)) {
    }
  });
  const double beside = loops_per_second(pool);
  stop = true;
  stranger.join();
  RecordProperty("share", std::to_string(beside / alone));
  EXPECT_GT(beside, 0.25 * alone);
}

// Results written without atomics by one loop are read by the next: loops are ordered. Pauses of
// different lengths catch workers spinning, falling asleep and sleeping.
TEST(ComputePool, LoopsFollowEachOtherThroughSleep) {
  ComputePool pool(3);
  std::vector<std::int64_t> values(200, 0);
  for (int round = 0; round < 600; ++round) {
    pool.parallel_for(200, 7, [&](std::int64_t begin, std::int64_t end, int) {
      for (std::int64_t i = begin; i < end; ++i) values[static_cast<std::size_t>(i)] += 1;
    });
    if (round % 10 == 9) std::this_thread::sleep_for(std::chrono::microseconds(round));
  }
  EXPECT_EQ(std::accumulate(values.begin(), values.end(), std::int64_t{0}), 200 * 600);
}

TEST(ComputePool, ManyPoolsStartAndStop) {
  for (int i = 0; i < 50; ++i) {
    ComputePool pool(4);
    std::atomic<int> sum{0};
    if (i % 2 == 0) {
      pool.parallel_for(10, 1, [&](std::int64_t, std::int64_t, int) { ++sum; });
      EXPECT_EQ(sum.load(), 10);
    }
  }
}

#if defined(__x86_64__)
// Flush-to-zero, denormals-are-zero or another rounding of the calling thread must not reach the
// kernels, and must be there again afterwards.
TEST(ComputePool, FloatModeIsTheDefaultInside) {
  ComputePool pool(3);
  const unsigned before = _mm_getcsr();
  _mm_setcsr(before | 0x8040 | 0x6000);
  for (const std::int64_t grain : {1, 100}) {
    pool.parallel_for(100, grain, [&](std::int64_t, std::int64_t, int) {
      EXPECT_EQ(_mm_getcsr() & 0xFFC0u, 0x1F80u);
    });
  }
  EXPECT_EQ(_mm_getcsr() & 0xE040u, 0xE040u);
  _mm_setcsr(before);
}
#endif

class Cgroup : public ::testing::Test {
 protected:
  void SetUp() override {
    root_ =
        std::filesystem::temp_directory_path() / ("artery_cgroup_" + std::to_string(::getpid()));
    std::filesystem::create_directories(root_);
  }
  void TearDown() override { std::filesystem::remove_all(root_); }
  void put(const std::string& path, const std::string& text) {
    std::filesystem::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }
  double quota(const std::string& proc) {
    return internal::cgroup_quota_cores(proc, root_.string());
  }
  std::filesystem::path root_;
};

TEST_F(Cgroup, Version2TakesTheTightestParent) {
  put("a/b/cpu.max", "max 100000\n");
  put("a/cpu.max", "250000 100000\n");
  put("cpu.max", "800000 100000\n");
  EXPECT_DOUBLE_EQ(quota("0::/a/b\n"), 2.5);
  EXPECT_DOUBLE_EQ(quota("0::/\n"), 8.0);
}

TEST_F(Cgroup, PathOfTheHostFallsBackToTheMount) {
  put("cpu.max", "150000 100000\n");
  EXPECT_DOUBLE_EQ(quota("0::/docker/abc\n"), 1.5);
}

TEST_F(Cgroup, Version1) {
  put("cpu/job/cpu.cfs_quota_us", "300000\n");
  put("cpu/job/cpu.cfs_period_us", "100000\n");
  put("cpu/cpu.cfs_quota_us", "-1\n");
  put("cpu/cpu.cfs_period_us", "100000\n");
  EXPECT_DOUBLE_EQ(quota("7:memory:/job\n4:cpu,cpuacct:/job\n"), 3.0);
  EXPECT_DOUBLE_EQ(quota("4:cpu,cpuacct:/\n"), 0.0);
}

TEST_F(Cgroup, NoneOrNonsenseIsNoLimit) {
  put("cpu.max", "hello\n");
  EXPECT_DOUBLE_EQ(quota("0::/\n"), 0.0);
  EXPECT_DOUBLE_EQ(quota(""), 0.0);
  EXPECT_DOUBLE_EQ(quota("x\n::\n"), 0.0);
}

// Field report FR-K1: a container of 4 CPUs of time on a machine of 8.
TEST_F(Cgroup, K1DefaultThreads) {
  const auto threads = [&](int affinity, const char* cpu_max) {
    put("job/cpu.max", cpu_max);
    return internal::default_threads({8, affinity, quota("0::/job\n")});
  };
  EXPECT_EQ(threads(8, "400000 100000\n"), 4);
  EXPECT_EQ(threads(4, "max 100000\n"), 4);
  EXPECT_EQ(threads(4, "400000 100000\n"), 4);
  EXPECT_EQ(threads(3, "400000 100000\n"), 3);
  EXPECT_EQ(threads(8, "max 100000\n"), 8);
  EXPECT_EQ(threads(8, "390000 100000\n"), 3);
  EXPECT_EQ(threads(8, "50000 100000\n"), 1);
}

TEST(CpuLimits, AreSane) {
  const CpuLimits limits = cpu_limits();
  EXPECT_GE(limits.cores, 1);
  EXPECT_GE(limits.affinity, 1);
  EXPECT_GE(default_threads(), 1);
  EXPECT_LE(default_threads(), limits.affinity);
}

TEST(Isa, ParsesItsNames) {
  EXPECT_EQ(parse_isa("scalar").value(), Isa::kScalar);
  EXPECT_EQ(parse_isa("ref").value(), Isa::kScalar);
  EXPECT_EQ(parse_isa("auto").value(), best_isa());
  EXPECT_EQ(parse_isa("sse9").error().code, Code::kInvalidArgument);
  for (const Isa isa : {Isa::kAvx2, Isa::kAvx512}) {
    const auto parsed = parse_isa(name(isa));
    EXPECT_EQ(parsed.has_value(), supported(isa));
    if (!parsed) {
      EXPECT_EQ(parsed.error().code, Code::kUnsupported);
    }
  }
}

}  // namespace
}  // namespace artery::tensor
