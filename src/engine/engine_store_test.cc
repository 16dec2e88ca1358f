// The engine with a store behind its prefix cache: what is written, what comes back after a restart
// or an eviction, and what happens when it comes late, damaged, in part or not at all. Every answer
// must equal the same request's answer alone.

#include <gtest/gtest.h>

#include "engine/engine_store_rig_testing.h"

namespace artery::engine {
namespace {

using kvstore::TtlClass;

class EngineStore : public StoreRig {
 protected:
  EngineStore() { restart(); }
};

TEST_F(EngineStore, WritesWholeRecordsAndTails) {
  Request request = prompt_of(100);  // 6 pages and 4 tokens
  request.max_tokens = 40;           // 139 positions computed: 8 pages
  request.ttl_class = TtlClass::kAgent;
  ask(request);
  const auto all = records();
  ASSERT_EQ(all.size(), 3u);
  const auto& first = all.at(key(request, 4));
  EXPECT_EQ(first.facts.pages, 4);
  EXPECT_EQ(first.facts.parent, chain_root("secret", ""));
  EXPECT_EQ(first.facts.ttl, TtlClass::kAgent);
  EXPECT_TRUE(std::equal(first.ids.begin(), first.ids.end(), request.prompt.begin()));
  const auto& tail = all.at(key(request, 6));
  EXPECT_EQ(tail.facts.pages, 2);
  EXPECT_EQ(tail.facts.parent, first.facts.key);
  // The whole record over the tail, as soon as its last page is there.
  const auto third = std::find_if(all.begin(), all.end(), [&](const auto& entry) {
    return entry.first != first.facts.key && entry.first != tail.facts.key;
  });
  EXPECT_EQ(third->second.facts.pages, 4);
  EXPECT_EQ(third->second.facts.parent, first.facts.key);
  EXPECT_EQ(rig_->status().records_offered, 3);
}

TEST_F(EngineStore, OutputEndsWithATail) {
  Request request = prompt_of(100);
  request.max_tokens = 20;  // 119 positions: 7 pages
  ask(request);
  int tails = 0;
  for (const auto& [name, record] : records()) {
    if (record.facts.pages != 1) continue;
    ++tails;
    EXPECT_EQ(record.facts.parent, key(request, 6));
  }
  EXPECT_EQ(tails, 1);
}

TEST_F(EngineStore, HitsAfterARestart) {
  const Request request = prompt_of(100);
  EXPECT_EQ(ask(request).miss, MissReason::kCold);
  restart();
  const Usage usage = ask(request);
  EXPECT_EQ(usage.cached_tokens, 96);
  EXPECT_EQ(usage.disk_tokens, 96);
  EXPECT_EQ(usage.miss, MissReason::kNone);
  EXPECT_EQ(rig_->status().hit_tokens_disk, 96);
  EXPECT_EQ(missed(MissReason::kBoundary), 4);
  EXPECT_EQ(rig_->status().loads_whole, 1);
  // In RAM from then on.
  const Usage again = ask(request);
  EXPECT_EQ(again.cached_tokens, 96);
  EXPECT_EQ(again.disk_tokens, 0);
  EXPECT_EQ(rig_->status().hit_tokens_ram, 96);
  EXPECT_EQ(rig_->status().loads, 1);
  expect_accounts_add_up();
  EXPECT_EQ(store_->counts().taken, 2);  // nothing is written twice
}

TEST_F(EngineStore, HitsAfterTheRamCacheLostIt) {
  const Request request = prompt_of(100);
  ask(request);
  EXPECT_TRUE(rig_->core().reset_prefix_cache());
  EXPECT_EQ(ask(request).disk_tokens, 96);
  expect_accounts_add_up();
}

// What is missing at the end of RAM comes from the store, records that RAM has in part as well.
TEST_F(EngineStore, OnlyTheRestIsLoaded) {
  Request request = prompt_of(180);  // 11 pages
  ask(request);
  restart();
  Request start = request;
  start.prompt.resize(90);  // 5 pages; brings the records up to page 8 into nobody's RAM but these
  start.prompt[85] = (start.prompt[85] + 1) % kVocab;
  ask(start);
  const Usage usage = ask(request);
  EXPECT_EQ(usage.cached_tokens, 176);
  EXPECT_EQ(usage.disk_tokens, 176 - 80);
  const auto all = records();
  EXPECT_EQ(all.at(key(request, 4)).reads, 1);
  EXPECT_EQ(all.at(key(request, 8)).reads, 1);
  EXPECT_EQ(all.at(key(request, 11)).reads, 1);
  expect_accounts_add_up();
}

TEST_F(EngineStore, AGrowingChatHitsTurnByTurn) {
  Request request = prompt_of(50);
  request.max_tokens = 23;
  for (int turn = 0; turn < 5; ++turn) {
    restart();
    const auto known = static_cast<std::int64_t>(request.prompt.size());
    const Usage usage = ask(request);
    // All but the last turn's question.
    EXPECT_EQ(usage.disk_tokens, turn == 0 ? 0 : (known - 8) / kPageTokens * kPageTokens);
    const Answer answer = alone(request, load_);
    const std::vector<TokenId>& said = answer.choices.at(0).tokens;
    request.prompt.insert(request.prompt.end(), said.begin(), said.end() - 1);
    for (TokenId token = 0; token < 8; ++token) request.prompt.push_back(token);
    if (request.prompt.size() + 24 > 190) break;
    expect_accounts_add_up();
  }
}

// The prefix that two prompts share ends in the middle of a record: the second leaves a tail there.
TEST_F(EngineStore, BranchesAreWritten) {
  Request first = prompt_of(180);
  Request second = first;
  second.prompt[100] = (second.prompt[100] + 1) % kVocab;  // 6 pages are shared
  ask(first);
  EXPECT_FALSE(records().contains(key(first, 6)));
  ask(second);
  EXPECT_EQ(records().at(key(first, 6)).facts.pages, 2);
  restart();
  Request third = first;
  third.prompt[110] = (third.prompt[110] + 1) % kVocab;
  EXPECT_EQ(ask(third).disk_tokens, 96);
}

TEST_F(EngineStore, TakesTheFrontOfALoadThatEndsEarly) {
  const Request request = prompt_of(180);
  ask(request);
  restart();
  store_->behave({.pieces_max = 1, .early = MissReason::kBudget});
  const Usage usage = ask(request);
  EXPECT_EQ(usage.disk_tokens, 64);
  EXPECT_EQ(usage.miss, MissReason::kBudget);
  EXPECT_EQ(missed(MissReason::kBudget), 176 - 64);
  EXPECT_EQ(rig_->status().loads_partial, 1);
  EXPECT_EQ(rig_->status().loads, 1);  // no second try
  expect_accounts_add_up();
}

TEST_F(EngineStore, ADamagedRecordIsAMiss) {
  const Request request = prompt_of(180);
  ask(request);
  restart();
  ASSERT_TRUE(store_->damage(key(request, 8)));
  const Usage usage = ask(request);
  EXPECT_EQ(usage.disk_tokens, 64);
  EXPECT_EQ(usage.miss, MissReason::kChecksum);
  expect_accounts_add_up();
  // Computed and written anew.
  restart();
  EXPECT_EQ(ask(request).disk_tokens, 176);
}

TEST_F(EngineStore, RecordsOutOfOrderAreNotTaken) {
  const Request request = prompt_of(180);
  ask(request);
  restart();
  store_->behave({.disorder = true});
  const Usage usage = ask(request);
  EXPECT_EQ(usage.cached_tokens, 0);
  EXPECT_EQ(usage.miss, MissReason::kChecksum);
  expect_accounts_add_up();
}

TEST_F(EngineStore, AStoreThatHangsDelaysOneRequestAndNoOther) {
  const Request request = prompt_of(180);
  ask(request);
  restart();
  store_->behave({.held = true});
  const auto slow = rig_->add(request);
  Request other = prompt_of(60, 2);
  other.max_tokens = 20;
  const auto beside = rig_->add(other);
  for (int i = 0; i < 20; ++i) rig_->step();
  EXPECT_TRUE(check(other, *beside).generated_tokens == 20);
  EXPECT_EQ(rig_->status().waiting, 1);
  run();
  const Usage usage = check(request, *slow);
  EXPECT_EQ(usage.cached_tokens, 0);
  EXPECT_EQ(usage.miss, MissReason::kSlow);
  EXPECT_GE(usage.timings.load_s, 0.25);
  EXPECT_LT(usage.timings.load_s, 0.4);
  EXPECT_LT(usage.timings.queue_s, 0.01);
  EXPECT_EQ(store_->loads_under_way(), 0);
  expect_accounts_add_up();
}

TEST_F(EngineStore, NotLoadedWhenComputingIsFaster) {
  const Request request = prompt_of(180);
  ask(request);
  restart();
  store_->behave({.seconds_per_load = 1e6});
  const Usage usage = ask(request);
  EXPECT_EQ(usage.cached_tokens, 0);
  EXPECT_EQ(usage.miss, MissReason::kSlow);
  EXPECT_EQ(rig_->status().loads_declined, 1);
  EXPECT_EQ(store_->counts().loads, 0);
  store_->behave({.seconds_per_load = std::numeric_limits<double>::infinity()});
  EXPECT_TRUE(rig_->core().reset_prefix_cache());
  EXPECT_EQ(ask(request).miss, MissReason::kBudget);
  expect_accounts_add_up();
}

// Two that ask at once: the second would wait for the first one's bytes too.
TEST_F(EngineStore, WhatIsOnItsWayCountsAgainstTheNextLoad) {
  const Request first = prompt_of(180, 1);
  const Request second = prompt_of(180, 2);
  ask(first);
  ask(second);
  restart();
  std::int64_t bytes = 0;
  for (const auto& [name, record] : records()) {
    bytes += kvstore::stored_bytes(std::ssize(record.ids), std::ssize(record.payload));
  }
  // 177 ms for the rows, at a guess of which a quarter counts.
  store_->behave({.held = true, .seconds_per_byte = 0.06 / static_cast<double>(bytes)});
  const auto one = rig_->add(first);
  const auto two = rig_->add(second);
  rig_->step();
  EXPECT_EQ(store_->loads_under_way(), 1);
  EXPECT_EQ(rig_->status().loads_declined, 1);
  store_->behave({});
  run();
  EXPECT_EQ(check(first, *one).disk_tokens, 176);
  const Usage usage = check(second, *two);
  EXPECT_EQ(usage.disk_tokens, 0);
  EXPECT_EQ(usage.miss, MissReason::kSlow);
  expect_accounts_add_up();
}

// Before a step was measured a row counts as slow, for the sake of the first chunk. A slow disk is
// not waited for by that: 100 ms for what is guessed at 177 ms.
TEST_F(EngineStore, ASlowLoadIsNotMeasuredAgainstTheCarefulGuess) {
  const Request request = prompt_of(180);
  ask(request);
  restart();
  store_->behave({.seconds_per_load = 0.1});
  EXPECT_EQ(ask(request).miss, MissReason::kSlow);
  store_->behave({.seconds_per_load = 0.03});
  restart();
  EXPECT_EQ(ask(request).disk_tokens, 176);
}

TEST_F(EngineStore, CancelledAndExpiredWhileLoading) {
  const Request request = prompt_of(180);
  ask(request);
  restart();
  store_->behave({.held = true});
  const auto cancelled = rig_->add(request);
  rig_->step();
  EXPECT_EQ(store_->loads_under_way(), 1);
  EXPECT_GT(rig_->status().pages_in_use, 0);
  rig_->core().cancel(rig_->last_id());
  EXPECT_EQ(store_->loads_under_way(), 0);
  EXPECT_EQ(rig_->status().pages_in_use, 0);
  rig_->core().check_integrity();
  EXPECT_EQ(collect(*cancelled, 1, 0).choices[0].finish->reason, FinishReason::kCancelled);
  Request hurried = request;
  hurried.deadline_ns = clock_.monotonic_ns() + 50'000'000;
  const auto late = rig_->add(hurried);
  run();
  EXPECT_EQ(collect(*late, 1, 0).choices[0].finish->reason, FinishReason::kDeadline);
  EXPECT_EQ(store_->loads_under_way(), 0);
  EXPECT_EQ(rig_->status().pages_in_use, 0);
}

TEST_F(EngineStore, OneReadServesAllThatWaitForIt) {
  const Request request = prompt_of(180);
  Request branch = request;
  branch.prompt[150] = (branch.prompt[150] + 1) % kVocab;
  ask(request);
  restart();
  store_->behave({.delay_polls = 3});
  std::vector<Request> requests = {request, branch, request};
  std::vector<std::shared_ptr<EventStream>> events;
  for (const Request& each : requests) events.push_back(rig_->add(each));
  run();
  std::int64_t disk = 0;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    const Usage usage = check(requests[i], *events[i]);
    disk += usage.disk_tokens;
    EXPECT_GE(usage.cached_tokens, 128);
  }
  EXPECT_EQ(disk, 176);
  EXPECT_EQ(store_->counts().loads, 1);
  for (const auto& [name, record] : records()) EXPECT_LE(record.reads, 1);
  expect_accounts_add_up();
}

TEST_F(EngineStore, AFollowerOfACancelledLoadReadsForItself) {
  const Request request = prompt_of(180);
  ask(request);
  restart();
  store_->behave({.held = true});
  rig_->add(request);
  const RequestId first = rig_->last_id();
  const auto second = rig_->add(request);
  rig_->step();
  EXPECT_EQ(store_->loads_under_way(), 1);
  rig_->core().cancel(first);
  store_->behave({});
  run();
  EXPECT_EQ(check(request, *second).disk_tokens, 176);
}

// Queued requests get their pages while others run.
TEST_F(EngineStore, PrefetchesForThoseBeyondTheSlots) {
  load_.config.max_num_seqs = 1;
  const Request stored = prompt_of(100);
  restart();
  ask(stored);
  restart();
  Request running = prompt_of(40, 2);
  running.max_tokens = 60;
  const auto first = rig_->add(running);
  rig_->step();
  const auto second = rig_->add(stored);
  for (int i = 0; i < 10; ++i) rig_->step();
  EXPECT_EQ(rig_->status().waiting, 1);
  EXPECT_EQ(rig_->status().loads_whole, 1);
  run();
  check(running, *first);
  EXPECT_EQ(check(stored, *second).disk_tokens, 96);
}

// A running one takes the pages of one that waits for the store, which computes then.
TEST_F(EngineStore, PagesOfALoadYieldToThoseThatRun) {
  load_.pages = 14;
  restart();
  const Request stored = prompt_of(150);  // 9 pages
  ask(stored);
  restart();
  store_->behave({.held = true});
  Request running = prompt_of(20, 2);
  running.max_tokens = 120;  // 9 pages in the end
  const auto first = rig_->add(running);
  rig_->step();
  const auto second = rig_->add(stored);
  rig_->step();
  EXPECT_EQ(store_->loads_under_way(), 1);
  run();
  EXPECT_EQ(check(running, *first).preemptions, 0);
  check(stored, *second);
  EXPECT_EQ(store_->loads_under_way(), 0);
}

// Pages that a preempted choice gave back are still written by the step that computes: what is
// loaded into them waits for that.
TEST_F(EngineStore, LoadedPagesAreInNoStep) {
  load_.config.max_num_seqs = 1;
  restart();
  const Request stored = prompt_of(180);  // 11 pages
  ask(stored);
  restart();
  Core& core = rig_->core();
  Request low = prompt_of(150, 2);
  low.priority = 5;
  const auto preempted = rig_->add(low);
  auto computing = core.prepare();  // writes ten pages when it runs
  ASSERT_NE(computing, nullptr);
  rig_->add(prompt_of(170, 3));
  auto planned = core.prepare();
  ASSERT_NE(planned, nullptr);
  core.unprepare(std::move(planned));
  core.cancel(rig_->last_id());
  const auto loaded = rig_->add(stored);
  planned = core.prepare();
  EXPECT_EQ(store_->loads_under_way(), 1);
  core.poll_store();
  EXPECT_EQ(store_->counts().pieces, 0);
  core.arm(*computing);
  core.runner().forward(*computing);
  core.runner().sample(*computing);
  core.complete(std::move(computing));
  if (planned != nullptr) core.unprepare(std::move(planned));
  run();
  check(low, *preempted);
  EXPECT_GT(check(stored, *loaded).disk_tokens, 0);
}

// More is stored than the pool has room for: the front is loaded.
TEST_F(EngineStore, LoadsWhatThePoolHasRoomFor) {
  load_.pages = 16;
  restart();
  const Request stored = prompt_of(180);  // 11 pages
  ask(stored);
  restart();
  Request running = prompt_of(60, 2);
  running.max_tokens = 40;
  const auto first = rig_->add(running);
  for (int i = 0; i < 30; ++i) rig_->step();
  const auto second = rig_->add(stored);
  run();
  check(running, *first);
  check(stored, *second);
  expect_accounts_add_up();
}

TEST_F(EngineStore, ChoicesShareWhatWasLoaded) {
  Request request = prompt_of(100);
  request.n = 3;
  request.sampling.temperature = 1.2;
  request.max_tokens = 30;
  ask(request);
  const std::int64_t written = store_->counts().taken;
  restart();
  const Usage usage = ask(request);
  EXPECT_EQ(usage.disk_tokens, 96);
  EXPECT_EQ(store_->counts().loads, 1);
  EXPECT_EQ(store_->counts().taken, written);
}

TEST_F(EngineStore, PreemptedOnesComeBackFromTheStore) {
  load_.pages = 12;
  load_.config.max_num_seqs = 6;
  restart();
  std::vector<Request> requests;
  std::vector<std::shared_ptr<EventStream>> events;
  for (int i = 0; i < 4; ++i) {
    requests.push_back(prompt_of(40, i));
    requests.back().max_tokens = 60;
    events.push_back(rig_->add(requests.back()));
  }
  while (rig_->status().preemptions == 0) rig_->step();
  rig_->core().reset_prefix_cache();
  run();
  std::int64_t preemptions = 0;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    preemptions += check(requests[i], *events[i]).preemptions;
  }
  EXPECT_GT(preemptions, 0);
  EXPECT_GT(rig_->status().loads_whole, 0);
}

