#include "bench/kv_bench.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

namespace artery::bench {
namespace {

// Small: that everything is measured, adds up and is cleaned away.
TEST(KvBench, MeasuresAndLeavesNothing) {
  const std::filesystem::path folder = std::filesystem::temp_directory_path() /
                                       ("artery-kv-bench-test-" + std::to_string(::getpid()));
  std::filesystem::create_directories(folder);
  KvBenchConfig config;
  config.folder = folder.string();
  config.records = 5;
  config.index_records = 5000;
  config.open_bytes = std::int64_t{1} << 30;
  config.repetitions = 2;
  int told = 0;
  const auto report = bench_kv(
      config, system_file_system(), system_clock(), [&](const std::string&, int, int) { ++told; }
  );
  ASSERT_TRUE(report) << report.error().message;
  EXPECT_EQ(report->tokens, 5 * 256);
  EXPECT_EQ(report->prefix_bytes, 5 * 227'840);
  EXPECT_EQ(report->index_records, 5000);
  EXPECT_EQ(report->open_records, 4 * ((256 << 20) - 4096 - (256 << 10)) / 229'376);
  for (const Spread& spread :
       {report->hash_tokens_per_s,
        report->find_us,
        report->crc_gb_per_s,
        report->ram_match_ms,
        report->ram_copy_ms,
        report->write_mb_per_s,
        report->load_ms,
        report->raw_ms,
        report->load_over_raw,
        report->open_ms}) {
    EXPECT_GT(spread.min, 0);
    EXPECT_LE(spread.min, spread.median);
    EXPECT_LE(spread.median, spread.max);
  }
  EXPECT_FALSE(report->io.empty());
  EXPECT_GT(told, 10);
  EXPECT_TRUE(std::filesystem::is_empty(folder));
  std::filesystem::remove_all(folder);
}

// Wherever it is stopped, nothing is left.
TEST(KvBench, StoppedItLeavesNothingEither) {
  const std::filesystem::path folder = std::filesystem::temp_directory_path() /
                                       ("artery-kv-bench-stop-" + std::to_string(::getpid()));
  std::filesystem::create_directories(folder);
  KvBenchConfig config;
  config.folder = folder.string();
  config.records = 5;
  config.index_records = 100;
  config.open_bytes = std::int64_t{1} << 30;
  config.repetitions = 1;
  for (const char* last : {"chain keys", "writing", "prefix from the disk", "opening"}) {
    std::string now;
    config.is_stopped = [&] { return now == last; };
    const auto told = [&](const std::string& what, int, int) {
      now = what;
      if (what == "writing") {
        EXPECT_FALSE(std::filesystem::is_empty(folder));
      }
    };
    const auto report = bench_kv(config, system_file_system(), system_clock(), told);
    ASSERT_FALSE(report) << last;
    EXPECT_EQ(report.error().code, Code::kCancelled) << last;
    EXPECT_EQ(now, last);
    EXPECT_TRUE(std::filesystem::is_empty(folder)) << last;
  }
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace artery::bench
