#pragma once
// The other files of a store's folder, byte by byte: segments' first block and footer, journal,
// super block, names (docs/formats/kv_segment.md). Pure functions on spans, any thread; nothing
// reads outside its span or allocates for a count that the span does not hold. `where` opens the
// messages. kBadFile: damaged; kUnsupported: of another version.
//
// Footer and journal are made of the same entries of 128 bytes.

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/hash.h"
#include "base/result.h"
#include "kvstore/catalog.h"
#include "kvstore/record_format.h"

namespace artery::kvstore {

// --- entries

enum class EntryKind : std::uint8_t {
  kPut,          // all fields: the record is there and whole (in footers: always this)
  kTouch,        // key, ttl, uses, last_use_s
  kErase,        // key, segment: no longer there
  kDropSegment,  // segment: its file is gone or will be
  kSeal,         // segment, place.offset: its records end there, a footer follows
  kGuarantee,    // key, guaranteed_until_s
};
constexpr int kEntryKinds = 6;
constexpr std::int64_t kEntryBytes = 128;

struct IndexEntry {
  EntryKind kind = EntryKind::kPut;
  RecordKind record = RecordKind::kGlobal;
  TtlClass ttl = TtlClass::kHour;
  bool encrypted = false;
  Place place{};  // offset and bytes: multiples of kBlock
  int pages = 0;
  int uses = 0;             // since written or copied; more than 65535 count as that
  std::uint64_t space = 0;  // space_tag() of the record's space
  ChainKey key{}, parent{};
  std::int64_t written_s = 0, last_use_s = 0;  // unix seconds
  std::int64_t guaranteed_until_s = 0;         // unix seconds; 0: no promise
  std::uint64_t sequence = 0;                  // of the record; the later of two with one key holds
  friend bool operator==(const IndexEntry& a, const IndexEntry& b);
};

// The first 8 bytes of space_digest(), little-endian.
std::uint64_t space_tag(const Digest& space);

// What footer and journal say of a record that lies at `place`.
IndexEntry put_entry(const RecordHeader& header, const Place& place);

// --- segments: [first block] [records] [footer] [trailer block]; an open one has neither footer
// nor trailer, and zeros after its last record.

struct SegmentHeader {
  SegmentId segment = 0;
  TtlClass ttl = TtlClass::kHour;
  std::uint64_t epoch = 0;  // of the writer
  std::int64_t created_s = 0;
  std::int64_t bytes = 0;  // reserved for it
};
void encode_segment_header(
    const SegmentHeader& header, std::span<std::byte> block
);  // kBlock bytes
Result<SegmentHeader> decode_segment_header(
    std::span<const std::byte> block, std::string_view where
);

struct Trailer {  // the last block of a sealed segment's file
  SegmentId segment = 0;
  TtlClass ttl = TtlClass::kHour;
  std::uint64_t epoch = 0;       // of who sealed it
  std::int64_t sealed_s = 0;     // unix seconds
  std::int64_t records_end = 0;  // offset of the footer; everything before was written
  std::int64_t entries = 0;
};
// Footer and trailer together, as they are written at `trailer.records_end`.
constexpr std::int64_t footer_bytes(std::int64_t entries) {
  return (entries * kEntryBytes + kBlock - 1) / kBlock * kBlock + kBlock;
}
// `out`: footer_bytes(entries.size()) bytes. trailer.entries is taken from `entries`.
void encode_footer(
    const Trailer& trailer, std::span<const IndexEntry> entries, std::span<std::byte> out
);
// `block`: the last kBlock bytes of a file of `file_bytes`; the footer it tells of lies in the
// file.
Result<Trailer> decode_trailer(
    std::span<const std::byte> block, std::int64_t file_bytes, std::string_view where
);
// `footer`: from trailer.records_end to the end of the file, trailer block included. Every entry is
// a put within the segment.
Result<std::vector<IndexEntry>> decode_footer(
    const Trailer& trailer, std::span<const std::byte> footer, std::string_view where
);

// --- journal: [first block] [batches, each on its own blocks]

struct JournalHeader {
  std::uint64_t journal = 0;
  std::uint64_t epoch = 0;
  std::int64_t created_s = 0;
};
void encode_journal_header(const JournalHeader& header, std::span<std::byte> block);
Result<JournalHeader> decode_journal_header(
    std::span<const std::byte> block, std::string_view where
);

constexpr std::int64_t kBatchHeaderBytes = 64;
constexpr std::int64_t kBatchEntriesMax = 1 << 16;
constexpr std::int64_t batch_bytes(std::int64_t entries) {
  return (kBatchHeaderBytes + entries * kEntryBytes + kBlock - 1) / kBlock * kBlock;
}
struct Batch {
  std::uint64_t journal = 0;
  std::uint64_t sequence = 0;  // from 1 on in each journal, without gaps
  std::int64_t time_s = 0;
  std::vector<IndexEntry> entries{};
  std::int64_t bytes = 0;  // on disk; decode_batch() fills it
};
// At most kBatchEntriesMax entries; `out`: batch_bytes(entries.size()) bytes.
void encode_batch(const Batch& batch, std::span<std::byte> out);
// The batch at the begin of `bytes`, which go on to the end of the file or of what was read. The
// journal ends at the first that is none, or not of `journal` and `sequence`.
Result<Batch> decode_batch(
    std::span<const std::byte> bytes,
    std::uint64_t journal,
    std::uint64_t sequence,
    std::string_view where
);

// --- super block: two slots of kBlock; each change goes into the one that is older.

struct SuperBlock {
  std::uint64_t generation = 0;  // counts the changes; slot = generation % 2
  std::uint64_t epoch = 0;       // counts the opens for writing
  std::uint64_t journal = 0;     // the current one
  SegmentId next_segment = 0;    // no segment before had this number or a larger one
  bool is_clean = false;         // closed in order: every record is in a footer or the journal
  std::int64_t created_s = 0;    // of the store
  std::int64_t changed_s = 0;
  std::optional<std::uint32_t> secret_check =
      std::nullopt;  // of the folder's secret (folder_secret.h)
};
constexpr std::int64_t super_offset(std::uint64_t generation) {
  return generation % 2 == 0 ? 0 : kBlock;
}
void encode_super(const SuperBlock& super, std::span<std::byte> block);
Result<SuperBlock> decode_super(std::span<const std::byte> block, std::string_view where);
// The newer of the valid ones in a whole file; kUnsupported when one of them is of another version.
Result<SuperBlock> pick_super(std::span<const std::byte> file, std::string_view where);

// --- names. "seg-00000012.akv", "journal-00000003.akj": at least 8 digits.
std::string segment_name(SegmentId segment);
std::string journal_name(std::uint64_t journal);
std::optional<SegmentId> segment_of(std::string_view name);  // nullopt: another name
std::optional<std::uint64_t> journal_of(std::string_view name);

}  // namespace artery::kvstore
