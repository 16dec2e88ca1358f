// Windows of sliding-window layers in the store: after a restart a hit goes on from the window that
// comes from there, and the answer is that of the request alone, whatever happens to the records.

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "engine/engine_store_rig_testing.h"
#include "engine/window_link.h"

namespace artery::engine {
namespace {

using testing::MemRecordStore;

class EngineWindowStore : public StoreRig {
 protected:
  EngineWindowStore() {
    load_.layers = "wgwg";  // a row depends on 2 * 19 rows before it
    load_.window = 20;      // 2 pages before a boundary
    load_.saved_pages = 40;
    load_.config.windows_in_store = true;
    restart();
  }
};

TEST_F(EngineWindowStore, ARestartGoesOnFromTheStoredWindow) {
  Request request = prompt_of(100);
  request.ttl_class = kvstore::TtlClass::kAgent;
  ask(request);
  ASSERT_EQ(windows().size(), 1u);  // the prompt's end; the output's lies in the same page
  const auto record = windows()[0];
  const ChainKey boundary = chain_keys(chain_root("secret", ""), request.prompt)[5];
  EXPECT_EQ(record.facts.parent, boundary);
  EXPECT_EQ(record.facts.key, window_record_key(boundary, 0));
  EXPECT_EQ(record.facts.pages, 2);
  EXPECT_EQ(record.facts.ttl, kvstore::TtlClass::kHour);  // no longer than that
  EXPECT_TRUE(std::equal(record.ids.begin(), record.ids.end(), request.prompt.begin() + 80));
  EXPECT_EQ(rig_->status().windows_stored, 1);
  for (int again = 0; again < 2; ++again) {
    restart();
    EXPECT_EQ(ask(request).cached_tokens, 96);
    const Status status = rig_->status();
    EXPECT_EQ(status.windows_loaded, 1);
    EXPECT_EQ(status.windows_restored, 1);
    EXPECT_EQ(status.windows_rebuilt, 0);
    EXPECT_EQ(status.window_rows, 0);
    EXPECT_EQ(status.loads, 2);  // pages and the window
    EXPECT_EQ(status.loads_whole, 2);
    EXPECT_EQ(status.windows_stored, 0);  // known
  }
}

// Its pages alone would save no row: a rebuild begins at 0.
TEST_F(EngineWindowStore, APromptWithinTheReachIsLoadedWithItsWindow) {
  ask(prompt_of(40));
  restart();
  EXPECT_EQ(ask(prompt_of(40)).cached_tokens, 32);
  EXPECT_EQ(rig_->status().windows_loaded, 1);
  EXPECT_EQ(rig_->status().window_rows, 0);
  load_.config.windows_in_store = false;
  restart();
  EXPECT_EQ(ask(prompt_of(40)).cached_tokens, 0);
  EXPECT_EQ(rig_->status().loads, 0);
  EXPECT_EQ(rig_->status().loads_declined, 1);
}

int count_of(const std::string& text, const std::string& word) {
  int count = 0;
  for (auto at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) ++count;
  return count;
}

// Nothing was evicted: the pages are there, and the rows that rebuild their window run.
TEST_F(EngineWindowStore, AMissingWindowIsNoEviction) {
  load_.config.windows_in_store = false;
  ask(prompt_of(40));
  restart();
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(ask(prompt_of(40)).miss, MissReason::kSlow);  // all rows run, whatever comes
  Request branch = prompt_of(40);
  branch.prompt[20] = (branch.prompt[20] + 1) % kVocab;
  EXPECT_EQ(ask(branch).miss, MissReason::kSlow);  // no window was saved where they part
  EXPECT_EQ(missed(MissReason::kSlow), 32 + 16);
  expect_accounts_add_up();
  restart();
  ask(branch);
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(count_of(log, "--kv-windows store keeps them"), 2) << log;  // once a run
}

TEST_F(EngineWindowStore, AWindowWhoseTimePassedIsExpired) {
  load_.config.windows_in_store = false;
  restart();
  ask(prompt_of(100));
  clock_.advance(200);
  ::testing::internal::CaptureStderr();
  const Usage usage = ask(prompt_of(100));
  EXPECT_EQ(usage.cached_tokens, 48);
  EXPECT_EQ(usage.miss, MissReason::kExpired);
  EXPECT_EQ(missed(MissReason::kExpired), 48);
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(count_of(log, "--kv-windows store keeps them"), 1) << log;
  expect_accounts_add_up();
}

// The hint is for those whom windows in the store would help.
TEST_F(EngineWindowStore, NoHintWhereTheStoreIsSlow) {
  load_.config.windows_in_store = false;
  ask(prompt_of(40));
  restart();
  store_->behave({.seconds_per_load = 1e6});
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(ask(prompt_of(40)).miss, MissReason::kSlow);
  EXPECT_EQ(count_of(::testing::internal::GetCapturedStderr(), "--kv-windows"), 0);
}

// --- layers with windows only: pages of no bytes, known by the window that follows them.

class OnlyWindows : public EngineWindowStore, public ::testing::WithParamInterface<bool> {
 protected:
  OnlyWindows() {
    load_.layers = "ww";
    load_.empty_global = GetParam();
    restart();
  }
};
INSTANTIATE_TEST_SUITE_P(Layouts, OnlyWindows, ::testing::Bool());

TEST_P(OnlyWindows, ARestartGoesOnFromTheStoredWindow) {
  Request request = prompt_of(100);
  request.ttl_class = kvstore::TtlClass::kAgent;
  ask(request);
  ASSERT_EQ(records().size(), 1u);
  EXPECT_EQ(windows()[0].facts.ttl, kvstore::TtlClass::kAgent);  // it is all that is kept
  EXPECT_EQ(rig_->core().store_unused(), "");
  restart();
  Usage usage = ask(request);
  EXPECT_EQ(usage.cached_tokens, 96);
  EXPECT_EQ(usage.disk_tokens, 96);
  EXPECT_EQ(usage.miss, MissReason::kNone);
  EXPECT_EQ(rig_->status().windows_loaded, 1);
  EXPECT_EQ(rig_->status().window_rows, 0);
  usage = ask(request);
  EXPECT_EQ(usage.cached_tokens, 96);
  EXPECT_EQ(usage.disk_tokens, 0);
  expect_accounts_add_up();
}

TEST_P(OnlyWindows, AConversationGoesOn) {
  ask(prompt_of(100));
  restart();
  Request longer = prompt_of(150);
  EXPECT_EQ(ask(longer).disk_tokens, 96);
  restart();
  EXPECT_EQ(ask(longer).disk_tokens, 144);
  longer.prompt[70] = (longer.prompt[70] + 1) % kVocab;  // before all windows
  const Usage usage = ask(longer);
  EXPECT_EQ(usage.cached_tokens, 16);  // the 38 rows before page 4 run again
  EXPECT_EQ(usage.miss, MissReason::kSlow);
  expect_accounts_add_up();
}

TEST_P(OnlyWindows, WithPagesInRamOnlyTheRestComes) {
  ask(prompt_of(180));
  restart();
  ask(prompt_of(60));
  const Usage usage = ask(prompt_of(180));
  EXPECT_EQ(usage.cached_tokens, 176);
  EXPECT_EQ(usage.disk_tokens, 176 - 48);
  expect_accounts_add_up();
}

TEST_P(OnlyWindows, WhatDoesNotComeIsComputed) {
  ask(prompt_of(100));
  restart();
  store_->damage_all();
  EXPECT_EQ(ask(prompt_of(100)).miss, MissReason::kChecksum);
  restart();
  store_->behave({.seconds_per_load = 1e6});
  EXPECT_EQ(ask(prompt_of(100)).miss, MissReason::kSlow);
  expect_accounts_add_up();
  restart();
  store_->behave({.held = true});
  EXPECT_EQ(ask(prompt_of(100)).miss, MissReason::kSlow);
  store_->behave({});
  restart();
  Request yours = prompt_of(100);
  yours.tenant = "yours";
  EXPECT_EQ(ask(yours).cached_tokens, 0);
  EXPECT_EQ(ask(prompt_of(100)).disk_tokens, 96);
}

TEST_P(OnlyWindows, TwoThatWaitShareALoad) {
  ask(prompt_of(100));
  restart();
  store_->behave({.delay_polls = 3});
  const auto first = rig_->add(prompt_of(100));
  const auto second = rig_->add(prompt_of(120));
  run();
  EXPECT_EQ(check(prompt_of(100), *first).cached_tokens, 96);
  EXPECT_EQ(check(prompt_of(120), *second).cached_tokens, 96);
  EXPECT_EQ(rig_->status().loads, 1);
  EXPECT_EQ(rig_->status().hit_tokens_disk, 96);
  expect_accounts_add_up();
}

TEST_P(OnlyWindows, WithoutTheFlagTheStoreIsNotUsedAndSaysSo) {
  load_.config.windows_in_store = false;
  ::testing::internal::CaptureStderr();
  restart();
  const std::string log = ::testing::internal::GetCapturedStderr();
  const std::string says = "this model has only sliding-window layers: the store is not used";
  EXPECT_EQ(count_of(log, says), 1) << log;
  EXPECT_TRUE(rig_->core().store_unused().starts_with(says)) << rig_->core().store_unused();
  ask(prompt_of(100));
  EXPECT_TRUE(records().empty());
  EXPECT_EQ(store_->counts().finds, 0);
  expect_accounts_add_up();
}

// A window of two records and one of a whole and a shorter one: both live on with each use.
TEST_F(EngineWindowStore, AUseKeepsItsRecordsAlive) {
  for (const int record_pages : {1, 2, 4}) {
    load_.window = 34;  // 3 pages
    load_.record_pages = record_pages;
    new_store();
    ask(prompt_of(100));
    std::map<ChainKey, std::uint64_t> before;
    for (const auto& record : windows()) before[record.facts.key] = record.last_use;
    ask(prompt_of(100));
    EXPECT_EQ(before.size(), record_pages == 1 ? 3u : record_pages == 2 ? 2u : 1u);
    for (const auto& record : windows()) EXPECT_GT(record.last_use, before[record.facts.key]);
  }
}

// The window in the store is the one in memory, byte by byte: what it was made from is not used.
TEST_F(EngineWindowStore, AStoredWindowIsWhatItWas) {
  const Request request = prompt_of(100);
  ask(request);
  const std::vector<std::byte> first = windows()[0].payload;
  load_.config.prefill_chunk_max = 17;
  new_store();
  ask(request);
  EXPECT_EQ(windows()[0].payload, first);
}

TEST_F(EngineWindowStore, WithoutTheFlagWindowsAreRebuilt) {
  load_.config.windows_in_store = false;
  restart();
  ask(prompt_of(100));
  EXPECT_TRUE(windows().empty());
  restart();
  EXPECT_EQ(ask(prompt_of(100)).cached_tokens, 48);
  EXPECT_EQ(rig_->status().windows_rebuilt, 1);
}

// Records of one page: a window is two of them.
TEST_F(EngineWindowStore, AWindowOfSeveralRecords) {
  load_.record_pages = 1;
  restart();
  ask(prompt_of(100));
  ASSERT_EQ(windows().size(), 2u);
  restart();
  EXPECT_EQ(ask(prompt_of(100)).cached_tokens, 96);
  EXPECT_EQ(rig_->status().windows_loaded, 1);
  restart();
  store_->forget(windows()[1].facts.key, MissReason::kExpired);
  EXPECT_EQ(ask(prompt_of(100)).cached_tokens, 48);  // a part of a window is none
  EXPECT_EQ(rig_->status().windows_loaded, 0);
}

TEST_F(EngineWindowStore, HalfAWindowIsNone) {
  load_.record_pages = 1;
  restart();
  ask(prompt_of(100));
  restart();
  const ChainKey boundary = chain_keys(chain_root("secret", ""), prompt_of(100).prompt)[5];
  ASSERT_TRUE(store_->damage(window_record_key(boundary, 1)));  // read after the other one came
  EXPECT_EQ(ask(prompt_of(100)).cached_tokens, 48);
  EXPECT_EQ(rig_->status().windows_load_failed, 1);
  EXPECT_EQ(rig_->status().windows_loaded, 0);
}

// A step is on its way whose sequence was cancelled: it still writes the pages that the window is
// to be read into.
TEST_F(EngineWindowStore, PagesOfAStepOnItsWayAreNotWritten) {
  ask(prompt_of(100));
  clock_.advance(200);
  Core& core = rig_->core();
  Request other = prompt_of(30);
  std::reverse(other.prompt.begin(), other.prompt.end());
  rig_->add(other);
  std::deque<std::unique_ptr<StepWork>> posted;
  posted.push_back(core.prepare());
  core.cancel(rig_->last_id());
  const auto events = rig_->add(prompt_of(100));
  for (int i = 0; i < 3; ++i) {
    if (posted.size() == 2) break;
    if (auto work = core.prepare()) posted.push_back(std::move(work));
  }
  EXPECT_TRUE(core.loading());
  while (!posted.empty()) {
    core.arm(*posted.front());
    core.runner().forward(*posted.front());
    core.runner().sample(*posted.front());
    core.complete(std::move(posted.front()));
    posted.pop_front();
  }
  run();
  EXPECT_EQ(check(prompt_of(100), *events).cached_tokens, 96);
  EXPECT_EQ(rig_->status().windows_loaded, 1);
}

TEST_F(EngineWindowStore, AfterTheClassTimeTheStoreServes) {
  ask(prompt_of(100));
  clock_.advance(200);  // gone in RAM; its pages are there
  EXPECT_EQ(ask(prompt_of(100)).cached_tokens, 96);
  const Status status = rig_->status();
  EXPECT_GE(status.windows_expired, 1);
  EXPECT_EQ(status.windows_loaded, 1);
  EXPECT_EQ(status.loads, 1);
}

TEST_F(EngineWindowStore, ADamagedWindowIsRebuilt) {
  ask(prompt_of(100));
  restart();
  EXPECT_TRUE(store_->damage(windows()[0].facts.key));
  const Usage usage = ask(prompt_of(100));
  EXPECT_EQ(usage.cached_tokens, 48);
  EXPECT_EQ(usage.miss, MissReason::kChecksum);
  const Status status = rig_->status();
  EXPECT_EQ(status.windows_load_failed, 1);
  EXPECT_EQ(status.windows_rebuilt, 1);
  EXPECT_EQ(ask(prompt_of(100)).cached_tokens, 96);
}

// Rows that cost less than the load are run.
TEST_F(EngineWindowStore, ASlowStoreIsNotWaitedFor) {
  ask(prompt_of(100));
  clock_.advance(200);
  testing::MemStoreBehaviour slow;
  slow.seconds_per_load = 1e6;
  store_->behave(slow);
  const Usage usage = ask(prompt_of(100));
  EXPECT_EQ(usage.cached_tokens, 48);
  EXPECT_EQ(usage.miss, MissReason::kSlow);
  EXPECT_EQ(rig_->status().loads_declined, 1);
}

// Nothing comes: at its deadline the load ends and the request goes on.
TEST_F(EngineWindowStore, AWindowThatDoesNotComeIsRebuilt) {
  ask(prompt_of(100));
  clock_.advance(200);
  testing::MemStoreBehaviour held;
  held.held = true;
  store_->behave(held);
  const auto events = rig_->add(prompt_of(100));
  rig_->step();
  EXPECT_TRUE(rig_->core().loading());
  EXPECT_EQ(rig_->status().running, 0);
  const auto other = rig_->add(prompt_of(30));  // runs meanwhile
  for (int i = 0; i < 12; ++i) rig_->step();
  check(prompt_of(30), *other);
  EXPECT_TRUE(rig_->core().loading());
  clock_.advance(120);
  run();
  EXPECT_EQ(check(prompt_of(100), *events).cached_tokens, 48);
  EXPECT_EQ(rig_->status().windows_load_failed, 1);
}

TEST_F(EngineWindowStore, TwoThatWaitShareALoad) {
  ask(prompt_of(100));
  clock_.advance(200);
  testing::MemStoreBehaviour late;
  late.delay_polls = 3;
  store_->behave(late);
  const auto first = rig_->add(prompt_of(100));
  Request other = prompt_of(100);
  other.prompt.push_back(5);
  const auto second = rig_->add(other);
  run();
  EXPECT_EQ(check(prompt_of(100), *first).cached_tokens, 96);
  EXPECT_EQ(check(other, *second).cached_tokens, 96);
  EXPECT_EQ(rig_->status().loads, 1);
}

TEST_F(EngineWindowStore, OneThatLeavesWhileItWaitsHarmsNobody) {
  ask(prompt_of(100));
  clock_.advance(200);
  testing::MemStoreBehaviour held;
  held.held = true;
  store_->behave(held);
  rig_->add(prompt_of(100));
  rig_->step();
  rig_->core().cancel(rig_->last_id());
  EXPECT_TRUE(rig_->core().idle());
  store_->behave({});
  EXPECT_EQ(ask(prompt_of(100)).cached_tokens, 96);
}

// Running sequences can take all but the spare pages: without spare ones there is no load.
TEST_F(EngineWindowStore, WithoutRoomThereIsNoLoad) {
  ask(prompt_of(100));
  load_.saved_pages = 0;
  restart();
  const Usage usage = ask(prompt_of(100));
  EXPECT_EQ(usage.cached_tokens, 48);
  EXPECT_EQ(usage.miss, MissReason::kBudget);
  EXPECT_EQ(rig_->status().loads, 1);  // the pages
}

TEST_F(EngineWindowStore, ReplayedWindowsHaveASpaceOfTheirOwn) {
  ask(prompt_of(100));
  load_.config.swa_replay = 20;
  restart();
  std::vector<std::string> before;
  for (const auto& spec : store_->spaces()) before.push_back(spec.identity);
  ask_only(prompt_of(100));
  std::vector<std::string> after;
  for (const auto& spec : store_->spaces()) after.push_back(spec.identity);
  EXPECT_EQ(before.size(), 2u);
  EXPECT_EQ(after.size(), 4u);
  EXPECT_EQ(rig_->status().loads, 0);  // nothing of the exact runs is used
}

RC_GTEST_PROP(EngineWindowStores, AnswersDoNotDependOnTheStore, (std::uint64_t seed)) {
  SeqRandom random(seed);
  SimClock clock;
  const auto store = std::make_shared<MemRecordStore>(clock);
  testing::MemStoreBehaviour behaviour;
  behaviour.delay_polls = static_cast<int>(random.between(0, 4));
  if (random.chance(0.3)) behaviour.capacity_bytes = random.between(2000, 40'000);
  if (random.chance(0.2)) behaviour.refusals = static_cast<int>(random.between(0, 20));
  if (random.chance(0.2)) behaviour.pieces_max = 1;
  store->behave(behaviour);
  for (int engines = 0; engines < 3; ++engines) {
    Load load = random_load(random);
    constexpr const char* kLayers[] = {"wg", "gw", "wgw", "wwgw", "gwwwg", "w", "www"};
    constexpr int kWindows[] = {2, 16, 17, 18, 33, 50};
    SeqRandom same(seed);
    load.layers = kLayers[same.between(0, 6)];
    load.empty_global = same.chance(0.5);
    load.window = kWindows[same.between(0, 5)];
    load.record_pages = 1 << same.between(0, 3);
    load.saved_pages = random.between(0, 60);
    load.clock = &clock;
    load.config.store = store;
    load.config.windows_in_store = true;
    load.config.enable_prefix_caching = true;
    run_load(load, random, static_cast<int>(random.between(1, 10)), 0.1);
    clock.advance(static_cast<double>(random.between(0, 300)));
  }
}

}  // namespace
}  // namespace artery::engine
