// Quotas and promises of a whole store on a real folder: over restarts, while segments are given
// up, and when a quota changes.

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <map>
#include <set>

#include "kvstore/store_fault_rig_testing.h"
#include "kvstore/store_testing.h"
#include "kvstore/survey.h"
#include "testing/fault_file_system.h"
#include "testing/seq_random.h"
#include "testing/sim_clock.h"

namespace artery::kvstore {
namespace {

using namespace store_testing;

constexpr std::int64_t kRecordBytes = stored_bytes(kRecordPages * 16, kRecordPages* kPageBytes);
constexpr int kPromptPages = 2 * kRecordPages;

class StoreQuota : public ::testing::Test {
 protected:
  StoreConfig config(std::int64_t quota_records) const {
    StoreConfig config = small_config(folder_.path());
    if (quota_records > 0) config.quotas["acme"] = quota_records * kRecordBytes;
    return config;
  }
  void open(const StoreConfig& config) {
    store_.reset();
    store_ = open_store(config, *use_);
    ASSERT_NE(store_, nullptr);
    space_ = store_->open_space(spec_of("acme"));
  }
  // What a kill -9 leaves: the folder as it is, without a word of the store's.
  void open_as_killed(const StoreConfig& config) {
    const std::string copy = folder_.path() + ".killed";
    std::filesystem::remove_all(copy);
    std::filesystem::copy(folder_.path(), copy, std::filesystem::copy_options::recursive);
    store_.reset();
    std::filesystem::remove_all(folder_.path());
    std::filesystem::rename(copy, folder_.path());
    open(config);
  }
  Prompt prompt(int seed, int pages = kPromptPages) const {
    return Prompt(*store_, seed, pages, "acme");
  }
  void offer(int seed, std::int64_t until_s = 0, TtlClass ttl = TtlClass::kHour) {
    EXPECT_EQ(offer_all(*store_, space_, prompt(seed), ttl, until_s).refused, 0) << seed;
  }
  TenantStatus acme() const {
    for (const TenantStatus& tenant : store_->status().tenants)
      if (tenant.tenant == "acme") return tenant;
    return {};
  }
  bool has(int seed) const { return store_->find(space_, prompt(seed).keys).pages == kPromptPages; }
  // Of prompts [0, count), which are whole.
  std::set<int> whole(int count) const {
    std::set<int> out;
    for (int seed = 0; seed < count; ++seed)
      if (has(seed)) out.insert(seed);
    return out;
  }
  static std::set<int> range(int first, int end) {
    std::set<int> out;
    for (int i = first; i < end; ++i) out.insert(i);
    return out;
  }

  // What is under way is over before: otherwise the disk would be a slow one.
  void pass(double seconds) {
    ASSERT_TRUE(store_->flush());
    clock_.advance(seconds);
  }

