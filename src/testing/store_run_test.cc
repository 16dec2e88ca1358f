#include "testing/store_run.h"

#include <gtest/gtest.h>

#include <vector>

#include "testing/mem_record_store.h"

namespace artery::testing {
namespace {

using kvstore::MissReason;

TEST(StoreRun, FindsEverythingThatAPerfectStoreHolds) {
  SimClock clock;
  MemRecordStore store(clock);
  StoreRun run(7, clock);
  run.bind(store, "secret");
  run.steps(store, 300);
  EXPECT_GT(run.taken(), 300);
  EXPECT_GT(run.loads().hits, 50);
  EXPECT_EQ(run.loads().wrong + run.loads().silent + run.loads().unended, 0);
  run.mark_durable();
  const std::int64_t expected = run.expect_durable(store);
  EXPECT_EQ(expected, run.taken());
  StoreTally tally;
  EXPECT_EQ(run.check(store, tally), expected) << tally.text();
  EXPECT_EQ(tally.hits, tally.wanted);

  store.damage_all();
  StoreTally damaged;
  EXPECT_EQ(run.check(store, damaged), 0);
  EXPECT_EQ(damaged.hits, 0);
  EXPECT_GT(damaged.missed(MissReason::kChecksum), 0);
  EXPECT_EQ(damaged.silent, 0);
}

TEST(StoreRun, OneSeedOneRun) {
  std::vector<std::string> digests;
  for (const std::uint64_t seed : {1u, 1u, 2u}) {
    SimClock clock;
    MemRecordStore store(clock);
    StoreRun run(seed, clock);
    run.bind(store, "secret " + std::to_string(digests.size()));
    run.steps(store, 100);
    digests.push_back(run.digest());
  }
  EXPECT_EQ(digests[0], digests[1]);
  EXPECT_NE(digests[0], digests[2]);
}

TEST(StoreRun, AWrongByteIsSeen) {
  ChainKey key{};
  key[0] = 1;
  std::vector<std::byte> payload(1000);
  fill_payload(key, payload);
  EXPECT_TRUE(is_payload_of(key, payload));
  payload[999] ^= std::byte{1};
  EXPECT_FALSE(is_payload_of(key, payload));
  key[0] = 2;
  fill_payload(key, payload);
  key[0] = 1;
  EXPECT_FALSE(is_payload_of(key, payload));
}

}  // namespace
}  // namespace artery::testing
