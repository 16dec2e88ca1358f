#include "kvstore/record_format.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "base/crc32c.h"
#include "kvstore/wire.h"

namespace artery::kvstore {
namespace {

using Bytes = std::vector<std::byte>;

RecordHeader header_of(int ids, std::int64_t payload) {
  RecordHeader h;
  h.kind = RecordKind::kWindow;
  h.ttl = TtlClass::kAgent;
  h.space = space_digest("weights=1", "tenant");
  for (std::size_t i = 0; i < 32; ++i) {
    h.key[i] = static_cast<std::uint8_t>(i + 1);
    h.parent[i] = static_cast<std::uint8_t>(200 - i);
  }
  h.sequence = 0x0102030405060708;
  h.epoch = 9;
  h.written_s = 1'800'000'000;
  h.guaranteed_until_s = 1'800'003'600;
  h.pages = 16;
  h.ids = ids;
  h.payload_bytes = payload;
  h.nonce.fill(7);
  h.tag.fill(8);
  h.key_id = 0x1112131415161718;
  return h;
}

std::vector<TokenId> ids_of(int count) {
  std::vector<TokenId> ids;
  for (int i = 0; i < count; ++i) ids.push_back(i * 1000 + 1);
  return ids;
}

// A whole record with a payload that differs everywhere, in a buffer full of ones.
Bytes encoded(RecordHeader& h) {
  const auto bytes = static_cast<std::size_t>(record_bytes(h.ids, h.payload_bytes));
  Bytes record(bytes, std::byte{0xFF});
  put_ids(ids_of(h.ids), record);
  const auto begin = static_cast<std::size_t>(payload_offset(h.ids));
  for (std::size_t i = 0; i < static_cast<std::size_t>(h.payload_bytes); ++i) {
    record[begin + i] = static_cast<std::byte>((i * 2654435761u) >> 13);
  }
  encode_record(h, record);
  return record;
}

TEST(RecordFormat, SizesAreWholeBlocks) {
  EXPECT_EQ(record_bytes(256, 227'840), 56 * 4096);
  EXPECT_EQ(record_bytes(256, 227'841), 57 * 4096);
  EXPECT_EQ(record_bytes(0, 0), 4096);
  EXPECT_EQ(record_bytes(kRecordIdsMax, 0), 4096);
  EXPECT_EQ(payload_offset(256), 1536);
}

TEST(RecordFormat, WhatWasWrittenIsRead) {
  RecordHeader h = header_of(256, 50'001);
  h.encrypted = true;
  const Bytes record = encoded(h);
  const auto got = decode_record_header(record, "x");
  ASSERT_TRUE(got) << got.error().message;
  EXPECT_EQ(got->kind, h.kind);
  EXPECT_EQ(got->ttl, h.ttl);
  EXPECT_TRUE(got->encrypted);
  EXPECT_EQ(got->space, h.space);
  EXPECT_EQ(got->key, h.key);
  EXPECT_EQ(got->parent, h.parent);
  EXPECT_EQ(got->sequence, h.sequence);
  EXPECT_EQ(got->epoch, h.epoch);
  EXPECT_EQ(got->key_id, h.key_id);
  EXPECT_EQ(got->written_s, h.written_s);
  EXPECT_EQ(got->guaranteed_until_s, h.guaranteed_until_s);
  EXPECT_EQ(got->pages, 16);
  EXPECT_EQ(got->payload_bytes, 50'001);
  EXPECT_EQ(got->nonce, h.nonce);
  EXPECT_EQ(got->tag, h.tag);
  EXPECT_EQ(got->quarter_crcs, h.quarter_crcs);
  EXPECT_EQ(record_ids(*got, record), ids_of(256));
  EXPECT_TRUE(holds_ids(*got, record, ids_of(256)));
  EXPECT_FALSE(holds_ids(*got, record, ids_of(255)));
  auto other = ids_of(256);
  other[255] += 1;
  EXPECT_FALSE(holds_ids(*got, record, other));
  EXPECT_TRUE(check_payload(*got, record));
  EXPECT_EQ(record_payload(*got, record).size(), 50'001u);
  EXPECT_EQ(record.back(), std::byte{0});
}

// Offsets as docs/formats/kv_segment.md names them.
TEST(RecordFormat, LiesOnDiskAsDescribed) {
  RecordHeader h = header_of(16, 100);
  const Bytes r = encoded(h);
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(r.data()), 8), "ArteryRC");
  EXPECT_EQ(wire::get<std::uint32_t>(r, 8), 1u);
  EXPECT_EQ(r[16], std::byte{1});
  EXPECT_EQ(r[17], std::byte{2});
  EXPECT_EQ(r[18], std::byte{0});
  EXPECT_EQ(wire::get<std::uint32_t>(r, 20), 16u);
  EXPECT_EQ(wire::get<std::uint32_t>(r, 24), 16u);
  EXPECT_EQ(wire::get<std::uint64_t>(r, 32), 100u);
  EXPECT_EQ(r[40], std::byte{8});
  EXPECT_EQ(wire::get<std::uint64_t>(r, 48), 9u);
  EXPECT_EQ(wire::get<std::int64_t>(r, 56), 1'800'000'000);
  EXPECT_EQ(wire::get<std::int64_t>(r, 64), 1'800'003'600);
  EXPECT_EQ(wire::get<std::uint32_t>(r, 72), crc32c(std::span(r).subspan(576, 25)));
  EXPECT_EQ(wire::get<std::uint32_t>(r, 84), crc32c(std::span(r).subspan(651, 25)));
  EXPECT_EQ(wire::get<Digest>(r, 96), h.space);
  EXPECT_EQ(wire::get<ChainKey>(r, 128), h.key);
  EXPECT_EQ(wire::get<ChainKey>(r, 160), h.parent);
  EXPECT_EQ(r[192], std::byte{7});
  EXPECT_EQ(r[204], std::byte{8});
  EXPECT_EQ(wire::get<std::int32_t>(r, 512 + 4 * 15), 15'001);
  Bytes zeroed(r.begin(), r.begin() + 576);
  std::fill_n(zeroed.begin() + 12, 4, std::byte{0});
  EXPECT_EQ(wire::get<std::uint32_t>(r, 12), crc32c(zeroed));
}

TEST(RecordFormat, EveryFlippedBitIsSeen) {
  RecordHeader h = header_of(32, 9000);
  Bytes record = encoded(h);
  const auto used = static_cast<std::size_t>(payload_offset(32) + 9000);
  for (std::size_t at = 0; at < used; at += at < 640 ? 1 : 61) {
    const auto mask = static_cast<std::byte>(1u << (at % 8));
    record[at] ^= mask;
    const auto got = decode_record_header(record, "x");
    EXPECT_TRUE(!got || !check_payload(*got, record)) << at;
    if (!got) {
      EXPECT_EQ(got.error().code, Code::kBadFile) << at;
    }
    record[at] ^= mask;
  }
  EXPECT_TRUE(decode_record_header(record, "x"));
}

TEST(RecordFormat, AnotherVersionIsNoDamage) {
  RecordHeader h = header_of(32, 9000);
  Bytes record = encoded(h);
  wire::seal(std::span(record).first(512 + 128), "ArteryRC", 2);
  const auto got = decode_record_header(record, "seg 3 at 4096");
  ASSERT_FALSE(got);
  EXPECT_EQ(got.error().code, Code::kUnsupported);
  EXPECT_NE(got.error().message.find("seg 3 at 4096"), std::string::npos);
}

TEST(RecordFormat, SizesThatWereSignedAreStillChecked) {
  RecordHeader h = header_of(32, 9000);
  const Bytes record = encoded(h);
  const auto refused = [&](std::size_t at, std::uint32_t value) {
    Bytes bad = record;
    wire::put(std::span(bad), at, value);
    wire::seal(std::span(bad).first(512 + 128), "ArteryRC", 1);
    const auto got = decode_record_header(bad, "x");
    return !got && got.error().code == Code::kBadFile;
  };
  EXPECT_TRUE(refused(16, 2));           // kind
  EXPECT_TRUE(refused(16, 5 << 8));      // class
  EXPECT_TRUE(refused(16, 2 << 16));     // flags
  EXPECT_TRUE(refused(20, 0));           // pages
  EXPECT_TRUE(refused(20, 0x10000));     // pages
  EXPECT_TRUE(refused(24, 897));         // ids
  EXPECT_TRUE(refused(24, 0xFFFFFFFF));  // ids
  EXPECT_TRUE(refused(36, 1));           // payload over 4 GiB
}

TEST(RecordFormat, ShortBytesAreRefusedAndNothingBeyondIsRead) {
  RecordHeader h = header_of(256, 5000);
  const Bytes record = encoded(h);
  for (std::size_t size = 0; size < 1536; size += 3) {
    const Bytes part(record.begin(), record.begin() + static_cast<std::ptrdiff_t>(size));
    EXPECT_FALSE(decode_record_header(part, "x")) << size;
  }
  const Bytes block(record.begin(), record.begin() + kBlock);
  const auto got = decode_record_header(block, "x");
  ASSERT_TRUE(got);
  EXPECT_TRUE(check_quarter(*got, block, 0));
  EXPECT_TRUE(check_quarter(*got, block, 1));
  EXPECT_FALSE(check_quarter(*got, block, 2));
  EXPECT_FALSE(check_payload(*got, block));
}

TEST(RecordFormat, QuartersCoverThePayloadOnce) {
  for (const std::int64_t bytes : {0, 1, 2, 3, 4, 5, 7, 8, 227'840, 227'843}) {
    std::int64_t at = 0;
    for (int q = 0; q < kQuarters; ++q) {
      const Range range = quarter_range(bytes, q);
      EXPECT_EQ(range.begin, at);
      EXPECT_GE(range.end, range.begin);
      at = range.end;
    }
    EXPECT_EQ(at, bytes);
  }
  EXPECT_EQ(quarter_range(227'840, 0).end, 56'960);
}

TEST(RecordFormat, ACopyMayChangeItsClassAndPromise) {
  RecordHeader h = header_of(16, 3000);
  Bytes record = encoded(h);
  const auto aad = record_aad(h);
  h.ttl = TtlClass::kPinned;
  h.guaranteed_until_s = 5;
  h.written_s = 6;
  encode_record_header(h, record);
  const auto got = decode_record_header(record, "x");
  ASSERT_TRUE(got);
  EXPECT_EQ(got->ttl, TtlClass::kPinned);
  EXPECT_EQ(got->guaranteed_until_s, 5);
  EXPECT_TRUE(check_payload(*got, record));
  EXPECT_EQ(record_aad(*got), aad);
  h.pages += 1;
  EXPECT_NE(record_aad(h), aad);
}

TEST(RecordFormat, SpacesDifferByEveryPart) {
  EXPECT_NE(space_digest("ab", "c"), space_digest("a", "bc"));
  EXPECT_NE(space_digest("a", ""), space_digest("a", "t"));
  EXPECT_EQ(space_digest("a", "t"), space_digest("a", "t"));
}

}  // namespace
}  // namespace artery::kvstore
