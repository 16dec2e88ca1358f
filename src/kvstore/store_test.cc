#include "kvstore/store.h"

#include <gmock/gmock.h>
#include <sys/wait.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <fstream>

#include "kvstore/folder_format.h"
#include "kvstore/store_testing.h"
#include "testing/sim_clock.h"

namespace artery::kvstore {
namespace {

using namespace store_testing;
using ::testing::HasSubstr;

class StoreTest : public ::testing::TestWithParam<StoreConfig::Io> {
 protected:
  StoreConfig config() const {
    StoreConfig config = small_config(folder_.path());
    config.io = GetParam();
    return config;
  }
  TempFolder folder_;
};

TEST_P(StoreTest, WhatIsOfferedIsFoundAndLoaded) {
  const auto store = open_store(config());
  const SpaceId space = store->open_space(spec_of());
  const Prompt prompt(*store, 1, 14);  // three whole records and a tail of 2 pages
  EXPECT_EQ(store->find(space, prompt.keys).miss, MissReason::kCold);
  const Offered offered = offer_all(*store, space, prompt);
  EXPECT_EQ(offered.taken, 4);
  ASSERT_TRUE(store->flush());
  EXPECT_EQ(offer_all(*store, space, prompt).known, 4);
  expect_whole(*store, space, prompt);
  const StoreStatus status = store->status();
  EXPECT_EQ(status.records, 4);
  EXPECT_EQ(status.records_written, 4);
  EXPECT_EQ(status.records_read, 4);
  EXPECT_EQ(status.health, Health::kOk);
  EXPECT_EQ(status.trouble, "");
  EXPECT_GT(status.bytes_to_disk, status.bytes_written);
}

TEST_P(StoreTest, FindsAllAfterACleanRestart) {
  std::string secret;
  {
    const auto store = open_store(config());
    secret = store->secret();
    const SpaceId space = store->open_space(spec_of());
    for (int seed = 0; seed < 20; ++seed) {
      EXPECT_EQ(offer_all(*store, space, Prompt(*store, seed, 11)).refused, 0);
    }
  }
  for (int life = 0; life < 3; ++life) {
    const auto store = open_store(config());
    EXPECT_EQ(store->secret(), secret);
    const SpaceId space = store->open_space(spec_of());
    for (int seed = 0; seed < 20 + life; ++seed) {
      expect_whole(*store, space, Prompt(*store, seed, 11));
    }
    EXPECT_EQ(store->status().epoch, static_cast<std::uint64_t>(life) + 2);
    EXPECT_EQ(store->status().recovery_cuts, 0);
    EXPECT_EQ(offer_all(*store, space, Prompt(*store, 20 + life, 11)).taken, 3);
  }
}

TEST_P(StoreTest, FindsWhatWasWrittenBeforeAKill) {
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    auto store = open_store(config());
    const SpaceId space = store->open_space(spec_of());
    bool ok = true;
    for (int seed = 0; seed < 20; ++seed) {
      ok &= offer_all(*store, space, Prompt(*store, seed, 11)).refused == 0;
      if (seed == 9) ok &= store->flush().has_value();
    }
    // Until all are written, not until they are journaled.
    while (store->status().records_written < 60) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    ::_exit(ok && !::testing::Test::HasFailure() ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_EQ(status, 0);
  for (int life = 0; life < 2; ++life) {
    const auto store = open_store(config());
    const SpaceId space = store->open_space(spec_of());
    EXPECT_EQ(store->status().recovered_records, 60);
    for (int seed = 0; seed < 20; ++seed) expect_whole(*store, space, Prompt(*store, seed, 11));
  }
}

TEST_P(StoreTest, StaysUnderItsCapAndKeepsWhatIsNew) {
  StoreConfig small = config();
  small.bytes_max = 2 << 20;
  auto store = open_store(small);
  const SpaceId space = store->open_space(spec_of());
  constexpr int kPrompts = 200;  // about 7 MB
  for (int seed = 0; seed < kPrompts; ++seed) {
    EXPECT_EQ(offer_all(*store, space, Prompt(*store, seed, 8)).refused, 0) << seed;
    if (seed % 20 == 0) {
      EXPECT_LE(folder_.bytes(), small.bytes_max) << seed;
    }
  }
  ASSERT_TRUE(store->flush());
  EXPECT_LE(folder_.bytes(), small.bytes_max);
  expect_whole(*store, space, Prompt(*store, kPrompts - 1, 8));
  EXPECT_EQ(store->find(space, Prompt(*store, 0, 8).keys).miss, MissReason::kEvicted);
  EXPECT_GT(store->status().segments_reclaimed, 10);
  // A smaller cap is enforced before open() returns.
  store.reset();
  small.bytes_max = 1 << 20;
  store = open_store(small);
  EXPECT_LE(folder_.bytes(), small.bytes_max);
  store->open_space(spec_of());
  expect_whole(*store, space, Prompt(*store, kPrompts - 1, 8));
}

TEST_P(StoreTest, ASecondServerIsRefusedOrReadsOnly) {
  const auto store = open_store(config());
  const SpaceId space = store->open_space(spec_of());
  const Prompt prompt(*store, 1, 8);
  offer_all(*store, space, prompt);
  ASSERT_TRUE(store->flush());
  const auto second = DiskStore::open(config(), system_file_system(), system_clock());
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, Code::kUnavailable);
  EXPECT_THAT(second.error().message, HasSubstr(std::to_string(::getpid())));
  EXPECT_THAT(second.error().message, HasSubstr("--kv-read-only"));
  StoreConfig reading = config();
  reading.read_only = true;
  const auto reader = open_store(reading);
  const SpaceId same = reader->open_space(spec_of());
  expect_whole(*reader, same, prompt);
  EXPECT_EQ(offer_all(*reader, same, Prompt(*reader, 2, 8), TtlClass::kHour, 0, false).refused, 2);
  EXPECT_EQ(reader->guarantee(same, 1000, TtlClass::kHour), 0);
  EXPECT_EQ(reader->status().health, Health::kReadOnly);
  EXPECT_TRUE(reader->flush());
}

TEST_P(StoreTest, PromisesOutliveARestartAndPressure) {
  StoreConfig small = config();
  small.bytes_max = 2 << 20;
  {
    const auto store = open_store(small);
    const SpaceId space = store->open_space(spec_of());
    const std::int64_t until = store->guarantee(space, 640 << 10, TtlClass::kAgent);
    EXPECT_GT(until, 0);
    EXPECT_EQ(store->guarantee(space, 640 << 10, TtlClass::kAgent), 0) << "more than its share";
    // Every fourth prompt is promised: no segment is without.
    for (int seed = 0; seed < 40; ++seed) {
      const std::int64_t promise = seed % 4 == 0 ? until : 0;
      offer_all(*store, space, Prompt(*store, seed, 8), TtlClass::kHour, promise);
    }
    ASSERT_TRUE(store->flush());
  }
  const auto store = open_store(small);
  const SpaceId space = store->open_space(spec_of());
  for (int seed = 40; seed < 240; ++seed) {
    ASSERT_EQ(offer_all(*store, space, Prompt(*store, seed, 8)).refused, 0) << seed;
    // A file that goes and one that comes while they are counted are not there at one time.
    const std::int64_t bytes = std::min({folder_.bytes(), folder_.bytes(), folder_.bytes()});
    ASSERT_LE(bytes, small.bytes_max) << seed;
  }
  ASSERT_TRUE(store->flush());
  EXPECT_GT(store->status().records_copied, 0);
  for (int seed = 0; seed < 40; seed += 4) {
    SCOPED_TRACE(seed);
    expect_whole(*store, space, Prompt(*store, seed, 8));
  }
  // All are of one or two seconds, so which of the others went is open; but the room is used.
  int whole = 0;
  for (int seed = 0; seed < 240; ++seed) {
    whole += store->find(space, Prompt(*store, seed, 8).keys).pages == 8;
  }
  EXPECT_GE(whole, 25);
}

TEST_P(StoreTest, ASegmentThatVanishesIsAMiss) {
  const auto store = open_store(config());
  const SpaceId space = store->open_space(spec_of());
  for (int seed = 0; seed < 40; ++seed) offer_all(*store, space, Prompt(*store, seed, 8));
  ASSERT_TRUE(store->flush());
  const auto names = folder_.names("seg-");
  ASSERT_GT(names.size(), 3u);
  std::filesystem::resize_file(folder_.file(names[1]), 8192);  // cut under us
  int missed = 0;
  for (int seed = 0; seed < 40; ++seed) {
    const Prompt prompt(*store, seed, 8);
    const Loaded loaded = load_found(*store, space, prompt, store->find(space, prompt.keys));
    EXPECT_TRUE(loaded.has_ended);
    EXPECT_EQ(loaded.wrong, 0);
    missed += loaded.pieces < 2;
  }
  EXPECT_GT(missed, 0);
  EXPECT_LT(missed, 20);
  EXPECT_EQ(store->status().segments_lost, 1);
  EXPECT_EQ(store->status().health, Health::kOk);
}

TEST_P(StoreTest, WhatIsNotItsOwnIsLeftAlone) {
  std::filesystem::create_directories(folder_.path());
  std::ofstream(folder_.file("notes.txt")) << "mine";
  const auto store = open_store(config());
  EXPECT_EQ(store->status().unknown_files, 1);
  EXPECT_TRUE(store->collect());
  EXPECT_TRUE(std::filesystem::exists(folder_.file("notes.txt")));
}

TEST_P(StoreTest, ExpiredSegmentsGo) {
  artery::testing::SimClock clock;
  const auto store = open_store(config(), clock);
  const SpaceId space = store->open_space(spec_of());
  for (int seed = 0; seed < 20; ++seed) {
    offer_all(*store, space, Prompt(*store, seed, 8), TtlClass::kTenMinutes);
  }
  const Prompt kept(*store, 100, 8);
  offer_all(*store, space, kept, TtlClass::kChat);
  ASSERT_TRUE(store->flush());
  // As the store counts: a file that is just being sealed is on the disk a little shorter already.
  const std::int64_t before = store->status().bytes_used;
  EXPECT_LE(folder_.bytes(), before);
  clock.advance(700);
  EXPECT_EQ(store->find(space, Prompt(*store, 1, 8).keys).miss, MissReason::kExpired);
  const auto freed = store->collect();
  ASSERT_TRUE(freed) << freed.error().message;
  EXPECT_GT(*freed, 0);
  EXPECT_LE(folder_.bytes(), before - *freed);
  expect_whole(*store, space, kept);
  EXPECT_GT(store->status().segments_expired, 0);
}

TEST_P(StoreTest, CancelledLoadsGiveNothingAndTheirBuffersBack) {
  const auto store = open_store(config());
  const SpaceId space = store->open_space(spec_of());
  const Prompt prompt(*store, 1, 32);
  offer_all(*store, space, prompt);
  ASSERT_TRUE(store->flush());
  std::atomic<int> bells = 0;
  store->set_notify([&] { ++bells; });
  const std::vector<Wanted> wanted = wanted_of(prompt, store->find(space, prompt.keys));
  ASSERT_EQ(wanted.size(), 8u);
  for (int i = 0; i < 100; ++i) {
    const LoadId load = store->load(space, wanted, kNoDeadline);
    if (i % 3 == 0) std::this_thread::sleep_for(std::chrono::microseconds(200));
    store->cancel(load);
    store->poll(1 << 20, [&](const Piece& piece) { EXPECT_NE(piece.load, load); });
  }
  expect_whole(*store, space, prompt);
  EXPECT_TRUE(wait_until([&] { return bells > 0; }));
  store->set_notify({});
  const int rung = bells;
  // One that is past its deadline ends with what has come.
  const Loaded late = wait_for(*store, store->load(space, wanted, 0), wanted);
  EXPECT_TRUE(late.has_ended);
  EXPECT_EQ(late.why, MissReason::kSlow);
  EXPECT_EQ(bells, rung);
  // Reads of the cancelled ones may be under way still.
  EXPECT_TRUE(wait_until([&] { return store->status().reads_queued == 0; }));
}

// On a clock that stands still nothing comes after the first quarter of a second's worth.
TEST_P(StoreTest, ALimitAndWhatIsAskedForAreInThePrediction) {
  testing::SimClock clock;
  StoreConfig limited = config();
  limited.read_bytes_per_s = 200'000;
  const auto store = open_store(limited, clock);
  const SpaceId space = store->open_space(spec_of());
  const Prompt prompt(*store, 1, 80);  // twenty records
  offer_all(*store, space, prompt);
  ASSERT_TRUE(store->flush());
  EXPECT_DOUBLE_EQ(store->load_seconds(100'000), 0.5);
  const std::vector<Wanted> wanted = wanted_of(prompt, store->find(space, prompt.keys));
  const double all = 20.0 * stored_bytes(kRecordPages * kPageTokens, kRecordPages * kPageBytes);
  const LoadId load = store->load(space, wanted, kNoDeadline);
  constexpr double kBurst = 50'000;
  EXPECT_GE(store->load_seconds(100'000), 0.5 + (all - kBurst) / 200'000);  // from the first moment
  const auto pieces = std::make_shared<int>(0);
  const auto poll = [&] {
    store->poll(1 << 20, [&](const Piece& piece) { *pieces += piece.payload.empty() ? 0 : 1; });
  };
  while (*pieces < 3) poll();
  EXPECT_GE(store->load_seconds(100'000), 0.5 + (all - kBurst) / 200'000);
  EXPECT_LE(store->load_seconds(100'000), 0.5 + all / 200'000);
  store->cancel(load);
  while (store->load_seconds(100'000) > 0.5) poll();
}

INSTANTIATE_TEST_SUITE_P(
    Queues,
    StoreTest,
    ::testing::Values(StoreConfig::Io::kAuto, StoreConfig::Io::kThreads),
    [](const auto& param) {
      return param.param == StoreConfig::Io::kAuto ? std::string("Auto") : std::string("Threads");
    }
);

}  // namespace
}  // namespace artery::kvstore
