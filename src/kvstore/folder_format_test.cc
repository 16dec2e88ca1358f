#include "kvstore/folder_format.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "kvstore/record_format.h"
#include "kvstore/wire.h"

namespace artery::kvstore {
namespace {

using Bytes = std::vector<std::byte>;

Bytes blocks(std::int64_t bytes) { return Bytes(static_cast<std::size_t>(bytes), std::byte{0xEE}); }

IndexEntry entry_of(int i) {
  IndexEntry e;
  e.ttl = static_cast<TtlClass>(i % kTtlClasses);
  e.record = static_cast<RecordKind>(i % 2);
  e.encrypted = i % 3 == 0;
  e.place = {7, kBlock * (1 + 2 * i), 2 * kBlock};
  e.pages = 1 + i % 16;
  e.uses = i;
  e.space = 0x1122334455667788 + static_cast<std::uint64_t>(i);
  e.key.fill(static_cast<std::uint8_t>(i));
  e.parent.fill(static_cast<std::uint8_t>(i + 100));
  e.written_s = 1'800'000'000 + i;
  e.last_use_s = 1'800'000'100 + i;
  e.guaranteed_until_s = i % 4 == 0 ? 0 : 1'900'000'000;
  e.sequence = static_cast<std::uint64_t>(i) << 33;
  return e;
}

std::vector<IndexEntry> entries_of(int count) {
  std::vector<IndexEntry> entries;
  for (int i = 0; i < count; ++i) entries.push_back(entry_of(i));
  return entries;
}

// Decodes with each bit of `bytes` flipped in turn (every `step` bytes); all must be refused as
// damage.
template <typename Decode>
void expect_flips_seen(Bytes bytes, std::size_t end, std::size_t step, const Decode& decode) {
  for (std::size_t at = 0; at < end; at += step) {
    const auto mask = static_cast<std::byte>(1u << (at % 8));
    bytes[at] ^= mask;
    const auto got = decode(std::span<const std::byte>(bytes));
    EXPECT_FALSE(got) << at;
    if (!got) {
      EXPECT_EQ(got.error().code, Code::kBadFile) << at;
    }
    bytes[at] ^= mask;
  }
  EXPECT_TRUE(decode(std::span<const std::byte>(bytes)));
}

TEST(FolderFormat, AnEntrySaysWhatItsRecordSays) {
  RecordHeader header;
  header.kind = RecordKind::kWindow;
  header.ttl = TtlClass::kChat;
  header.encrypted = true;
  header.space.fill(3);
  header.key.fill(1);
  header.parent.fill(2);
  header.pages = 5;
  header.written_s = 70;
  header.guaranteed_until_s = 80;
  header.sequence = 90;
  const IndexEntry entry = put_entry(header, {7, 8192, 4096});
  EXPECT_EQ(entry.record, header.kind);
  EXPECT_EQ(entry.ttl, header.ttl);
  EXPECT_TRUE(entry.encrypted);
  EXPECT_EQ(entry.space, space_tag(header.space));
  EXPECT_EQ(entry.key, header.key);
  EXPECT_EQ(entry.parent, header.parent);
  EXPECT_EQ(entry.pages, 5);
  EXPECT_EQ(entry.place.offset, 8192);
  EXPECT_EQ(entry.written_s, 70);
  EXPECT_EQ(entry.last_use_s, 70);
  EXPECT_EQ(entry.guaranteed_until_s, 80);
  EXPECT_EQ(entry.sequence, 90u);
}

TEST(FolderFormat, SegmentHeader) {
  Bytes block = blocks(kBlock);
  encode_segment_header({12, TtlClass::kChat, 3, 1'800'000'000, 256 << 20}, block);
  const auto decode = [](std::span<const std::byte> b) { return decode_segment_header(b, "seg"); };
  const auto got = decode(block);
  ASSERT_TRUE(got) << got.error().message;
  EXPECT_EQ(got->segment, 12u);
  EXPECT_EQ(got->ttl, TtlClass::kChat);
  EXPECT_EQ(got->epoch, 3u);
  EXPECT_EQ(got->created_s, 1'800'000'000);
  EXPECT_EQ(got->bytes, 256 << 20);
  expect_flips_seen(block, block.size(), 1, decode);
  EXPECT_FALSE(decode(std::span(block).first(4095)));
}

TEST(FolderFormat, FooterAndTrailer) {
  for (const int count : {0, 1, 31, 32, 33, 200}) {
    const auto entries = entries_of(count);
    const std::int64_t end = kBlock * (1 + 2 * count);
    Bytes footer = blocks(footer_bytes(count));
    encode_footer({7, TtlClass::kAgent, 4, 1'800'000'555, end, 0}, entries, footer);
    const auto block = std::span(footer).last(kBlock);
    const auto trailer = decode_trailer(block, end + footer_bytes(count), "t");
    ASSERT_TRUE(trailer) << trailer.error().message;
    EXPECT_EQ(trailer->segment, 7u);
    EXPECT_EQ(trailer->ttl, TtlClass::kAgent);
    EXPECT_EQ(trailer->epoch, 4u);
    EXPECT_EQ(trailer->sealed_s, 1'800'000'555);
    EXPECT_EQ(trailer->records_end, end);
    EXPECT_EQ(trailer->entries, count);
    const auto got = decode_footer(*trailer, footer, "f");
    ASSERT_TRUE(got) << got.error().message;
    EXPECT_EQ(*got, entries);
    EXPECT_FALSE(decode_trailer(block, end + footer_bytes(count) + kBlock, "t"));
    EXPECT_FALSE(decode_footer(*trailer, std::span(footer).first(footer.size() - 1), "f"));
  }
}

TEST(FolderFormat, DamagedFootersAreSeen) {
  const auto entries = entries_of(40);
  const std::int64_t end = kBlock * 81;
  Bytes footer = blocks(footer_bytes(40));
  encode_footer({7, TtlClass::kAgent, 4, 5, end, 0}, entries, footer);
  const Bytes block(footer.end() - kBlock, footer.end());
  const auto trailer = decode_trailer(block, end + footer_bytes(40), "t");
  ASSERT_TRUE(trailer);
  expect_flips_seen(block, block.size(), 7, [&](std::span<const std::byte> b) {
    return decode_trailer(b, end + footer_bytes(40), "t");
  });
  expect_flips_seen(footer, 40 * 128, 7, [&](std::span<const std::byte> b) {
    return decode_footer(*trailer, b, "t");
  });
}

TEST(FolderFormat, AFooterOfRecordsElsewhereIsRefused) {
  const auto refused = [](const IndexEntry& entry) {
    const std::int64_t end = kBlock * 3;
    Bytes footer = blocks(footer_bytes(1));
    encode_footer({7, TtlClass::kAgent, 4, 5, end, 0}, std::span(&entry, 1), footer);
    const auto trailer = decode_trailer(std::span(footer).last(kBlock), end + footer_bytes(1), "t");
    return trailer && !decode_footer(*trailer, footer, "f");
  };
  EXPECT_FALSE(refused(entry_of(0)));
  IndexEntry e = entry_of(0);
  e.place.segment = 8;
  EXPECT_TRUE(refused(e));
  e = entry_of(0);
  e.place.offset = 0;
  EXPECT_TRUE(refused(e));
  e = entry_of(0);
  e.place.bytes = 3 * kBlock;
  EXPECT_TRUE(refused(e));
  e = entry_of(0);
  e.kind = EntryKind::kErase;
  EXPECT_TRUE(refused(e));
}

TEST(FolderFormat, JournalBatchesFollowOneAnother) {
  Bytes header = blocks(kBlock);
  encode_journal_header({5, 6, 7}, header);
  const auto decode = [](std::span<const std::byte> b) { return decode_journal_header(b, "j"); };
  ASSERT_TRUE(decode(header));
  EXPECT_EQ(decode(header)->journal, 5u);
  EXPECT_EQ(decode(header)->epoch, 6u);
  EXPECT_EQ(decode(header)->created_s, 7);
  expect_flips_seen(header, header.size(), 7, decode);

  Bytes file;
  for (std::uint64_t s = 1; s <= 3; ++s) {
    const Batch batch{5, s, 1'800'000'000, entries_of(static_cast<int>(s) * 31), 0};
    Bytes out = blocks(batch_bytes(static_cast<std::int64_t>(batch.entries.size())));
    encode_batch(batch, out);
    file.insert(file.end(), out.begin(), out.end());
  }
  file.resize(file.size() + kBlock);  // what was reserved and not written
  std::span<const std::byte> rest(file);
  for (std::uint64_t s = 1; s <= 3; ++s) {
    EXPECT_FALSE(decode_batch(rest, 4, s, "j"));
    EXPECT_FALSE(decode_batch(rest, 5, s + 1, "j"));
    const auto batch = decode_batch(rest, 5, s, "j");
    ASSERT_TRUE(batch) << batch.error().message;
    EXPECT_EQ(batch->entries, entries_of(static_cast<int>(s) * 31));
    EXPECT_EQ(batch->time_s, 1'800'000'000);
    rest = rest.subspan(static_cast<std::size_t>(batch->bytes));
  }
  EXPECT_EQ(rest.size(), static_cast<std::size_t>(kBlock));
  EXPECT_FALSE(decode_batch(rest, 5, 4, "j"));
}

TEST(FolderFormat, TornBatchesAreSeen) {
  const Batch batch{5, 1, 9, entries_of(100), 0};
  Bytes out = blocks(batch_bytes(100));
  encode_batch(batch, out);
  const auto decode = [](std::span<const std::byte> b) { return decode_batch(b, 5, 1, "j"); };
  expect_flips_seen(out, 64 + 100 * 128, 7, decode);
  for (std::size_t size = 0; size < out.size(); size += 511) {
    EXPECT_FALSE(decode(Bytes(out.begin(), out.begin() + static_cast<std::ptrdiff_t>(size))));
  }
  for (std::size_t at = 0; at < out.size(); at += kBlock) {  // a block that never came
    Bytes torn = out;
    std::fill_n(torn.begin() + static_cast<std::ptrdiff_t>(at), kBlock, std::byte{0});
    EXPECT_FALSE(decode(torn)) << at;
  }
}

TEST(FolderFormat, AllEntryKinds) {
  Batch batch{1, 1, 1, entries_of(kEntryKinds), 0};
  for (int i = 0; i < kEntryKinds; ++i) {
    batch.entries[static_cast<std::size_t>(i)].kind = static_cast<EntryKind>(i);
  }
  batch.entries[0].uses = 70'000;
  Bytes out = blocks(batch_bytes(kEntryKinds));
  encode_batch(batch, out);
  batch.entries[0].uses = 65'535;
  EXPECT_EQ(decode_batch(out, 1, 1, "j")->entries, batch.entries);
  wire::put(std::span(out), 64, std::uint8_t{kEntryKinds});
  wire::seal(std::span(out).first(64 + kEntryKinds * 128), "ArteryJB", 1);
  EXPECT_EQ(decode_batch(out, 1, 1, "j").error().code, Code::kBadFile);
}

Bytes super_file(std::uint64_t newest) {
  Bytes file = blocks(2 * kBlock);
  for (const std::uint64_t g : {newest - 1, newest}) {
    SuperBlock super{g, 4, 5, 7, g % 2 == 0, 8, 9};
    if (g % 2 == 0) super.secret_check = 0xE3069283;
    encode_super(super, std::span(file).subspan(static_cast<std::size_t>(super_offset(g)), kBlock));
  }
  return file;
}

TEST(FolderFormat, TheNewerSuperBlockCounts) {
  for (const std::uint64_t newest : {8u, 9u}) {
    Bytes file = super_file(newest);
    const auto got = pick_super(file, "super");
    ASSERT_TRUE(got) << got.error().message;
    EXPECT_EQ(got->generation, newest);
    EXPECT_EQ(got->epoch, 4u);
    EXPECT_EQ(got->journal, 5u);
    EXPECT_EQ(got->next_segment, 7u);
    EXPECT_EQ(got->is_clean, newest % 2 == 0);
    EXPECT_EQ(got->created_s, 8);
    EXPECT_EQ(got->changed_s, 9);
    EXPECT_EQ(got->secret_check.has_value(), newest % 2 == 0);
    EXPECT_EQ(got->secret_check.value_or(0xE3069283), 0xE3069283);
    for (std::size_t i = 0; i < 128; ++i) {  // any damage of the newer slot: the older one
      Bytes torn = file;
      torn[static_cast<std::size_t>(super_offset(newest)) + i] ^= std::byte{1};
      const auto older = pick_super(torn, "super");
      ASSERT_TRUE(older) << i;
      EXPECT_EQ(older->generation, newest - 1);
    }
    std::fill(file.begin(), file.end(), std::byte{0});
    EXPECT_EQ(pick_super(file, "super").error().code, Code::kBadFile);
  }
  EXPECT_FALSE(pick_super({}, "super"));
  const Bytes whole = super_file(8);
  EXPECT_TRUE(pick_super(std::span(whole).first(kBlock), "super"));
}

TEST(FolderFormat, AStoreOfAnotherVersionIsRefused) {
  Bytes file = super_file(8);
  wire::seal(std::span(file).first(kBlock), "ArterySB", 2);
  EXPECT_EQ(pick_super(file, "super").error().code, Code::kUnsupported);
}

TEST(FolderFormat, Names) {
  EXPECT_EQ(segment_name(12), "seg-00000012.akv");
  EXPECT_EQ(segment_of("seg-00000012.akv"), 12u);
  EXPECT_EQ(segment_of(segment_name(0xFFFFFFFF)), 0xFFFFFFFFu);
  EXPECT_EQ(journal_name(3), "journal-00000003.akj");
  EXPECT_EQ(journal_of(journal_name(1'234'567'890'123)), 1'234'567'890'123u);
  for (const char* other :
       {"seg-12.akv",
        "seg-00000012.akj",
        "seg-0000001x.akv",
        "seg-000000012.akv",
        "seg-.akv",
        "seg-99999999999.akv",
        "xseg-00000012.akv",
        "seg-00000012.akv~",
        ""}) {
    EXPECT_FALSE(segment_of(other)) << other;
  }
}

}  // namespace
}  // namespace artery::kvstore
