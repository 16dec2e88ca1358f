// What start-up, loads and writes of a store cost. Limits are loose, machines are shared; the
// figures are printed, and `artery bench kv` measures them properly.

#include <chrono>
#include <ctime>
#include <fstream>

#include "kvstore/folder_format.h"
#include "kvstore/raw_read.h"
#include "kvstore/record_format.h"
#include "kvstore/slot_pool.h"
#include "kvstore/spaces.h"
#include "kvstore/store_testing.h"

namespace artery::kvstore {
namespace {

using namespace store_testing;

constexpr int kPages = 16;
constexpr std::int64_t kPayload = 227'840;  // 256 tokens of V4.1's global KV
constexpr std::int64_t kRecord = 229'376;
constexpr std::int64_t kSegment = 256 << 20;

SpaceSpec v41_space() {
  return {
      .identity = "v41",
      .tenant = "",
      .model = "V4.1",
      .page_bytes = kPayload / kPages,
      .record_pages = kPages,
  };
}

StoreConfig large_config(const std::string& folder, std::int64_t bytes_max) {
  StoreConfig config;
  config.folder = folder;
  config.bytes_max = bytes_max;
  config.record_bytes_max = kPayload;
  return config;
}

double seconds_since(std::chrono::steady_clock::time_point begun) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
}

ChainKey key_of(std::uint64_t number) { return sha256(std::as_bytes(std::span(&number, 1))); }

// A sealed segment of which only first block, footer and trailer are there: the records are a hole.
void make_sparse_segment(const std::string& path, SegmentId id, std::int64_t now_s) {
  const std::int64_t count =
      (kSegment - kBlock - (kSegment / kRecord + 64) * kEntryBytes) / kRecord;
  std::vector<IndexEntry> entries(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) {
    IndexEntry& entry = entries[static_cast<std::size_t>(i)];
    const std::uint64_t number = (std::uint64_t{id} << 32U) + static_cast<std::uint64_t>(i);
    entry.ttl = TtlClass::kAgent;
    entry.place = {id, kBlock + i * kRecord, kRecord};
    entry.pages = kPages;
    entry.space = space_tag(space_digest("v41", ""));
    entry.key = key_of(number);
    entry.parent = i == 0 ? key_of(~number) : key_of(number - 1);
    entry.written_s = entry.last_use_s = now_s;
    entry.sequence = number;
  }
  const Trailer trailer{
      .segment = id,
      .ttl = TtlClass::kAgent,
      .epoch = 1,
      .sealed_s = now_s,
      .records_end = kBlock + count * kRecord,
      .entries = count,
  };
  const AlignedBytes footer(footer_bytes(count));
  encode_footer(trailer, entries, footer.span());
  const AlignedBytes first(kBlock);
  encode_segment_header(
      {.segment = id, .ttl = TtlClass::kAgent, .epoch = 1, .created_s = now_s, .bytes = kSegment},
      first.span()
  );
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(first.span().data()), kBlock);
  file.seekp(trailer.records_end);
  file.write(
      reinterpret_cast<const char*>(footer.span().data()),
      static_cast<std::streamsize>(footer.span().size())
  );
  ASSERT_TRUE(file.good());
}