  TempFolder folder_;
  testing::SimClock clock_;
  const Clock* use_ = &clock_;
  std::unique_ptr<DiskStore> store_;
  SpaceId space_ = 0;
};

TEST_F(StoreQuota, WhatWentForItStaysAway) {
  constexpr int kPrompts = 280, kQuota = 40;
  open(config(kQuota));
  const SpaceId other = store_->open_space(spec_of());
  const Prompt others(*store_, 7, 40);
  offer_all(*store_, other, others);
  for (int seed = 0; seed < kPrompts; ++seed) {
    offer(seed);
    if (seed % 20 == 19) pass(1);
    ASSERT_LE(acme().bytes, kQuota * kRecordBytes);
  }
  const std::set<int> newest = range(kPrompts - kQuota / 2, kPrompts);
  EXPECT_EQ(whole(kPrompts), newest);
  EXPECT_EQ(store_->find(space_, prompt(0).keys).miss, MissReason::kTenant);
  ASSERT_TRUE(store_->flush());
  EXPECT_NE(folder_.names("journal-"), std::vector<std::string>{"journal-00000001.akj"})
      << "it was begun anew: what went has to be said again";
  // Without a quota that would do it again: the records themselves are gone. After a kill, after
  // an end in order, and after a kill of that one.
  for (const bool kill : {true, false, true}) {
    kill ? open_as_killed(config(0)) : open(config(0));
    EXPECT_EQ(acme().bytes, kQuota * kRecordBytes);
    EXPECT_EQ(whole(kPrompts), newest);
    for (const int seed : newest) expect_whole(*store_, space_, prompt(seed));
    expect_whole(*store_, store_->open_space(spec_of()), others);
  }
  const auto verified =
      verify_store(folder_.path(), system_file_system(), {.now_s = clock_.unix_ms() / 1000});
  ASSERT_TRUE(verified);
  EXPECT_TRUE(verified->is_clean());
  // A smaller one is kept from the start on.
  open_as_killed(config(10));
  EXPECT_EQ(acme().bytes, 10 * kRecordBytes);
  EXPECT_EQ(whole(kPrompts).size(), 5u);
  ASSERT_TRUE(store_->flush());
  open_as_killed(config(0));
  EXPECT_EQ(acme().bytes, 10 * kRecordBytes);
}

// Killed before a journal of what went: the quota sees to it at the start.
TEST_F(StoreQuota, HoldsAfterAKillWithoutAFlush) {
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    open(config(12));
    for (int seed = 0; seed < 30; ++seed) {
      offer(seed);
      if (seed == 26) pass(1);
    }
    for (int i = 0; i < 5000 && store_->status().records_written < 60; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    ::_exit(HasFailure() ? 1 : 0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_EQ(status, 0);
  open(config(12));
  EXPECT_LE(acme().bytes, 12 * kRecordBytes);
  EXPECT_EQ(whole(30).size(), 6u) << "none is kept in part";
  for (const int seed : {27, 28, 29}) EXPECT_TRUE(has(seed)) << seed;
  offer(30);
  EXPECT_TRUE(store_->flush());
  EXPECT_TRUE(has(30));
  EXPECT_LE(acme().bytes, 12 * kRecordBytes);
}

// Given up and computed again within a second: both lie in one segment, and one word is of both.
TEST_F(StoreQuota, WhatCameBackStays) {
  open(config(4));
  ASSERT_TRUE(store_->flush());  // the next round of the journal is the one asked for
  for (const int seed : {1, 2, 3, 1}) offer(seed);
  ASSERT_TRUE(store_->flush());
  EXPECT_EQ(whole(5), (std::set<int>{1, 3}));
  for (int life = 0; life < 2; ++life) {
    open_as_killed(config(0));
    EXPECT_EQ(whole(5), (std::set<int>{1, 3})) << life;
    expect_whole(*store_, space_, prompt(1));
  }
  open(config(0));
  EXPECT_EQ(whole(5), (std::set<int>{1, 3}));
}

TEST_F(StoreQuota, ALowerOneFreesAtOnce) {
  open(config(0));
  for (int seed = 0; seed < 100; ++seed) {
    offer(seed);
    if (seed % 10 == 9) pass(1);
  }
  const std::int64_t folder_before = folder_.bytes();
  EXPECT_EQ(acme().bytes, 200 * kRecordBytes);
  store_->set_quotas({{"acme", 100 * kRecordBytes}, {"nobody", 5}});
  const auto falls_to = [&](std::int64_t records) {
    for (int i = 0; i < 10'000 && acme().bytes > records * kRecordBytes; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return acme().bytes == records * kRecordBytes;
  };
  EXPECT_TRUE(falls_to(100));
  EXPECT_EQ(whole(100), range(50, 100));
  store_->set_quotas({{"acme", 20 * kRecordBytes}});
  const auto freed = store_->collect();
  ASSERT_TRUE(freed);
  EXPECT_EQ(acme().bytes, 20 * kRecordBytes) << "`kv gc` waits for it";
  EXPECT_EQ(whole(100), range(90, 100));
  EXPECT_GT(*freed, 0);
  EXPECT_LT(folder_.bytes(), folder_before);
  EXPECT_EQ(acme().quota_bytes, 20 * kRecordBytes);
  // Promised records stay, and no more are promised than half of it.
  EXPECT_EQ(store_->guarantee(space_, 11 * kRecordBytes, TtlClass::kAgent), 0);
  const std::int64_t until = store_->guarantee(space_, 10 * kRecordBytes, TtlClass::kAgent);
  ASSERT_GT(until, 0);
  for (int seed = 90; seed < 95; ++seed)
    store_->touch(space_, prompt(seed).keys, kPromptPages, TtlClass::kHour, until);
  store_->set_quotas({{"acme", 2 * kRecordBytes}});
  EXPECT_TRUE(falls_to(10));
  EXPECT_EQ(whole(100), range(90, 95));
  ASSERT_TRUE(store_->flush());
  open_as_killed(config(2));
  EXPECT_EQ(whole(100), range(90, 95));
  clock_.advance(static_cast<double>(until - clock_.unix_ms() / 1000 + 2));
  EXPECT_TRUE(falls_to(0) || falls_to(2)) << "when the promise is over";
}

// A record that is there already and is offered with a promise.
TEST_F(StoreQuota, APromiseCoversWhatWasThere) {
  open(config(0));
  offer(1, 0, TtlClass::kTenMinutes);
  offer(2, 0, TtlClass::kTenMinutes);
  ASSERT_TRUE(store_->flush());
  clock_.advance(60);
  const std::int64_t until = store_->guarantee(space_, 2 * kRecordBytes, TtlClass::kAgent);
  ASSERT_GT(until, 0);
  EXPECT_EQ(offer_all(*store_, space_, prompt(1), TtlClass::kTenMinutes, until).known, 2);
  ASSERT_TRUE(store_->flush());
  open_as_killed(config(0));
  clock_.advance(3600 * 71);
  EXPECT_EQ(whole(3), std::set<int>{1});
}

// Promises come while segments are given up and copied, from the engine's thread. Whatever was
// promised is there, whole, to the end, over kills.
TEST_F(StoreQuota, APromiseIsKeptWheneverItComes) {
  use_ = &system_clock();
  StoreConfig small = config(0);
  small.bytes_max = 4 << 20;
  testing::SeqRandom random(1);
  std::set<int> promised;
  int next = 0;
  for (int life = 0; life < 3; ++life) {
    life == 0 ? open(small) : open_as_killed(small);
    for (int i = 0; i < 140; ++i) {
      offer(next++);
      if (i % 9 != 0) continue;
      // Of those that are on their way out.
      const int seed = std::max<int>(0, next - 1 - static_cast<int>(random.between(20, 100)));
      if (!has(seed)) continue;
      const std::int64_t given = store_->guarantee(space_, 2 * kRecordBytes, TtlClass::kAgent);
      if (given == 0) continue;
      store_->touch(space_, prompt(seed).keys, kPromptPages, TtlClass::kHour, given);
      offer(seed, given);  // as the engine does: what went between the look and the touch
      promised.insert(seed);
    }
    ASSERT_TRUE(store_->collect());  // no file goes while it is copied
    ASSERT_TRUE(store_->flush());
    for (const int seed : promised) EXPECT_TRUE(has(seed)) << "life " << life << ", " << seed;
  }
  EXPECT_GT(promised.size(), 10u);
  EXPECT_GT(store_->status().segments_reclaimed, 10);
  for (const int seed : promised) expect_whole(*store_, space_, prompt(seed));
}

// On a disk that stands still when it is told to: what is promised while a segment is being copied,
// of what is to be dropped and of what is on its way.
TEST(StoreReclaim, KeepsWhatIsPromisedMeanwhile) {
  using faults::wait_for;
  using testing::Fault;
  auto files = std::make_unique<testing::FaultFileSystem>();
  testing::SimClock clock;
  StoreConfig config = small_config("/data/store");
  config.bytes_max = 2 << 20;
  config.io = StoreConfig::Io::kThreads;
  auto opened = DiskStore::open(config, *files, clock);
  ASSERT_TRUE(opened) << opened.error().message;
  std::unique_ptr<DiskStore> store = opened.take();
  SpaceId space = store->open_space(spec_of());
  const auto prompt = [&](int seed) { return Prompt(*store, seed, kPromptPages); };
  const auto has = [&](int seed) {
    return store->find(space, prompt(seed).keys).pages == kPromptPages;
  };
  const auto touch = [&](int seed, std::int64_t until) {
    store->touch(space, prompt(seed).keys, kPromptPages, TtlClass::kHour, until);
  };
  // Until the first segment is chosen, with prompts 0 to 2: of it, 1 is to be copied.
  files->inject({.kind = Fault::Kind::kHang, .ops = Fault::kRead, .name = "seg-", .seconds = 0.5});
  for (int seed = 0; seed < 200; ++seed) {
    offer_all(*store, space, prompt(seed));
    ASSERT_TRUE(store->flush());
    if (wait_for([&] { return files->hanging() > 0; }, 0.01)) break;
    clock.advance(10);
    if (seed > 0) touch(1, 0);
  }
  // Not the first block of a new segment, which is written before anything else goes on.
  files->inject({
      .kind = Fault::Kind::kHang,
      .ops = Fault::kWrite,
      .name = "seg-",
      .begin = kBlock,
      .seconds = 60,
  });
  ASSERT_TRUE(wait_for([&] { return files->hanging() > 0; }));
  const std::int64_t until = store->guarantee(space, 6 * kRecordBytes, TtlClass::kAgent);
  ASSERT_GT(until, 0);
  ASSERT_TRUE(has(0) && has(1) && has(2));
  touch(0, until);
  touch(2, until);
  std::this_thread::sleep_for(std::chrono::milliseconds(800)
  );  // reads end, the copies' writes hang
  ASSERT_TRUE(wait_for([&] { return files->hanging() > 0; }));
  touch(1, until);
  ASSERT_TRUE(store->flush()) << "the promise is journaled before the copy";
  files->heal();
  ASSERT_TRUE(wait_for([&] { return store->status().segments_reclaimed > 0; }));
  EXPECT_GE(store->status().records_copied, 6);
  for (const int seed : {0, 1, 2}) expect_whole(*store, space, prompt(seed));
  ASSERT_TRUE(store->flush());
  files->crash_at(files->events() + 1);
  store.reset();
  const auto dead = std::move(files);
  files = dead->after_crash(testing::Crash::kProcess, 1);
  clock.advance(7200);
  opened = DiskStore::open(config, *files, clock);
  ASSERT_TRUE(opened) << opened.error().message;
  store = opened.take();
  space = store->open_space(spec_of());
  for (const int seed : {0, 1, 2}) EXPECT_TRUE(has(seed)) << seed;
  EXPECT_FALSE(has(5));
}

}  // namespace
}  // namespace artery::kvstore