TEST_F(EngineStore, TenantsShareNothing) {
  Request mine = prompt_of(100);
  mine.tenant = "mine";
  Request yours = mine;
  yours.tenant = "yours";
  ask(mine);
  restart();
  EXPECT_EQ(ask(yours).cached_tokens, 0);
  EXPECT_EQ(ask(mine).disk_tokens, 96);
  ASSERT_EQ(store_->spaces().size(), 2u);
  EXPECT_EQ(store_->spaces()[0].tenant, "mine");
  EXPECT_EQ(store_->spaces()[0].identity, store_->spaces()[1].identity);
}

TEST_F(EngineStore, ThoseThatBypassTheCacheLeaveTheStoreAlone) {
  Request request = prompt_of(100);
  request.use_prefix_cache = false;
  ask(request);
  request.use_prefix_cache = true;
  request.prompt_logprobs = 0;
  ask(request);
  EXPECT_EQ(missed(MissReason::kBypassed), 200);
  expect_accounts_add_up();
  load_.config.enable_prefix_caching = false;
  restart();
  request.prompt_logprobs = -1;
  ask(request);
  EXPECT_EQ(store_->counts().offers + store_->counts().finds, 0);
  expect_accounts_add_up();
}

TEST_F(EngineStore, RefusedRecordsAreOfferedAgainInOrder) {
  store_->behave({.refusals = 3});
  Request request = prompt_of(100);
  request.max_tokens = 90;
  ask(request);
  EXPECT_EQ(store_->counts().refused, 3);
  EXPECT_EQ(rig_->status().records_refused, 3);
  restart();
  EXPECT_EQ(ask(request).disk_tokens, 96);
}