TEST(StoreSpeed, AHundredGigabytesOpenFast) {
  const TempFolder folder(TempFolder::Where::kDisk);
  const StoreConfig config = large_config(folder.path(), std::int64_t{128} << 30);
  {
    const auto store = open_store(config);
    const SpaceId space = store->open_space(v41_space());
    const ChainKey key = key_of(1);
    RecordFacts facts;
    facts.space = space;
    facts.key = key;
    facts.pages = kPages;
    ASSERT_EQ(store->offer(facts, {}, [](std::span<std::byte>) {}), Offer::kTaken);
    ASSERT_TRUE(store->flush());
  }
  const std::int64_t now_s = system_clock().unix_ms() / 1000;
  constexpr SegmentId kSegments = 400;
  for (SegmentId id = 100; id < 100 + kSegments; ++id) {
    make_sparse_segment(folder.file(segment_name(id)), id, now_s);
  }
  double best = 1e9;
  for (int i = 0; i < 3; ++i) {
    const auto begun = std::chrono::steady_clock::now();
    const auto store = open_store(config);
    best = std::min(best, seconds_since(begun));
    const StoreStatus status = store->status();
    EXPECT_GT(status.records, 467'000);
    EXPECT_EQ(status.records, status.recovered_records);
    EXPECT_EQ(status.segments_lost + status.recovery_cuts, 0);
    EXPECT_GT(status.bytes_used, std::int64_t{100} << 30);
  }
  printf("open of 400 sparse segments, 468 K records: %.3f s\n", best);
  EXPECT_LT(best, 10);
}

// Offers a chain of records as fast as they are taken.
std::vector<Wanted> write_records(DiskStore& store, SpaceId space, int records) {
  std::vector<Wanted> wanted;
  for (std::uint64_t i = 0; i < static_cast<std::uint64_t>(records); ++i) {
    RecordFacts facts;
    facts.space = space;
    facts.ttl = TtlClass::kAgent;
    facts.key = key_of(i + 1);
    facts.parent = key_of(i);
    facts.pages = kPages;
    const std::vector<TokenId> ids(kPages * kPageTokens, static_cast<TokenId>(i));
    const auto fill = [&](std::span<std::byte> bytes) {
      std::memset(bytes.data(), 7, bytes.size());
    };
    while (store.offer(facts, ids, fill) == Offer::kRefused) {
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
    wanted.push_back({.key = facts.key, .pages = kPages, .ids = ids});
  }
  return wanted;
}

TEST(StoreSpeed, LoadsAndWrites) {
  const TempFolder folder(TempFolder::Where::kDisk);
  constexpr int kRecords = 391;
  const auto store = open_store(large_config(folder.path(), std::int64_t{2} << 30));
  const SpaceId space = store->open_space(v41_space());
  const auto begun = std::chrono::steady_clock::now();
  const std::vector<Wanted> wanted = write_records(*store, space, kRecords);
  ASSERT_TRUE(store->flush());
  const double written_s = seconds_since(begun);
  const double bytes = static_cast<double>(kRecords * kRecord);
  double load_s = 1e9, cpu_s = 1e9, raw_s = 1e9;
  const std::string file = folder.names("seg-").front();
  for (int round = 0; round < 5; ++round) {
    const std::clock_t cpu_begun = std::clock();
    const auto load_begun = std::chrono::steady_clock::now();
    const LoadId load = store->load(space, wanted, kNoDeadline);
    int pieces = 0;
    std::int64_t sum = 0;
    for (bool has_ended = false; !has_ended;) {
      store->poll(64 << 20, [&](const Piece& piece) {
        if (piece.load != load) return;
        if (!piece.payload.empty()) ++pieces, sum += static_cast<int>(piece.payload[1000]);
        has_ended |= piece.is_last;
      });
      if (!has_ended) std::this_thread::sleep_for(std::chrono::microseconds(100));
      ASSERT_LT(seconds_since(load_begun), 60);
    }
    load_s = std::min(load_s, seconds_since(load_begun));
    const auto cpu = static_cast<double>(std::clock() - cpu_begun) / CLOCKS_PER_SEC;
    cpu_s = std::min(cpu_s, cpu);
    EXPECT_EQ(pieces, kRecords);
    EXPECT_EQ(sum, 7 * kRecords);
    const auto raw = raw_read(
        system_file_system(),
        folder.file(file),
        {.offset = kBlock, .bytes = kRecords * kRecord, .request_bytes = kRecord}
    );
    ASSERT_TRUE(raw) << raw.error().message;
    raw_s = std::min(raw_s, raw->seconds);
  }
  const StoreStatus status = store->status();
  printf(
      "%s: write %.0f MB/s with flush; load of %.1f MB %.1f ms (%.1f ms of CPU), raw read %.1f ms "
      "(%.2f x); predicted %.1f ms\n",
      status.io.c_str(),
      bytes / written_s / 1e6,
      bytes / 1e6,
      load_s * 1e3,
      cpu_s * 1e3,
      raw_s * 1e3,
      load_s / raw_s,
      store->load_seconds(static_cast<std::int64_t>(bytes)) * 1e3
  );
  EXPECT_LT(load_s, 20 * raw_s + 1);
}

}  // namespace
}  // namespace artery::kvstore
