// The plain parts of the disk store: budgets, breaker, slots, journal.

#include "kvstore/breaker.h"
#include "kvstore/budget.h"
#include "kvstore/journal.h"
#include "kvstore/segment_file.h"
#include "kvstore/slot_pool.h"
#include "kvstore/store_testing.h"

namespace artery::kvstore {
namespace {

constexpr std::int64_t kSecond = 1'000'000'000;

TEST(TokenBucket, GivesItsRateAndABurst) {
  TokenBucket bucket(1000, 100);  // a burst of 250
  EXPECT_TRUE(bucket.take(250, 0));
  EXPECT_FALSE(bucket.take(1, 0));
  EXPECT_EQ(bucket.wait_ns(100, 0), kSecond / 10);
  EXPECT_TRUE(bucket.take(100, kSecond / 10));
  EXPECT_FALSE(bucket.take(251, kSecond / 10));  // more than the burst waits for a full one
  EXPECT_TRUE(bucket.take(2000, 10 * kSecond));  // and owes the rest
  EXPECT_FALSE(bucket.take(1, 11 * kSecond));
  EXPECT_TRUE(bucket.take(1, 12 * kSecond));
  EXPECT_TRUE(TokenBucket(0, 1).take(std::int64_t{1} << 40, 0));
}

TEST(SpeedMeter, CountsBusyTimeOnce) {
  SpeedMeter meter(5.0);
  EXPECT_EQ(meter.bytes_per_s(), 5.0);
  for (int i = 0; i < 4; ++i) meter.begin(0);  // side by side
  for (int i = 0; i < 4; ++i) meter.end(100, kSecond);
  EXPECT_NEAR(meter.bytes_per_s(), 100, 1);  // closed by the first one's second
  meter.begin(100 * kSecond);                // idle time does not count
  meter.end(400, 101 * kSecond);
  EXPECT_GT(meter.bytes_per_s(), 200);
}

TEST(Breaker, OpensAfterThreeOfAKindAndWaitsLongerEachTime) {
  using Kind = Breaker::Kind;
  Breaker breaker;
  EXPECT_FALSE(breaker.failure(Kind::kRead, 0));
  EXPECT_FALSE(breaker.failure(Kind::kRead, 0));
  breaker.success(Kind::kRead);
  EXPECT_FALSE(breaker.failure(Kind::kRead, 0));
  EXPECT_FALSE(breaker.failure(Kind::kWrite, 0));
  breaker.success(Kind::kRead);  // says nothing of writes
  EXPECT_FALSE(breaker.failure(Kind::kWrite, 0));
  EXPECT_TRUE(breaker.failure(Kind::kWrite, 0));
  EXPECT_FALSE(breaker.failure(Kind::kWrite, 0)) << "counted once";
  double wait = Breaker::kFirstS;
  std::int64_t now = 0;
  for (int i = 0; i < 10; ++i) {
    const auto until = now + static_cast<std::int64_t>(wait * 1e9);
    EXPECT_FALSE(breaker.wants_probe(until - 1));
    ASSERT_TRUE(breaker.wants_probe(until)) << i;
    breaker.probe_begins();
    EXPECT_FALSE(breaker.wants_probe(until)) << "one at a time";
    breaker.probe_ended(false, until);
    now = until;
    wait = std::min(wait * 2, Breaker::kLastS);
  }
  breaker.probe_begins();
  breaker.probe_ended(true, now);
  EXPECT_FALSE(breaker.is_open());
}

TEST(SlotPool, NeitherHalfStarvesTheOther) {
  SlotPool pool(16 * kBlock, kBlock);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(pool.memory().data()) % kBlock, 0u);
  std::vector<int> writes, reads;
  for (int slot = pool.take(SlotPool::Use::kWrite); slot >= 0;
       slot = pool.take(SlotPool::Use::kWrite))
    writes.push_back(slot);
  for (int slot = pool.take(SlotPool::Use::kRead); slot >= 0;
       slot = pool.take(SlotPool::Use::kRead))
    reads.push_back(slot);
  EXPECT_EQ(writes.size(), 8u);
  EXPECT_EQ(reads.size(), 8u);
  pool.give(SlotPool::Use::kRead, reads.back());
  EXPECT_EQ(pool.take(SlotPool::Use::kWrite), -1);
  EXPECT_EQ(pool.take(SlotPool::Use::kRead), reads.back());
}

IndexEntry put(std::uint8_t key, SegmentId segment, std::int64_t block) {
  IndexEntry entry;
  entry.key[0] = key;
  entry.key[31] = 9;
  entry.place = {segment, block * kBlock, kBlock};
  entry.pages = 1;
  return entry;
}

IndexEntry change(EntryKind kind, std::uint8_t key, SegmentId segment) {
  IndexEntry entry = put(key, segment, 0);
  entry.kind = kind;
  return entry;
}

TEST(Journal, ReplaysWhatWasAppendedAndGoesOn) {
  const store_testing::TempFolder folder;
  FileSystem& files = system_file_system();
  ASSERT_TRUE(files.make_folder(folder.path()));
  const JournalHeader header{.journal = 7, .epoch = 1, .created_s = 5};
  auto made = Journal::create(folder.path(), files, header, 64 * kBlock);
  ASSERT_TRUE(made) << made.error().message;
  IndexEntry touch = change(EntryKind::kTouch, 1, 0);
  touch.key[31] = 0;  // of a key, only the first half counts
  touch.ttl = TtlClass::kChat;
  touch.last_use_s = 99;
  ASSERT_TRUE((*made)->append(std::vector{put(1, 3, 1), put(2, 3, 2), put(3, 4, 1)}, 1));
  ASSERT_TRUE((*made)->append(
      std::vector{touch, change(EntryKind::kErase, 2, 3), change(EntryKind::kDropSegment, 0, 4)}, 2
  ));
  const std::string path = folder.file(journal_name(7));
  auto file = files.open_blocks(path, OpenMode::kWrite);
  ASSERT_TRUE(file);
  auto replay = replay_journal(**file, 7, path);
  ASSERT_TRUE(replay) << replay.error().message;
  EXPECT_EQ(replay->sequence, 2u);
  EXPECT_FALSE(replay->is_torn);
  ASSERT_EQ(replay->segments.size(), 1u);
  EXPECT_EQ(replay->segments.at(3).puts.size(), 1u);
  EXPECT_EQ(replay->segments.at(3).end, 3 * kBlock) << "behind what was erased, too";
  EXPECT_TRUE(replay->dropped.contains(4));
  EXPECT_EQ(replay->next_segment, 5u);
  IndexEntry raised = put(1, 3, 1);
  replay->raise(raised);
  EXPECT_EQ(raised.ttl, TtlClass::kChat);
  EXPECT_EQ(raised.last_use_s, 99);
  // A batch that is half there ends it, and is said to be there.
  auto more = Journal::resume(folder.path(), files, 7, replay->end, replay->sequence);
  ASSERT_TRUE(more);
  const Journal::Chunk chunk = (*more)->encode(std::vector{put(4, 5, 1)}, 3);
  chunk.bytes->span()[100] ^= std::byte{1};
  ASSERT_TRUE(write_all(**file, chunk.offset, chunk.bytes->span(), path));
  replay = replay_journal(**file, 7, path);
  ASSERT_TRUE(replay);
  EXPECT_EQ(replay->sequence, 2u);
  EXPECT_TRUE(replay->is_torn);
  ASSERT_TRUE((*more)->append(std::vector{put(4, 5, 1)}, 3));
  replay = replay_journal(**file, 7, path);
  ASSERT_TRUE(replay);
  EXPECT_EQ(replay->sequence, 3u);
  EXPECT_TRUE(replay->segments.contains(5));
  EXPECT_FALSE(replay_journal(**file, 8, path)) << "another's journal";
}

// A record that was given up and written again lies twice in a segment.
TEST(Journal, AnEraseIsOfWhatLayThere) {
  const auto erase = [](std::uint8_t key, std::int64_t block) {
    IndexEntry entry = put(key, 3, block);
    entry.kind = EntryKind::kErase;
    return entry;
  };
  Replay replay;
  for (const IndexEntry& entry : {put(1, 3, 5), erase(1, 2), put(2, 3, 6), erase(2, 6)})
    replay.apply(entry);
  const Replay::OfSegment& segment = replay.segments.at(3);
  const ChainKey one = put(1, 3, 0).key, two = put(2, 3, 0).key;
  EXPECT_EQ(segment.puts.size(), 1u);
  EXPECT_EQ(segment.puts.at(Replay::half(one)).place.offset, 5 * kBlock);
  EXPECT_TRUE(segment.is_erased(one, 2 * kBlock));
  EXPECT_FALSE(segment.is_erased(one, 5 * kBlock));
  EXPECT_TRUE(segment.is_erased(two, 6 * kBlock));
  EXPECT_FALSE(segment.is_erased(put(3, 3, 0).key, kBlock));
  replay.apply(erase(1, 0));  // of stores before this rule: all that lies there
  EXPECT_TRUE(segment.puts.empty());
  EXPECT_TRUE(segment.is_erased(one, 500 * kBlock));
  replay.apply(put(1, 3, 9));
  EXPECT_FALSE(segment.is_erased(one, 9 * kBlock));
}

}  // namespace
}  // namespace artery::kvstore
