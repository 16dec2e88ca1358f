#pragma once
// One record as it lies in a segment: header of 512 bytes, token ids, payload, zeros up to a
// multiple of 4096 (docs/formats/kv_segment.md). Pure functions on spans, any thread: nothing reads
// or writes outside the span it is given, and no size is believed before it was checked.
//
// Writing: put the ids (put_ids) and the payload at their places in a buffer of record_bytes(),
// encrypt record_body() if need be, then encode_record(). Reading: decode_record_header() on the
// first block at least, then the quarters of the payload, each as it has come.

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/hash.h"
#include "base/result.h"
#include "kvstore/catalog.h"

namespace artery::kvstore {

constexpr std::uint32_t kFormatVersion = 1;
constexpr std::int64_t kRecordHeaderBytes = 512;
// Header and ids fit the record's first block, so that one read of it tells all about the rest.
constexpr int kRecordIdsMax = static_cast<int>((kBlock - kRecordHeaderBytes) / 4);
constexpr std::int64_t kRecordPayloadMax = std::int64_t{1} << 30;
constexpr int kQuarters = 4;

struct RecordHeader {
  RecordKind kind = RecordKind::kGlobal;
  TtlClass ttl = TtlClass::kHour;
  bool encrypted = false;               // the body, by AES-256-GCM
  Digest space{};                       // space_digest()
  ChainKey key{}, parent{};             // as RecordFacts
  std::uint64_t sequence = 0;           // counts the records written by a store, never repeats
  std::uint64_t epoch = 0;              // of the writer
  std::int64_t written_s = 0;           // unix seconds
  std::int64_t guaranteed_until_s = 0;  // unix seconds; 0: no promise
  int pages = 0;
  int ids = 0;  // token ids, at most kRecordIdsMax
  std::int64_t payload_bytes = 0;
  std::array<std::uint8_t, 12> nonce{};                 // zeros without encryption
  std::array<std::uint8_t, 16> tag{};                   // of GCM over the body
  std::uint64_t key_id = 0;                             // of the tenant's key; 0 without encryption
  std::array<std::uint32_t, kQuarters> quarter_crcs{};  // encode_record() computes them
};

// SHA-256 of what names a space: little-endian u64 length of the identity, identity, tenant.
Digest space_digest(std::string_view identity, std::string_view tenant);

// On disk, multiple of kBlock. `ids` <= kRecordIdsMax, 0 <= payload <= kRecordPayloadMax.
std::int64_t record_bytes(int ids, std::int64_t payload_bytes);
constexpr std::int64_t payload_offset(int ids) {
  return kRecordHeaderBytes + 4 * std::int64_t{ids};
}

// Ids and payload, next to each other: what is encrypted. `record`: record_bytes() bytes.
std::span<std::byte> record_body(const RecordHeader& header, std::span<std::byte> record);
std::span<const std::byte> record_payload(
    const RecordHeader& header, std::span<const std::byte> record
);
void put_ids(std::span<const TokenId> ids, std::span<std::byte> record);
std::vector<TokenId> record_ids(const RecordHeader& header, std::span<const std::byte> record);
// False also when there are more or fewer.
bool holds_ids(
    const RecordHeader& header, std::span<const std::byte> record, std::span<const TokenId> ids
);

// Writes header, checksums (of the body as it is now, into `header` too) and the zeros at the end.
// The body stays. `record`: record_bytes() bytes exactly.
void encode_record(RecordHeader& header, std::span<std::byte> record);
// Writes the header anew, of a record whose body does not change: a copy with another class,
// promise or time. `header` as decoded, but for these.
void encode_record_header(const RecordHeader& header, std::span<std::byte> record);

// Checks magic, version, sizes and the checksum of header and ids; the payload may be missing from
// `record` (kBlock bytes suffice). `where` opens the message. kBadFile: damaged, or no record
// there; kUnsupported: of another version.
Result<RecordHeader> decode_record_header(
    std::span<const std::byte> record, std::string_view where
);

// Bytes of quarter `quarter` in the payload: [begin, end).
struct Range {
  std::int64_t begin = 0, end = 0;
};
Range quarter_range(std::int64_t payload_bytes, int quarter);
// Needs only that quarter to have been read; false: damaged, or `record` ends before.
bool check_quarter(const RecordHeader& header, std::span<const std::byte> record, int quarter);
bool check_payload(const RecordHeader& header, std::span<const std::byte> record);  // all four

// What GCM authenticates besides the body: all that names the record, and nothing that a copy may
// change.
std::array<std::byte, 128> record_aad(const RecordHeader& header);

}  // namespace artery::kvstore
