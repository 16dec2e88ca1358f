#pragma once
// What the tests of a store under faults share: a disk in memory, a clock, a recorded run, and how
// a store is opened and judged. Tests only, one thread.

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "kvstore/store.h"
#include "testing/fault_file_system.h"
#include "testing/sim_clock.h"
#include "testing/store_run.h"

namespace artery::kvstore::faults {

using testing::Crash;
using testing::Fault;
using testing::FaultFileSystem;
using testing::SimClock;
using testing::StoreRun;
using testing::StoreTally;

inline const std::string kFolder = "/data/store";

inline StoreConfig small_config() {
  StoreConfig config;
  config.folder = kFolder;
  config.bytes_max = 64 << 20;
  config.record_bytes_max = StoreRun::record_payload_max();
  config.segment_bytes = 128 << 10;
  config.buffer_bytes = 1 << 20;
  config.io = StoreConfig::Io::kThreads;
  return config;
}

// Only what hangs takes so long, on any machine under any load. What has to be quick is measured by
// the virtual clock, or by what hangs for longer than this.
constexpr double kHangsS = 60;

// Seconds of the machine's clock since it was made.
class StopWatch {
 public:
  double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begun_).count();
  }

 private:
  std::chrono::steady_clock::time_point begun_ = std::chrono::steady_clock::now();
};

template <typename Condition>
bool wait_for(Condition condition, double seconds = kHangsS) {
  const StopWatch watch;
  while (!condition()) {
    if (watch.seconds() > seconds) return false;
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  return true;
}

// Lines logged while it lives: a sick disk must not fill another one with logs.
class LogLines {
 public:
  LogLines() { ::testing::internal::CaptureStderr(); }
  ~LogLines() {
    if (!is_done_) stop();
  }
  LogLines(const LogLines&) = delete;
  LogLines& operator=(const LogLines&) = delete;
  std::string stop() {
    is_done_ = true;
    return ::testing::internal::GetCapturedStderr();
  }
  std::int64_t count() {
    const std::string text = stop();
    return std::count(text.begin(), text.end(), '\n');
  }

 private:
  bool is_done_ = false;
};

// A store that was filled by a run, and what it must still know.
struct Rig {
  explicit Rig(std::uint64_t seed, StoreConfig with = small_config())
      : config(std::move(with)), run(seed, clock) {}

  bool open() {
    auto opened = DiskStore::open(config, *files, clock);
    if (!opened) {
      open_error = opened.error();
      return false;
    }
    store = opened.take();
    run.bind(*store, store->secret());
    return true;
  }
  // What the store has asked of the disk so far.
  std::int64_t disk_calls() const {
    const FaultFileSystem::Counts counts = files->counts();
    return files->events() + counts.reads + counts.opens + counts.faults;
  }
  // Time passes while nothing happens on the disk: a slow machine does not make it a slow one.
  template <typename Verb>
  auto while_time_passes(Verb verb) {
    std::atomic<bool> is_over = false;
    std::thread time([&] {
      const StopWatch watch;
      for (std::int64_t seen = -1; !is_over;) {
        std::this_thread::sleep_for(std::chrono::milliseconds(4));
        const std::int64_t before = std::exchange(seen, disk_calls());
        const bool is_quiet = seen == before;
        if (watch.seconds() > (is_quiet ? 0.02 : kHangsS / 4)) clock.advance(0.05);
      }
    });
    auto answer = verb();
    is_over = true;
    time.join();
    return answer;
  }
  // Time passes meanwhile: a round that failed is tried again a second later, a breaker after 5.
  Result<> flush() {
    return while_time_passes([this] { return store->flush(); });
  }
  // Flushes and closes; what is there then is what must be found again.
  void close() {
    EXPECT_TRUE(flush());
    run.mark_durable();
    expected = run.expect_durable(*store);
    store.reset();
  }
  void fill(int steps) {
    ASSERT_TRUE(open()) << open_error.message;
    run.steps(*store, steps);
    close();
    ASSERT_GT(expected, 0);
  }
  // Loads everything: nothing wrong, nothing silent. The number of expected records that came.
  std::int64_t look(const std::string& what) {
    tally = StoreTally();
    const StopWatch watch;
    const std::int64_t came = run.check(*store, tally);
    EXPECT_EQ(tally.wrong, 0) << what << ": " << tally.text();
    EXPECT_EQ(tally.unended, 0) << what << ": " << tally.text();
    EXPECT_EQ(tally.silent, 0) << what << ": " << tally.text();
    EXPECT_LT(watch.seconds(), kHangsS) << what;
    return came;
  }
  // It takes new records, and gives them back.
  void expect_working(const std::string& what) {
    const std::size_t fresh = run.add(*store, 0, TtlClass::kHour, 9);
    EXPECT_TRUE(flush()) << what;
    const StoreTally after = run.load(*store, run.prefixes()[fresh]);
    EXPECT_EQ(after.hits, 2) << what << ": " << after.text();
    EXPECT_EQ(after.wrong + after.unended, 0) << what;
  }

  SimClock clock;
  StoreConfig config;
  std::unique_ptr<FaultFileSystem> files = std::make_unique<FaultFileSystem>();
  StoreRun run;
  std::unique_ptr<DiskStore> store;  // after `files`: ends first
  Error open_error;
  std::int64_t expected = 0;
  StoreTally tally;
};

}  // namespace artery::kvstore::faults
