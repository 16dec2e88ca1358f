// Random loads on engines over one store that is slow, forgetful, damaged, full or refusing, one
// engine after the other as after restarts: no answer depends on it, no page is lost, and every
// prompt token is accounted for. Then the threads: an engine that waits for its store sleeps, wakes
// and stops.

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <thread>

#include "engine/core_rig_testing.h"
#include "testing/mem_record_store.h"

namespace artery::engine {
namespace {

using testing::MemRecordStore;
using testing::MemStoreBehaviour;

MemStoreBehaviour random_behaviour(SeqRandom& random) {
  constexpr MissReason kEnds[] = {
      MissReason::kSlow, MissReason::kBudget, MissReason::kEvicted, MissReason::kChecksum
  };
  MemStoreBehaviour out;
  out.delay_polls = random.chance(0.6) ? static_cast<int>(random.between(1, 12)) : 0;
  if (random.chance(0.15)) out.seconds_per_load = 10;
  out.refuses = random.chance(0.1);
  out.refusals = random.chance(0.3) ? static_cast<int>(random.between(1, 30)) : 0;
  if (random.chance(0.3)) out.capacity_bytes = random.between(4, 60) * HashModel::page_bytes();
  if (random.chance(0.5)) out.guaranteed_bytes = 40'000;
  if (random.chance(0.3)) out.pieces_max = random.between(1, 3);
  out.early = kEnds[random.between(0, 3)];
  return out;
}

Load random_store_load(SeqRandom& random) {
  Load load = random_load(random);
  load.config.enable_prefix_caching = random.chance(0.95);
  load.record_pages = 1 << random.between(0, 3);
  if (random.chance(0.4)) {
    load.layers = random.chance(0.5) ? "gwg" : "wgw";
    load.window = static_cast<int>(random.between(2, 40));
    load.saved_pages = random.between(0, 12);
  }
  return load;
}

void run_lives(SeqRandom& random, int requests, double cancel_chance) {
  SimClock clock;
  auto store = std::make_shared<MemRecordStore>(clock);
  Load load = random_store_load(random);
  load.clock = &clock;
  load.config.store = store;
  for (std::int64_t lives = random.between(1, 3); lives > 0; --lives) {
    store->behave(random_behaviour(random));
    for (const auto& record : store->records()) {
      if (random.chance(0.1)) store->damage(record.facts.key);
      if (random.chance(0.05)) store->forget(record.facts.key, MissReason::kExpired);
    }
    run_load(load, random, requests, cancel_chance);
    RC_ASSERT(store->loads_under_way() == 0);
  }
}

RC_GTEST_PROP(EngineStoreProperty, AnswersDoNotDependOnTheStore, (std::uint64_t seed)) {
  SeqRandom random(seed);
  run_lives(random, *rc::gen::inRange(1, 16), 0);
}

RC_GTEST_PROP(EngineStoreProperty, CancelledOnesDisturbNobody, (std::uint64_t seed)) {
  SeqRandom random(seed);
  run_lives(random, *rc::gen::inRange(1, 16), 0.15);
}

// --- threads

class StoreThreads : public ::testing::TestWithParam<bool> {
 protected:
  std::unique_ptr<Engine> engine() const {
    Config config;
    config.kv_pool_bytes = 64 * HashModel::page_bytes();
    config.max_num_seqs = 4;
    config.max_num_batched_tokens = 64;
    config.async_scheduling = GetParam();
    config.cache_secret = "secret";
    config.store = store_;
    auto model = std::make_unique<HashModel>(kVocab, 1024);
    model->set_record_pages(4);
    return std::move(*make_engine(std::move(model), config));
  }
  static Request request(TokenId first = 1) {
    Request out;
    for (TokenId i = 0; i < 150; ++i) out.prompt.push_back((first + i * 7) % kVocab);
    out.max_tokens = 5;
    out.sampling.temperature = 0;
    return out;
  }
  // Until the engine has begun a load.
  void wait_for_load() const {
    while (store_->loads_under_way() == 0) std::this_thread::yield();
  }