TEST_F(EngineStore, AStoreThatRefusesIsNotAskedForEver) {
  store_->behave({.refuses = true});
  Request request = prompt_of(60);
  request.max_tokens = 120;
  for (int i = 0; i < 4; ++i) {
    clock_.advance(1);
    ask(request);
  }
  // Nine tries and one at the end, each.
  EXPECT_LE(store_->counts().offers, 40);
  EXPECT_EQ(store_->counts().taken, 0);
}

// Known to RAM only, because the store refused it: the next one that hits writes it.
TEST_F(EngineStore, RamHitsAreWrittenToo) {
  const Request request = prompt_of(180);
  store_->behave({.refuses = true});
  ask(request);
  store_->behave({});
  EXPECT_EQ(ask(request).cached_tokens, 176);
  restart();
  EXPECT_EQ(ask(request).disk_tokens, 176);
}

TEST_F(EngineStore, HitsInRamRefreshTheStore) {
  Request request = prompt_of(100);
  request.ttl_class = TtlClass::kTenMinutes;
  ask(request);
  const auto before = records().at(key(request, 6)).last_use;
  request.ttl_class = TtlClass::kChat;
  EXPECT_EQ(ask(request).disk_tokens, 0);
  const auto after = records().at(key(request, 6));
  EXPECT_GT(after.last_use, before);
  EXPECT_EQ(after.facts.ttl, TtlClass::kChat);
}

