// A store's process dies, or the power goes, at every event of a recorded run: what was durable is
// found again, whatever is found is right, and the store goes on.
//
// ARTERY_SOAK_SECONDS makes it go on with other seeds for so long; ARTERY_SEED sets the first.

#include <fmt/format.h>

#include <atomic>
#include <cstdlib>
#include <thread>
#include <vector>

#include "base/log.h"
#include "kvstore/store_fault_rig_testing.h"

namespace artery::kvstore::faults {
namespace {

constexpr int kSteps = 220;
constexpr int kFlushEvery = 25;
constexpr int kWorkers = 8;

std::int64_t number_from_environment(const char* name, std::int64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::atoll(text);
}

struct Course {
  std::string name;
  StoreConfig config;
  std::int64_t slack = 1;  // durable records that one crash may cost
  double share = 0.99;     // of all durable ones that have to come
  std::vector<testing::Fault> faults = {};
};

// Much room; and so little that segments are reclaimed all the time.
Course roomy() { return {"roomy", small_config()}; }
Course tight() {
  Course course{"tight", small_config()};
  course.config.bytes_max = 3 << 20;
  course.config.segment_bytes = 64 << 10;
  return course;
}
// Syncs of segments take longer than a reclaim: what was copied forward is not safe yet when the
// segment that it came from could go.
Course late() {
  Course course = tight();
  course.name = "late";
  testing::Fault fault;
  fault.kind = testing::Fault::Kind::kSlow;
  fault.ops = testing::Fault::kSync;
  fault.name = "seg-";
  fault.probability = 1;
  fault.seconds = 0.01;
  course.faults = {fault};
  return course;
}
// So little for each tenant that records go for it all the time. A use of the last second is lost
// with it, and then another record goes.
Course bounded() {
  Course course{"bounded", small_config(), 8, 0.97};
  course.config.quotas = {{"", 1 << 20}, {"anna", 256 << 10}};
  return course;
}

// Plays until the end or the crash.
void play(Rig& rig) {
  if (!rig.open()) return;
  for (int i = 1; i <= kSteps && !rig.files->crashed(); ++i) {
    rig.run.step(*rig.store);
    if (i % kFlushEvery == 0 && rig.flush()) rig.run.mark_durable();
    if (i % (3 * kFlushEvery) == 0)
      (void)rig.while_time_passes([&] { return rig.store->collect(); });
  }
}

struct Outcome {
  std::atomic<std::int64_t> expected = 0, came = 0, crashes = 0;
};

// One crash at event `event` and what is found afterwards.
void crash_and_look(
    const Course& course, std::uint64_t seed, std::int64_t event, Crash crash, Outcome& outcome
) {
  Rig rig(seed, course.config);
  rig.files->crash_at(event);
  for (const testing::Fault& fault : course.faults) rig.files->inject(fault);
  play(rig);
  // The run may have ended before: then the next event it is, and nothing is durable from here on.
  if (!rig.files->crashed()) rig.files->crash_at(rig.files->events() + 1);
  const std::string where = fmt::format(
      "{} seed {} {} at {}",
      course.name,
      seed,
      crash == Crash::kPower ? "power loss" : "kill",
      rig.files->crash_point()
  );
  SCOPED_TRACE(where);
  if (rig.store != nullptr) rig.expected = rig.run.expect_durable(*rig.store);
  const StopWatch ending;
  rig.store.reset();  // the threads of the dead process; nothing of theirs reaches the disk
  EXPECT_LT(ending.seconds(), kHangsS);
  const auto dead = std::move(rig.files);
  rig.files = dead->after_crash(crash, seed + static_cast<std::uint64_t>(event));
  rig.clock.advance(3);
  // What a crash left half done may put a full store over its cap: not what is asked here.
  rig.config.bytes_max += 1 << 20;
  ASSERT_TRUE(rig.open()) << rig.open_error.message;
  for (const TenantStatus& tenant : rig.store->status().tenants)
    EXPECT_TRUE(tenant.quota_bytes == 0 || tenant.bytes <= tenant.quota_bytes) << tenant.tenant;
  std::int64_t came = rig.look(where);
  // A torn record that was not durable may hide a durable shorter one, until it was found out.
  if (rig.tally.missed(MissReason::kChecksum) > 0) came = std::max(came, rig.look(where));
  EXPECT_GE(came, rig.expected - course.slack) << rig.tally.text();
  outcome.expected += rig.expected;
  outcome.came += came;
  ++outcome.crashes;
  rig.expect_working(where);
}

std::int64_t events_of(const Course& course, std::uint64_t seed) {
  Rig rig(seed, course.config);
  play(rig);
  EXPECT_GT(rig.run.taken(), kSteps / 2);
  rig.store.reset();
  return rig.files->events();
}

// `samples` crashes spread over the run, or all.
void crash_everywhere(const Course& course, Crash crash, std::int64_t samples, std::uint64_t seed) {
  const std::int64_t events = events_of(course, seed);
  ASSERT_GT(events, 100);
  testing::SeqRandom random(seed);
  const std::int64_t stride = std::max<std::int64_t>(1, events / samples);
  std::vector<std::int64_t> points;
  for (std::int64_t at = 1; at <= events; at += stride)
    points.push_back(at + random.between(0, stride - 1));
  // Side by side, for most of it is waiting for threads of dead stores.
  Outcome outcome;
  std::atomic<std::size_t> next = 0;
  std::vector<std::thread> workers;
  for (int i = 0; i < kWorkers; ++i) {
    workers.emplace_back([&] {
      for (std::size_t at = next++; at < points.size(); at = next++)
        crash_and_look(course, seed, points[at], crash, outcome);
    });
  }
  for (std::thread& worker : workers) worker.join();
  fmt::print(
      "{} {}: seed {}, {} of {} events, {} of {} durable records hit\n",
      course.name,
      crash == Crash::kPower ? "power" : "kill",
      seed,
      outcome.crashes.load(),
      events,
      outcome.came.load(),
      outcome.expected.load()
  );
  EXPECT_GT(outcome.expected, outcome.crashes * 10);
  EXPECT_GE(
      static_cast<double>(outcome.came), course.share * static_cast<double>(outcome.expected)
  );
}

class StoreCrash : public ::testing::Test {
 protected:
  void SetUp() override { set_log_level(LogLevel::kOff); }
  void TearDown() override { set_log_level(LogLevel::kInfo); }
  void sample(const Course& course, Crash crash) { crash_everywhere(course, crash, 25, seed_); }
  const std::uint64_t seed_ = static_cast<std::uint64_t>(number_from_environment("ARTERY_SEED", 1));
};

TEST_F(StoreCrash, KilledAnywhere) { sample(roomy(), Crash::kProcess); }
TEST_F(StoreCrash, KilledAnywhereWhileReclaiming) { sample(tight(), Crash::kProcess); }
TEST_F(StoreCrash, PowerLostAnywhere) { sample(roomy(), Crash::kPower); }
TEST_F(StoreCrash, PowerLostAnywhereWhileReclaiming) { sample(tight(), Crash::kPower); }
TEST_F(StoreCrash, KilledAnywhereWhileCopiesAreLate) { sample(late(), Crash::kProcess); }
TEST_F(StoreCrash, PowerLostAnywhereWhileCopiesAreLate) { sample(late(), Crash::kPower); }
TEST_F(StoreCrash, KilledAnywhereWithQuotas) { sample(bounded(), Crash::kProcess); }
TEST_F(StoreCrash, PowerLostAnywhereWithQuotas) { sample(bounded(), Crash::kPower); }

// No public sign tells that a round is over; half a second without any event does.
void wait_until_quiet(const Rig& rig) {
  StopWatch quiet;
  std::int64_t seen = rig.files->events();
  wait_for([&] {
    const std::int64_t before = std::exchange(seen, rig.files->events());
    if (seen != before) quiet = StopWatch();
    return quiet.seconds() > 0.5;
  });
}

// kill -9 without a word before: all but the last second is there.
TEST_F(StoreCrash, LosesOneSecondAtMost) {
  Rig rig(seed_);
  ASSERT_TRUE(rig.open());
  rig.run.steps(*rig.store, kSteps);
  ASSERT_TRUE(wait_for([&] { return rig.store->status().writes_queued == 0; }));
  rig.expected = rig.run.expect_all(*rig.store);
  // A second passes, and the store thread sees it.
  const std::int64_t before = rig.files->events();
  rig.clock.advance(1.1);
  ASSERT_TRUE(wait_for([&] { return rig.files->events() > before; }));
  wait_until_quiet(rig);
  rig.files->crash_at(rig.files->events() + 1);
  rig.store.reset();
  const auto dead = std::move(rig.files);
  for (const Crash crash : {Crash::kProcess, Crash::kPower}) {
    rig.files = dead->after_crash(crash, seed_);
    ASSERT_TRUE(rig.open()) << rig.open_error.message;
    const std::int64_t came = rig.look("last second");
    EXPECT_GE(static_cast<double>(came), 0.99 * static_cast<double>(rig.expected));
    rig.store.reset();
  }
}

// Crash after crash on one store, as a machine with a bad supply has them.
TEST_F(StoreCrash, ManyInARow) {
  Rig rig(seed_);
  testing::SeqRandom random(seed_);
  for (int round = 0; round < 12; ++round) {
    SCOPED_TRACE(fmt::format("round {} {}", round, rig.files->crash_point()));
    ASSERT_TRUE(rig.open()) << rig.open_error.message;
    EXPECT_GE(rig.look("after a crash"), rig.expected - 1) << rig.tally.text();
    rig.run.steps(*rig.store, 15);
    ASSERT_TRUE(rig.flush());
    rig.run.mark_durable();
    rig.files->crash_at(rig.files->events() + random.between(1, 60));
    for (int i = 0; i < 60 && !rig.files->crashed(); ++i) {
      rig.run.step(*rig.store);
      if (i % 20 == 19) (void)rig.flush();
    }
    rig.expected = rig.run.expect_durable(*rig.store);
    rig.store.reset();
    const auto dead = std::move(rig.files);
    const Crash crash = random.chance(0.5) ? Crash::kPower : Crash::kProcess;
    rig.files = dead->after_crash(crash, random.next());
    rig.clock.advance(random.unit() * 5);
  }
}

TEST_F(StoreCrash, Soak) {
  const std::int64_t seconds = number_from_environment("ARTERY_SOAK_SECONDS", 0);
  if (seconds <= 0) GTEST_SKIP() << "on demand: ARTERY_SOAK_SECONDS=3600";
  const StopWatch watch;
  for (std::uint64_t seed = seed_; watch.seconds() < static_cast<double>(seconds); ++seed) {
    for (const Course& course : {roomy(), tight(), late(), bounded()}) {
      for (const Crash crash : {Crash::kProcess, Crash::kPower})
        crash_everywhere(course, crash, 200, seed);
    }
    if (HasFailure()) FAIL() << "repeat with ARTERY_SEED=" << seed;
  }
}

}  // namespace
}  // namespace artery::kvstore::faults
