// A tenant's quota: what goes for it, in which order, what stays; and promises that come while a
// segment is being given up.

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <vector>

#include "kvstore/catalog.h"
#include "kvstore/catalog_testing.h"
#include "kvstore/leaf_order.h"

namespace artery::kvstore {
namespace {

using catalog_testing::CatalogTest;
using catalog_testing::kDay;
using catalog_testing::kPages;
using catalog_testing::kRecord;

using Refusal = Catalog::Refusal;

class CatalogQuota : public CatalogTest {
 protected:
  static constexpr SpaceId kAcme = 1;

  // One record, number `i`.
  static TestChain one(std::uint64_t i) { return TestChain::make(kPages, 10'000 + i); }
  Refusal write_one(std::uint64_t i, std::int64_t now, std::int64_t until = 0) {
    RecordFacts facts = one(i).facts(kAcme, 0, kPages, TtlClass::kAgent);
    facts.guaranteed_until_s = until;
    return write(facts, now);
  }
  bool has_one(std::uint64_t i, std::int64_t now) { return find(one(i), now, kAcme).pages > 0; }
  std::vector<std::uint64_t> those_of(std::uint64_t count, std::int64_t now) {
    std::vector<std::uint64_t> out;
    for (std::uint64_t i = 0; i < count; ++i)
      if (has_one(i, now)) out.push_back(i);
    return out;
  }
  std::int64_t bytes_of_acme(std::int64_t now) {
    StoreStatus status;
    catalog_->fill(status, now);
    return status.tenants.at(1).bytes;
  }
  // Steps until nothing is left to give up.
  int enforce(std::int64_t now) {
    int steps = 1;
    while (catalog_->enforce_quotas(now)) ++steps;
    catalog_->check_integrity();
    return steps;
  }
};

TEST_F(CatalogQuota, WhatWasUsedLongestAgoGoesFirst) {
  start(256);
  catalog_->set_quota("acme", 6 * kRecord);
  for (std::uint64_t i = 0; i < 6; ++i)
    EXPECT_EQ(write_one(i, static_cast<std::int64_t>(10 * i)), Refusal::kNone);
  EXPECT_TRUE(catalog_->take_evicted().empty());
  catalog_->touch(kAcme, one(0).keys, kPages, TtlClass::kAgent, 0, 70);
  catalog_->touch(kAcme, one(2).keys, kPages, TtlClass::kAgent, 0, 80);
  const std::vector<std::uint64_t> order{1, 3, 4, 5, 0, 2};
  for (std::uint64_t i = 0; i < order.size(); ++i) {
    EXPECT_EQ(write_one(100 + i, 100 + static_cast<std::int64_t>(i)), Refusal::kNone);
    const auto evicted = catalog_->take_evicted();
    ASSERT_EQ(evicted.size(), 1u);
    EXPECT_EQ(short_key(evicted[0].key), short_key(one(order[i]).keys.back())) << i;
    EXPECT_EQ(evicted[0].place.bytes, kRecord);
    EXPECT_FALSE(has_one(order[i], 110));
    catalog_->check_integrity();
  }
  EXPECT_EQ(bytes_of_acme(110), 6 * kRecord);
}

TEST_F(CatalogQuota, AChainGoesFromItsEnd) {
  start(256);
  catalog_->set_quota("acme", 8 * kRecord);
  const TestChain old = TestChain::make(5 * kPages, 1);
  write(old, kAcme, TtlClass::kAgent, 0);
  // Its begin was used again, so the end is what was used longest ago; then the rest.
  catalog_->touch(kAcme, old.keys, 2 * kPages, TtlClass::kAgent, 0, 50);
  for (std::uint64_t i = 0; i < 3; ++i) write_one(i, 60);
  for (std::int64_t left = 4; left >= 0; --left) {
    write_one(10 + static_cast<std::uint64_t>(left), 70);
    EXPECT_EQ(find(old, 70, kAcme).pages, left * kPages);
  }
  catalog_->check_integrity();
}

// Records of one second too: who came first goes first.
TEST_F(CatalogQuota, IsACapAndNeverAFreeze) {
  start(256);
  catalog_->set_quota("acme", 5 * kRecord);
  for (std::uint64_t i = 0; i < 40; ++i) ASSERT_EQ(write_one(i, 7), Refusal::kNone) << i;
  EXPECT_EQ(those_of(40, 7), (std::vector<std::uint64_t>{35, 36, 37, 38, 39}));
  EXPECT_EQ(find(one(3), 7, kAcme).miss, MissReason::kTenant);
}

// What is being written can't go, but it can as soon as it is there.
TEST_F(CatalogQuota, WhatIsBeingWrittenMakesRoomLater) {
  start(256);
  catalog_->set_quota("acme", 4 * kRecord);
  for (int round = 0; round < 50; ++round) {
    const auto first = static_cast<std::uint64_t>(round) * 10;
    for (std::uint64_t i = first; i < first + 4; ++i) {
      const auto facts = one(i).facts(kAcme, 0, kPages, TtlClass::kAgent);
      const Catalog::Placed placed = catalog_->place(facts, kRecord, round);
      ASSERT_EQ(placed.refusal, Refusal::kNone) << "round " << round;
      if (placed.seal) catalog_->seal(*placed.seal, limits_.segment_bytes);
    }
    const auto more = one(first + 4).facts(kAcme, 0, kPages, TtlClass::kAgent);
    EXPECT_EQ(catalog_->place(more, kRecord, round).refusal, Refusal::kQuota);
    catalog_->check_integrity();
    for (std::uint64_t i = first; i < first + 4; ++i) {
      if (i % 3 == 0)
        catalog_->forget(one(i).keys.back());
      else
        catalog_->commit(one(i).keys.back(), round);
    }
    catalog_->check_integrity();
    while (catalog_->pressure() > 0 && reclaim(round)) {
    }
  }
}

TEST_F(CatalogQuota, PromisedRecordsStayAndTheRestGivesWay) {
  start(256);
  catalog_->set_quota("acme", 4 * kRecord);
  EXPECT_EQ(write_one(0, 0, 1000), Refusal::kNone);
  EXPECT_EQ(write_one(1, 0, 2000), Refusal::kNone);
  for (std::uint64_t i = 2; i < 20; ++i) ASSERT_EQ(write_one(i, 10), Refusal::kNone);
  EXPECT_EQ(those_of(20, 10), (std::vector<std::uint64_t>{0, 1, 18, 19}));
  // A touch may promise the others too: then nothing can go.
  for (const std::uint64_t i : {18U, 19U})
    catalog_->touch(kAcme, one(i).keys, kPages, TtlClass::kAgent, 1500, 20);
  EXPECT_EQ(write_one(30, 30), Refusal::kQuota);
  EXPECT_EQ(find(one(30), 30, kAcme).miss, MissReason::kTenant) << "why it is not there";
  EXPECT_EQ(those_of(20, 1000), (std::vector<std::uint64_t>{0, 1, 18, 19}));
  // As promises end, the tenant goes on, with what was used longest ago.
  EXPECT_EQ(write_one(31, 1001), Refusal::kNone);
  EXPECT_EQ(those_of(20, 1001), (std::vector<std::uint64_t>{1, 18, 19}));
  EXPECT_EQ(write_one(32, 1001), Refusal::kNone) << "31 goes";
  EXPECT_EQ(write_one(33, 1501), Refusal::kNone);
  EXPECT_EQ(those_of(20, 1501), (std::vector<std::uint64_t>{1, 19})) << "18: older than 32";
  // The clock goes back: what was promised for then is kept again.
  EXPECT_EQ(write_one(34, 900), Refusal::kNone);
  EXPECT_EQ(those_of(20, 900), (std::vector<std::uint64_t>{1, 19}));
  catalog_->check_integrity();
}

TEST_F(CatalogQuota, WhatTheNewOneHangsOnStays) {
  start(256);
  catalog_->set_quota("acme", 4 * kRecord);
  const TestChain chain = TestChain::make(6 * kPages, 1);
  EXPECT_EQ(write(chain, kAcme, TtlClass::kAgent, 0), 4);
  EXPECT_EQ(find(chain, 0, kAcme).pages, 4 * kPages);
  EXPECT_EQ(find(chain, 0, kAcme).miss, MissReason::kTenant);
  // Another one takes its place, from its end; and that one goes on over the rest of it.
  const TestChain next = TestChain::make(3 * kPages, 2);
  EXPECT_EQ(write(next, kAcme, TtlClass::kAgent, 5), 3);
  EXPECT_EQ(find(next, 5, kAcme).pages, 3 * kPages);
  EXPECT_EQ(find(chain, 5, kAcme).pages, kPages);
}

TEST_F(CatalogQuota, ALowerOneFreesInBoundedSteps) {
  start(6000, 64);
  catalog_->set_quota("acme", 4000 * kRecord);
  write(TestChain::make(40, 999), 0, TtlClass::kAgent, 0);
  for (std::uint64_t i = 0; i < 3000; ++i) write_one(i, static_cast<std::int64_t>(i));
  EXPECT_EQ(enforce(3000), 1);
  catalog_->set_quota("acme", 500 * kRecord);
  std::int64_t before = bytes_of_acme(3000);
  int steps = 0;
  for (bool more = true; more; ++steps) {
    more = catalog_->enforce_quotas(3000);
    const std::int64_t now = bytes_of_acme(3000);
    EXPECT_LE(before - now, 1000 * kRecord) << "a step takes too long";
    EXPECT_TRUE(!more || now < before) << "a step that does nothing";
    before = now;
  }
  EXPECT_GT(steps, 3);
  EXPECT_EQ(before, 500 * kRecord);
  const auto left = those_of(3000, 3000);
  ASSERT_EQ(left.size(), 500u);
  EXPECT_EQ(left.front(), 2500u) << "the newest stay";
  EXPECT_EQ(catalog_->take_evicted().size(), 2500u);
  EXPECT_EQ(find(TestChain::make(40, 999), 3000).pages, 40) << "another tenant's";
  // No quota is none, also one that was.
  catalog_->set_quota("acme", 0);
  for (std::uint64_t i = 5000; i < 6000; ++i) EXPECT_EQ(write_one(i, 3100), Refusal::kNone);
  EXPECT_EQ(bytes_of_acme(3100), 1500 * kRecord);
  catalog_->set_quota("acme", 1000 * kRecord);
  enforce(3100);
  EXPECT_EQ(those_of(6000, 3100).front(), 5000u);
  EXPECT_EQ(bytes_of_acme(3100), 1000 * kRecord);
}

// One that is given to a tenant who has records already: these are put in order step by step.
TEST_F(CatalogQuota, ANewOneFindsWhatIsThere) {
  start(30'000, 512);
  write(TestChain::make(40, 999), 0, TtlClass::kAgent, 0);
  for (std::uint64_t i = 0; i < 20'000; ++i) write_one(i, static_cast<std::int64_t>(i / 10));
  for (std::uint64_t i = 0; i < 100; ++i)
    catalog_->touch(kAcme, one(i).keys, kPages, TtlClass::kAgent, 0, 5000);
  StoreStatus before, after;
  catalog_->fill(before, 5000);
  catalog_->set_quota("acme", 200 * kRecord);
  EXPECT_GT(enforce(5000), 20);
  catalog_->fill(after, 5000);
  EXPECT_LT(after.index_bytes - before.index_bytes, 20'000 * (12 * 2 + 4) + 65'536);
  const auto left = those_of(20'000, 5000);
  ASSERT_EQ(left.size(), 200u);
  EXPECT_EQ(left[99], 99u);
  EXPECT_EQ(left[100], 19'900u);
  // While they are not in order yet, a new record finds room nevertheless.
  start(30'000, 512);
  for (std::uint64_t i = 0; i < 20'000; ++i) write_one(i, static_cast<std::int64_t>(i / 10));
  catalog_->set_quota("acme", 20'000 * kRecord);
  EXPECT_EQ(write_one(20'000, 5000), Refusal::kNone);
  EXPECT_EQ(bytes_of_acme(5000), 20'000 * kRecord);
  enforce(5000);
}

TEST_F(CatalogQuota, HoldsAfterARecovery) {
  start(256);
  for (std::uint64_t i = 0; i < 60; ++i)
    write_one(i, static_cast<std::int64_t>(i), i == 3 ? 500 : 0);
  Catalog next(limits_);
  next.add_space(0, "", kPages);
  next.add_space(kAcme, "acme", kPages);
  next.set_quota("acme", 10 * kRecord);
  for (const SegmentId id : catalog_->segments())
    next.restore_segment(id, TtlClass::kAgent, limits_.segment_bytes, true);
  for (const SegmentId id : catalog_->segments())
    for (const Entry& entry : catalog_->records_of(id)) next.restore(entry, 60);
  next.end_restore(60);
  while (next.enforce_quotas(60)) {
  }
  next.check_integrity();
  StoreStatus status;
  next.fill(status, 60);
  EXPECT_EQ(status.tenants.at(1).bytes, 10 * kRecord);
  EXPECT_EQ(next.take_evicted().size(), 50u);
  for (std::uint64_t i = 0; i < 60; ++i)
    EXPECT_EQ(next.contains(one(i).keys.back(), 60), i == 3 || i >= 51) << i;
}

// A promise comes by a record; what that hangs on may have been promised by a word that was lost.
TEST_F(CatalogQuota, AfterARecoveryAPromiseReachesUp) {
  start(64);
  const TestChain chain = TestChain::make(3 * kPages, 1);
  write(chain, 0, TtlClass::kTenMinutes, 0);
  Catalog next(limits_);
  next.add_space(0, "", kPages);
  for (const SegmentId id : catalog_->segments())
    next.restore_segment(id, TtlClass::kTenMinutes, limits_.segment_bytes, true);
  for (const SegmentId id : catalog_->segments())
    for (Entry entry : catalog_->records_of(id)) {
      if (short_key(entry.facts.key) == short_key(chain.keys.back()))
        entry.facts.guaranteed_until_s = kDay;
      next.restore(entry, 1);
    }
  next.end_restore(1);
  EXPECT_EQ(next.find(0, chain.keys, kDay).pages, 3 * kPages);
  EXPECT_EQ(next.find(0, chain.keys, kDay + 1).pages, 0);
}

TEST_F(CatalogQuota, ATailThatWentIsNamed) {
  start(64);
  catalog_->set_quota("acme", kRecord);
  const TestChain chain = TestChain::make(2 * kPages, 1);
  EXPECT_EQ(write(chain.facts(kAcme, 0, 2, TtlClass::kAgent), 0), Refusal::kNone);
  EXPECT_EQ(write_one(1, 5), Refusal::kNone);
  EXPECT_EQ(find(chain, 5, kAcme).miss, MissReason::kTenant) << "a longer prompt than the tail was";
}

// --- promises while a segment is given up

TEST_F(CatalogQuota, APromiseDuringAReclaimIsKept) {
  start(32);
  std::uint64_t i = 0;
  while (write_one(i, static_cast<std::int64_t>(i)) == Refusal::kNone) ++i;
  const auto victim = catalog_->victim(1000);
  ASSERT_TRUE(victim);
  std::vector<std::uint64_t> dropped;
  for (std::uint64_t k = 0; k < i; ++k) {
    const auto entry = catalog_->look_up(one(k).keys.back());
    if (entry->place.segment == victim->segment) dropped.push_back(k);
  }
  ASSERT_GT(dropped.size(), victim->keep.size());
  // Now, between that and the end.
  const std::uint64_t late = dropped.front();
  catalog_->touch(kAcme, one(late).keys, kPages, TtlClass::kAgent, kDay, 1000);
  std::vector<Entry> tried = victim->keep;
  std::vector<Entry> more = catalog_->drop_victim(victim->segment, tried, 1000);
  ASSERT_EQ(more.size(), 1u);
  EXPECT_EQ(short_key(more[0].facts.key), short_key(one(late).keys.back()));
  const auto placed = catalog_->place_copy(more[0].facts.key, 1000);
  ASSERT_EQ(placed.refusal, Refusal::kNone);
  EXPECT_TRUE(catalog_->commit_copy(more[0].facts.key, placed.place));
  tried.push_back(more[0]);
  EXPECT_TRUE(catalog_->drop_victim(victim->segment, tried, 1000).empty());
  EXPECT_TRUE(std::ranges::count(catalog_->segments(), victim->segment) == 0);
  EXPECT_TRUE(has_one(late, kDay));
  EXPECT_FALSE(has_one(dropped.back(), 1000));
  catalog_->check_integrity();
}

TEST_F(CatalogQuota, ASegmentThatCameToLifeStays) {
  start(64);
  ASSERT_EQ(write_one(0, 0), Refusal::kNone);
  catalog_->erase(one(0).keys.back(), MissReason::kChecksum);
  const auto dead = catalog_->dead_segments(10);
  ASSERT_EQ(dead.size(), 1u);
  ASSERT_EQ(write_one(1, 10, kDay), Refusal::kNone);  // into the one that is still open
  EXPECT_FALSE(catalog_->drop_dead(dead[0], 10));
  EXPECT_TRUE(has_one(1, kDay));
  EXPECT_FALSE(catalog_->drop_dead(99, 10));
  catalog_->erase(one(1).keys.back(), MissReason::kChecksum);
  EXPECT_TRUE(catalog_->drop_dead(dead[0], 10));
  EXPECT_TRUE(catalog_->segments().empty());
}

TEST_F(CatalogQuota, ACopyOfWhatWentIsNotTaken) {
  start(64);
  catalog_->set_quota("acme", kRecord);
  ASSERT_EQ(write_one(0, 0), Refusal::kNone);
  const auto placed = catalog_->place_copy(one(0).keys.back(), 1);
  ASSERT_EQ(placed.refusal, Refusal::kNone);
  ASSERT_EQ(write_one(1, 2), Refusal::kNone);
  EXPECT_FALSE(catalog_->commit_copy(one(0).keys.back(), placed.place));
  EXPECT_FALSE(has_one(0, 2));
  catalog_->check_integrity();
}

// --- the order itself, beside a plain map

TEST(LeafOrder, IsWhatAPlainMapSays) {
  using Queue = LeafOrder::Queue;
  struct Known {
    Queue queue;
    std::uint32_t key, turn;
  };
  TestNoise noise(3);
  LeafOrder order;
  std::map<std::pair<int, Slot>, Known> known;  // by tenant and node
  std::uint32_t turn = 0;
  for (int i = 0; i < 20'000; ++i) {
    const auto slot = static_cast<Slot>(noise.below(300) * 50);
    const int tenant = static_cast<int>(slot / 50 % 3);
    if (noise.below(3) == 0) {
      order.remove(tenant, slot);
      known.erase({tenant, slot});
    } else {
      const auto queue = noise.below(3) == 0 ? Queue::kPromised : Queue::kFree;
      const auto key = static_cast<std::uint32_t>(noise.below(40));
      order.put(tenant, queue, slot, key);
      known[{tenant, slot}] = {queue, key, turn++};
    }
    for (const Queue queue : {Queue::kFree, Queue::kPromised}) {
      Slot first = kNil;
      const Known* best = nullptr;
      std::int64_t count = 0;
      for (const auto& [at, one] : known) {
        if (at.first != tenant) continue;
        ++count;
        if (one.queue != queue) continue;
        if (best != nullptr && std::pair(best->key, best->turn) < std::pair(one.key, one.turn))
          continue;
        best = &one;
        first = at.second;
      }
      ASSERT_EQ(order.first(tenant, queue), first) << i;
      ASSERT_EQ(order.count(tenant), count);
    }
    if (i % 100 == 0) order.check_integrity();
  }
  EXPECT_EQ(order.first(7, Queue::kFree), kNil);
}

}  // namespace
}  // namespace artery::kvstore