  std::shared_ptr<MemRecordStore> store_ = std::make_shared<MemRecordStore>();
};

INSTANTIATE_TEST_SUITE_P(Modes, StoreThreads, ::testing::Bool());

TEST_P(StoreThreads, SleepsUntilTheStoreWakesIt) {
  const Answer cold = ask(*engine(), request());
  const auto second = engine();
  store_->behave({.held = true, .seconds_per_load = 1e-9});
  auto events = std::make_shared<EventStream>();
  ASSERT_TRUE(second->submit(request(), events));
  wait_for_load();
  const Answer other = ask(*second, request(30));  // is not held up
  EXPECT_EQ(other.choices.at(0).tokens.size(), 5u);
  EXPECT_EQ(second->status().waiting, 1);
  store_->behave({});
  const Answer warm = collect(*events, 1);
  EXPECT_EQ(warm.choices.at(0).tokens, cold.choices.at(0).tokens);
  EXPECT_EQ(warm.choices.at(0).finish->usage.disk_tokens, 144);
  EXPECT_GT(warm.choices.at(0).finish->usage.timings.load_s, 0);
  ASSERT_TRUE(second->store_status());
  EXPECT_GT(second->store_status()->records, 0);
}

TEST_P(StoreThreads, StopsAndCancelsWhileAllWait) {
  ask(*engine(), request());
  store_->behave({.held = true});
  auto events = std::make_shared<EventStream>();
  {
    const auto second = engine();
    const auto id = second->submit(request(), events);
    ASSERT_TRUE(id);
    wait_for_load();
    second->cancel(*id);
    EXPECT_EQ(collect(*events, 1).choices.at(0).finish->reason, FinishReason::kCancelled);
    EXPECT_EQ(store_->loads_under_way(), 0);
    events = std::make_shared<EventStream>();
    ASSERT_TRUE(second->submit(request(), events));
    wait_for_load();
  }
  EXPECT_EQ(collect(*events, 1).choices.at(0).finish->reason, FinishReason::kCancelled);
  EXPECT_EQ(store_->loads_under_way(), 0);
}

TEST_P(StoreThreads, AHangingStoreIsGivenUp) {
  const Answer cold = ask(*engine(), request());
  const auto second = engine();
  store_->behave({.held = true});
  const Answer late = ask(*second, request());
  EXPECT_EQ(late.choices.at(0).tokens, cold.choices.at(0).tokens);
  const Usage& usage = late.choices.at(0).finish->usage;
  EXPECT_EQ(usage.miss, MissReason::kSlow);
  EXPECT_GT(usage.timings.load_s, 0.2);
  EXPECT_LT(usage.timings.load_s, 3);
}

// The salt narrows the tenant without a space of its own.
TEST_P(StoreThreads, SaltsShareNothing) {
  Request salted = request();
  salted.tenant = "mine";
  salted.salt = "a";
  ask(*engine(), salted);
  const auto second = engine();
  EXPECT_EQ(ask(*second, salted).choices.at(0).finish->usage.disk_tokens, 144);
  salted.salt = "b";
  EXPECT_EQ(ask(*second, salted).choices.at(0).finish->usage.cached_tokens, 0);
  EXPECT_EQ(store_->spaces().size(), 1u);
}

// Many at once, some cancelled: what the sanitizers look at.
TEST_P(StoreThreads, ManyRequestsOverAStoreThatDelays) {
  for (int life = 0; life < 2; ++life) {
    store_->behave({.delay_polls = 2});
    const auto running = engine();
    std::vector<std::shared_ptr<EventStream>> events;
    for (int i = 0; i < 24; ++i) {
      events.push_back(std::make_shared<EventStream>());
      Request one = request(static_cast<TokenId>(i % 5));
      one.max_tokens = 20;
      const auto id = running->submit(one, events.back());
      ASSERT_TRUE(id);
      if (i % 7 == 3) running->cancel(*id);
    }
    for (const auto& each : events) EXPECT_FALSE(collect(*each, 1).timed_out);
  }
  EXPECT_EQ(store_->loads_under_way(), 0);
}

}  // namespace
}  // namespace artery::engine