TEST_F(EngineStore, PromisesCoverFoundAndNewRecords) {
  Request request = prompt_of(100);
  request.ttl_class = TtlClass::kAgent;
  ask(request);
  request.guarantee = true;
  EXPECT_EQ(ask(request).guaranteed_until_s, 0);  // the store gives none
  store_->behave({.guaranteed_bytes = 1 << 20});
  Request longer = request;
  for (TokenId token = 0; token < 60; ++token) longer.prompt.push_back(token);
  const std::int64_t until = ask(longer).guaranteed_until_s;
  EXPECT_EQ(until, clock_.unix_ms() / 1000 + kvstore::ttl_seconds(TtlClass::kAgent));
  const auto all = records();
  for (const std::size_t pages : {4u, 6u, 8u, 10u}) {
    EXPECT_EQ(all.at(key(longer, pages)).facts.guaranteed_until_s, until) << pages;
  }
}

TEST_F(EngineStore, NoPromiseForWhatWasRefused) {
  store_->behave({.refuses = true, .guaranteed_bytes = 1 << 20});
  Request request = prompt_of(100);
  request.guarantee = true;
  EXPECT_EQ(ask(request).guaranteed_until_s, 0);
}

// --- windows: stored global pages, whose windows are rebuilt.

TEST_F(EngineStore, WindowsAreRebuiltOverLoadedPages) {
  load_.layers = "gwg";
  load_.window = 20;
  load_.saved_pages = 30;
  restart();
  const Request request = prompt_of(180);
  ask(request);
  restart();
  const Usage usage = ask(request);
  EXPECT_EQ(usage.cached_tokens, 144);  // 176 - 19, down to a page
  EXPECT_EQ(usage.disk_tokens, 144);
  EXPECT_EQ(rig_->status().windows_rebuilt, 1);
  EXPECT_EQ(missed(MissReason::kSlow), 32);
  EXPECT_EQ(usage.miss, MissReason::kSlow);
  expect_accounts_add_up();
}

TEST_F(EngineStore, NotLoadedWhereWindowsMakeAllRowsRunAnyway) {
  load_.layers = "gww";
  load_.window = 100;
  load_.saved_pages = 30;
  restart();
  const Request request = prompt_of(180);
  ask(request);
  restart();
  EXPECT_EQ(ask(request).cached_tokens, 0);
  EXPECT_EQ(store_->counts().loads, 0);
  expect_accounts_add_up();
}

}  // namespace
}  // namespace artery::engine
