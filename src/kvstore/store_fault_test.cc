// A store on a disk that fails, hangs, fills up or turns read-only, and clocks that jump: requests
// see misses with reasons, each fault has its counter, nothing is wrong or slow, no storm of logs,
// and the tier comes back when the disk does.

#include <fmt/format.h>

#include <optional>
#include <span>
#include <vector>

#include "kvstore/breaker.h"
#include "kvstore/store_fault_rig_testing.h"

namespace artery::kvstore::faults {
namespace {

constexpr std::int64_t kLinesMax = 20;  // of logs in one trouble
constexpr std::size_t kHanging = 4;     // reads that hang at a time

class StoreFault : public ::testing::Test {
 protected:
  // A store with records, closed and opened again.
  void SetUp() override {
    rig_.fill(40);
    ASSERT_TRUE(rig_.open()) << rig_.open_error.message;
    rig_.expected = rig_.run.expect_durable(*rig_.store);
  }
  // After the trouble: heals the disk, lets the breaker's longest pause pass, and works.
  void expect_recovery(const std::string& what) {
    rig_.files->heal();
    // A jump may come while a probe is under way, which is no reason to fail.
    for (int i = 0; i < 300 && status().health != Health::kOk; ++i) {
      rig_.clock.advance(301);
      wait_for([&] { return status().health == Health::kOk; }, 0.2);
    }
    EXPECT_EQ(status().health, Health::kOk) << what;
    // What a probe needs may be the next offer itself.
    for (int i = 0; i < 20; ++i) {
      rig_.run.step(*rig_.store);
      if (rig_.flush()) break;
      rig_.clock.advance(301);
    }
    rig_.expect_working(what);
    rig_.look(what);
  }
  StoreStatus status() const { return rig_.store->status(); }
  // Loads of as many prefixes as hang at a time, with all their reads under way.
  std::vector<LoadId> hang_loads() {
    rig_.files->inject(
        {.kind = Fault::Kind::kHang, .ops = Fault::kRead, .name = "seg-", .seconds = 600}
    );
    std::vector<LoadId> loads;
    for (const StoreRun::Prefix& prefix : rig_.run.prefixes()) {
      if (loads.size() == kHanging) break;
      if (const auto load = load_first(prefix)) loads.push_back(*load);
    }
    EXPECT_TRUE(wait_for([&] { return rig_.files->hanging() == static_cast<int>(loads.size()); }));
    return loads;
  }
  // Of a prefix's first record, if there is one.
  std::optional<LoadId> load_first(const StoreRun::Prefix& prefix) {
    const SpaceId space = rig_.store->open_space(StoreRun::spec(prefix.space));
    const Found found = rig_.store->find(space, prefix.keys);
    if (found.pages == 0) return std::nullopt;
    const auto pages = static_cast<std::size_t>(found.extents.front().pages);
    const auto ids = std::span(prefix.ids).first(pages * kPageTokens);
    Wanted wanted;
    wanted.key = prefix.keys[pages - 1];
    wanted.pages = found.extents.front().pages;
    wanted.ids.assign(ids.begin(), ids.end());
    return rig_.store->load(space, {wanted}, rig_.clock.monotonic_ns() + 30'000'000'000);
  }

  Rig rig_{11};
};

TEST_F(StoreFault, ReadsThatFailAreMisses) {
  rig_.files->inject({.ops = Fault::kRead, .name = "seg-"});
  LogLines lines;
  EXPECT_EQ(rig_.look("EIO"), 0);
  EXPECT_LE(lines.count(), kLinesMax);
  EXPECT_GT(status().io_errors, 0);
  EXPECT_GT(status().breaker_opened, 0);
  EXPECT_EQ(status().health, Health::kSick);
  EXPECT_NE(status().trouble, "");
  // Out of service: nobody waits for a disk that is known to be sick.
  const std::int64_t reads = rig_.files->counts().faults;
  rig_.look("EIO again");
  EXPECT_LE(rig_.files->counts().faults, reads + 3);
  expect_recovery("EIO");
  EXPECT_GE(rig_.look("after EIO") * 100, rig_.expected * 99) << rig_.tally.text();
}

TEST_F(StoreFault, OneUnreadablePlaceCostsOneRecord) {
  const std::vector<std::string> paths = rig_.files->paths(kFolder);
  const auto segment = std::ranges::find_if(paths, [](const std::string& path) {
    return path.find("seg-") != std::string::npos;
  });
  ASSERT_NE(segment, paths.end());
  rig_.files->inject({.ops = Fault::kRead, .name = *segment, .begin = 8192, .end = 8193});
  const std::int64_t came = rig_.look("bad block");
  EXPECT_LT(came, rig_.expected);
  EXPECT_GT(status().io_errors, 0);
  // One chain at most.
  EXPECT_GE(came, rig_.expected - 24);
}

TEST_F(StoreFault, NowAndThenAnError) {
  rig_.files->inject({.ops = Fault::kRead | Fault::kWrite | Fault::kSync, .probability = 0.05});
  LogLines lines;
  for (int i = 0; i < 10; ++i) {
    rig_.run.steps(*rig_.store, 10);
    rig_.look("5 % of everything fails");
    rig_.clock.advance(6);
  }
  EXPECT_LE(lines.count(), 5 * kLinesMax);
  EXPECT_EQ(rig_.run.loads().wrong + rig_.run.loads().unended + rig_.run.loads().silent, 0);
  EXPECT_GT(status().io_errors, 0);
  expect_recovery("5 %");
}

TEST_F(StoreFault, WritesThatFailAreNotFound) {
  rig_.files->inject({.ops = Fault::kWrite | Fault::kSync | Fault::kSpace});
  LogLines lines;
  const StopWatch watch;
  rig_.run.steps(*rig_.store, 60);
  EXPECT_FALSE(rig_.flush());
  EXPECT_LT(watch.seconds(), kHangsS);
  EXPECT_LE(lines.count(), kLinesMax);
  rig_.look("EIO on writes");
  EXPECT_GT(status().io_errors, 0);
  expect_recovery("EIO on writes");
}

TEST_F(StoreFault, ASyncThatFailsIsNotDurable) {
  rig_.files->inject({.ops = Fault::kSync});
  rig_.run.steps(*rig_.store, 20);
  EXPECT_FALSE(rig_.flush());
  rig_.look("sync fails");
  expect_recovery("sync fails");
  EXPECT_TRUE(rig_.flush());
}

TEST_F(StoreFault, ShortReadsAndWritesAreContinued) {
  rig_.files->inject({.kind = Fault::Kind::kShort, .ops = Fault::kRead, .probability = 0.2});
  rig_.files->inject({.kind = Fault::Kind::kShort, .ops = Fault::kWrite, .probability = 0.2});
  for (int i = 0; i < 5; ++i) {
    rig_.run.steps(*rig_.store, 20);
    rig_.look("short");
  }
  EXPECT_GT(rig_.files->counts().faults, 10);
  rig_.files->heal();
  (void)rig_.flush();
  EXPECT_GE(rig_.look("after short ones") * 100, rig_.expected * 99) << rig_.tally.text();
  rig_.expect_working("short");
}

TEST_F(StoreFault, AReadThatHangsCostsItsRequestOnly) {
  rig_.files->inject(
      {.kind = Fault::Kind::kHang, .ops = Fault::kRead, .name = "seg-", .seconds = 600}
  );
  const StoreRun::Prefix& prefix = rig_.run.prefixes().front();
  const SpaceId space = rig_.store->open_space(StoreRun::spec(prefix.space));
  const std::optional<LoadId> load = load_first(prefix);
  ASSERT_TRUE(load);
  ASSERT_TRUE(wait_for([&] { return rig_.files->hanging() > 0; }));
  // The engine thread goes on.
  const StopWatch watch;
  for (int i = 0; i < 100; ++i) {
    (void)rig_.store->find(space, prefix.keys);
    (void)rig_.store->contains(space, prefix.keys[0]);
    rig_.store->touch(space, prefix.keys, 1, TtlClass::kHour, 0);
    (void)rig_.store->load_seconds(1 << 20);
    (void)status();
  }
  EXPECT_LT(watch.seconds(), kHangsS);  // the read hangs for longer
  rig_.clock.advance(31);
  MissReason why = MissReason::kNone;
  bool ended = false;
  EXPECT_TRUE(wait_for([&] {
    rig_.store->poll(1 << 20, [&](const Piece& piece) {
      if (piece.load != *load || !piece.is_last) return;
      ended = true;
      why = piece.why;
      EXPECT_TRUE(piece.payload.empty());
    });
    return ended;
  }));
  EXPECT_EQ(why, MissReason::kSlow);
  EXPECT_GT(status().reads_slow, 0);
  expect_recovery("hang");
  EXPECT_GE(rig_.look("after the hang") * 100, rig_.expected * 99) << rig_.tally.text();
}

TEST_F(StoreFault, ClosesWhileAReadHangs) {
  rig_.files->inject(
      {.kind = Fault::Kind::kHang, .ops = Fault::kRead, .name = "seg-", .seconds = 600}
  );
  ASSERT_TRUE(load_first(rig_.run.prefixes().front()));
  ASSERT_TRUE(wait_for([&] { return rig_.files->hanging() > 0; }));
  const StopWatch watch;
  rig_.store.reset();
  EXPECT_LT(watch.seconds(), kHangsS);
  rig_.files->heal();
  ASSERT_TRUE(wait_for([&] { return rig_.files->hanging() == 0; }));
}

TEST_F(StoreFault, ASlowDiskIsOnlySlow) {
  rig_.files->inject(
      {.kind = Fault::Kind::kSlow, .ops = Fault::kRead | Fault::kWrite, .seconds = 0.002}
  );
  rig_.run.steps(*rig_.store, 20);
  EXPECT_EQ(rig_.look("slow"), rig_.expected) << rig_.tally.text();
}

TEST_F(StoreFault, AFullDiskIsReadFurther) {
  rig_.files->set_capacity(rig_.files->disk_bytes() + (16 << 10));
  LogLines lines;
  const StopWatch watch;
  for (int i = 0; i < 6; ++i) {
    rig_.run.steps(*rig_.store, 30);
    rig_.clock.advance(2);
  }
  (void)rig_.flush();
  EXPECT_LT(watch.seconds(), kHangsS);
  EXPECT_LE(lines.count(), kLinesMax);
  EXPECT_GT(status().writes_refused_room + status().io_errors + status().segments_reclaimed, 0);
  // Its own older segments may have given way to new records; what is found is right.
  rig_.look("full");
  rig_.files->set_capacity(std::int64_t{1} << 40);
  expect_recovery("full");
}

TEST_F(StoreFault, OpensOnAFullDisk) {
  rig_.store.reset();
  rig_.files->set_capacity(rig_.files->disk_bytes());
  LogLines lines;
  ASSERT_TRUE(rig_.open()) << rig_.open_error.message;
  EXPECT_GE(rig_.look("opened full") * 100, rig_.expected * 99) << rig_.tally.text();
  rig_.run.steps(*rig_.store, 20);
  EXPECT_LE(lines.count(), kLinesMax);
  rig_.look("opened full, written to");
}

TEST_F(StoreFault, TheFreeFloorHolds) {
  rig_.store.reset();
  const std::int64_t floor = 1 << 20;
  rig_.config.free_floor_bytes = floor;
  rig_.files->set_capacity(rig_.files->disk_bytes() + floor + (300 << 10));
  ASSERT_TRUE(rig_.open()) << rig_.open_error.message;
  for (int i = 0; i < 5; ++i) {
    rig_.run.steps(*rig_.store, 40);
    (void)rig_.flush();
    EXPECT_GE(rig_.files->space(kFolder)->free_bytes, floor) << i;
  }
  EXPECT_GT(status().writes_refused_room + status().segments_reclaimed, 0);
  rig_.look("floor");
  rig_.files->set_capacity(std::int64_t{1} << 40);
  expect_recovery("floor");
}

TEST(StoreFloor, ARefusalIsCountedAndEndsWithTheCause) {
  Rig rig(12);
  rig.config.free_floor_bytes = 64 << 20;
  rig.files->set_capacity(3 << 20);
  ASSERT_TRUE(rig.open()) << rig.open_error.message;
  rig.run.steps(*rig.store, 10);
  EXPECT_TRUE(wait_for([&] { return rig.store->status().writes_refused_room > 0; }));
  EXPECT_EQ(rig.store->status().records_written, 0);
  EXPECT_EQ(rig.store->status().io_errors, 0);
  EXPECT_NE(rig.store->status().trouble, "");
  rig.files->set_capacity(std::int64_t{1} << 40);
  rig.clock.advance(1);
  rig.run.steps(*rig.store, 10);
  (void)rig.flush();
  rig.expect_working("floor");
}

TEST_F(StoreFault, TheCapHolds) {
  rig_.store.reset();
  rig_.config.bytes_max = 2 << 20;
  rig_.config.segment_bytes = 64 << 10;
  ASSERT_TRUE(rig_.open()) << rig_.open_error.message;
  for (int i = 0; i < 12; ++i) {
    rig_.run.steps(*rig_.store, 40);
    EXPECT_LE(rig_.files->disk_bytes(), rig_.config.bytes_max) << i;
  }
  EXPECT_GT(status().segments_reclaimed, 0);
  rig_.look("cap");
  rig_.expect_working("cap");
}

TEST_F(StoreFault, ReadOnlyRemount) {
  rig_.files->read_only_from(rig_.files->events() + 1);
  LogLines lines;
  rig_.run.steps(*rig_.store, 40);
  rig_.clock.advance(2);
  EXPECT_FALSE(rig_.flush());
  EXPECT_LE(lines.count(), kLinesMax);
  EXPECT_GE(rig_.look("read-only") * 100, rig_.expected * 99) << rig_.tally.text();
  EXPECT_EQ(status().health, Health::kReadOnly);
  rig_.files->read_only_from(0);
  expect_recovery("read-only");
}

// The clock goes on while nobody looks: a machine that slept, a process that was stopped.
TEST_F(StoreFault, AClockThatJumpsMakesNoDiskSick) {
  const std::vector<LoadId> loads = hang_loads();
  rig_.clock.advance(301);
  ASSERT_TRUE(wait_for([&] { return status().reads_slow >= std::ssize(loads); }));  // it has looked
  rig_.files->heal();
  ASSERT_TRUE(wait_for([&] { return rig_.files->hanging() == 0; }));
  EXPECT_EQ(status().breaker_opened, 0);
  EXPECT_EQ(status().health, Health::kOk);
  EXPECT_LT(status().read_latency_s, 1);
  EXPECT_GE(rig_.look("after a jump") * 100, rig_.expected * 99) << rig_.tally.text();
}

// One whose requests do not end is, as time passes.
TEST_F(StoreFault, ADiskThatHangsIsSick) {
  ASSERT_GE(hang_loads().size(), std::size_t{Breaker::kFailures});
  for (int i = 0; i < 10'000 && status().health != Health::kSick; ++i) {
    rig_.clock.advance(0.1);
    std::this_thread::sleep_for(std::chrono::milliseconds(4));
  }
  EXPECT_EQ(status().health, Health::kSick);
  EXPECT_EQ(status().breaker_opened, 1);
  expect_recovery("hanging reads");
}

// A server must end when it is told to, however its disk is.
TEST_F(StoreFault, ClosesOnADiskThatTakesNothing) {
  for (const int error : {EROFS, ENOSPC, EIO}) {
    SCOPED_TRACE(error);
    rig_.run.steps(*rig_.store, 10);
    rig_.files->inject({.ops = Fault::kChanges, .error = error});
    rig_.run.steps(*rig_.store, 10);
    const StopWatch watch;
    rig_.while_time_passes([&] {
      rig_.store.reset();
      return 0;
    });
    EXPECT_LT(watch.seconds(), kHangsS);
    rig_.files->heal();
    ASSERT_TRUE(rig_.open()) << rig_.open_error.message;
    rig_.look("opened again");
  }
}

TEST_F(StoreFault, OpensReadOnlyOnAReadOnlyDisk) {
  rig_.store.reset();
  rig_.files->read_only_from(1);
  const std::int64_t events = rig_.files->events();
  rig_.config.read_only = true;
  ASSERT_TRUE(rig_.open()) << rig_.open_error.message;
  EXPECT_EQ(rig_.look("opened read-only"), rig_.expected) << rig_.tally.text();
  rig_.run.steps(*rig_.store, 20);
  rig_.store.reset();
  EXPECT_EQ(rig_.files->events(), events);
}

TEST_F(StoreFault, TheSecondServerIsRefusedOrReadsOnly) {
  auto second = DiskStore::open(rig_.config, *rig_.files, rig_.clock);
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, Code::kUnavailable);
  StoreConfig config = rig_.config;
  config.read_only = true;
  second = DiskStore::open(config, *rig_.files, rig_.clock);
  ASSERT_TRUE(second) << second.error().message;
  // The first one writes and reclaims on; the second one finds or misses, and never lies.
  rig_.run.steps(*rig_.store, 60);
  ASSERT_TRUE(rig_.flush());
  StoreTally tally;
  const auto own = std::move(rig_.store);
  rig_.store = second.take();
  rig_.run.bind(*rig_.store, rig_.store->secret());
  rig_.look("second, read-only");
  EXPECT_GT(rig_.tally.hits, 0);
}

TEST_F(StoreFault, ClocksJump) {
  constexpr double kYear = 365 * 86400.0;
  for (const double jump : {-3 * kYear, 5 * kYear, -2 * kYear, 600.0, -600.0}) {
    SCOPED_TRACE(jump);
    rig_.clock.jump_wall(jump);
    rig_.clock.advance(2);
    rig_.run.steps(*rig_.store, 20);
    ASSERT_TRUE(rig_.flush());
    rig_.look("jump");
    rig_.expect_working("jump");
    rig_.run.mark_durable();
    rig_.expected = rig_.run.expect_durable(*rig_.store);
    rig_.store.reset();
    ASSERT_TRUE(rig_.open()) << rig_.open_error.message;
    EXPECT_GE(rig_.look("opened after a jump") * 100, rig_.expected * 99) << rig_.tally.text();
  }
}

TEST_F(StoreFault, AClockThatWentBackKeepsWhatIsThere) {
  rig_.clock.jump_wall(-5 * 365 * 86400.0);
  rig_.clock.advance(2);
  EXPECT_EQ(rig_.look("back"), rig_.expected) << rig_.tally.text();
}

TEST_F(StoreFault, AClockThatWentForwardExpiresWithAReason) {
  rig_.clock.jump_wall(5 * 365 * 86400.0);
  rig_.clock.advance(2);
  EXPECT_EQ(rig_.look("forward"), 0);
  EXPECT_GT(rig_.tally.missed(MissReason::kExpired), 0) << rig_.tally.text();
}

}  // namespace
}  // namespace artery::kvstore::faults
