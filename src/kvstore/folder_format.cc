#include "kvstore/folder_format.h"

#include <algorithm>
#include <bit>
#include <charconv>

#include "base/check.h"
#include "kvstore/record_format.h"
#include "kvstore/wire.h"

namespace artery::kvstore {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr std::string_view kSegmentMagic = "ArterySG";
constexpr std::string_view kTrailerMagic = "ArteryFT";
constexpr std::string_view kJournalMagic = "ArteryJN";
constexpr std::string_view kBatchMagic = "ArteryJB";
constexpr std::string_view kSuperMagic = "ArterySB";
constexpr std::uint8_t kEncrypted = 1;

std::size_t index(std::int64_t offset) { return static_cast<std::size_t>(offset); }

constexpr bool is_blocks(std::int64_t bytes) { return bytes >= 0 && bytes % kBlock == 0; }

void encode_entry(const IndexEntry& entry, std::span<std::byte> out) {
  CHECK(is_blocks(entry.place.offset) && is_blocks(entry.place.bytes));
  CHECK(entry.place.bytes / kBlock <= 0xFFFFFFFF && entry.pages >= 0 && entry.pages <= 0xFFFF);
  wire::put(out, 0, static_cast<std::uint8_t>(entry.kind));
  wire::put(out, 1, static_cast<std::uint8_t>(entry.record));
  wire::put(out, 2, static_cast<std::uint8_t>(entry.ttl));
  wire::put(out, 3, entry.encrypted ? kEncrypted : std::uint8_t{0});
  wire::put(out, 4, entry.place.segment);
  wire::put(out, 8, static_cast<std::uint64_t>(entry.place.offset));
  wire::put(out, 16, static_cast<std::uint32_t>(entry.place.bytes / kBlock));
  wire::put(out, 20, static_cast<std::uint16_t>(entry.pages));
  wire::put(out, 22, static_cast<std::uint16_t>(std::clamp(entry.uses, 0, 0xFFFF)));
  wire::put(out, 24, entry.space);
  wire::put(out, 32, entry.key);
  wire::put(out, 64, entry.parent);
  wire::put(out, 96, entry.written_s);
  wire::put(out, 104, entry.last_use_s);
  wire::put(out, 112, entry.guaranteed_until_s);
  wire::put(out, 120, entry.sequence);
}

// nullopt: no such kinds or classes, or places beyond what a file can have.
std::optional<IndexEntry> decode_entry(std::span<const std::byte> from) {
  const auto kind = wire::get<std::uint8_t>(from, 0);
  const auto record = wire::get<std::uint8_t>(from, 1);
  const auto ttl = wire::get<std::uint8_t>(from, 2);
  const auto flags = wire::get<std::uint8_t>(from, 3);
  const auto offset = wire::get<std::uint64_t>(from, 8);
  if (kind >= kEntryKinds || record > static_cast<std::uint8_t>(RecordKind::kWindow) ||
      ttl >= kTtlClasses || flags > kEncrypted || offset % kBlock != 0 ||
      offset > (std::uint64_t{1} << 60)) {
    return std::nullopt;
  }
  IndexEntry entry;
  entry.kind = static_cast<EntryKind>(kind);
  entry.record = static_cast<RecordKind>(record);
  entry.ttl = static_cast<TtlClass>(ttl);
  entry.encrypted = flags == kEncrypted;
  entry.place.segment = wire::get<SegmentId>(from, 4);
  entry.place.offset = static_cast<std::int64_t>(offset);
  entry.place.bytes = std::int64_t{wire::get<std::uint32_t>(from, 16)} * kBlock;
  entry.pages = wire::get<std::uint16_t>(from, 20);
  entry.uses = wire::get<std::uint16_t>(from, 22);
  entry.space = wire::get<std::uint64_t>(from, 24);
  entry.key = wire::get<ChainKey>(from, 32);
  entry.parent = wire::get<ChainKey>(from, 64);
  entry.written_s = wire::get<std::int64_t>(from, 96);
  entry.last_use_s = wire::get<std::int64_t>(from, 104);
  entry.guaranteed_until_s = wire::get<std::int64_t>(from, 112);
  entry.sequence = wire::get<std::uint64_t>(from, 120);
  return entry;
}

// `bytes` holds `count` entries from `at` on.
Result<std::vector<IndexEntry>> decode_entries(
    std::span<const std::byte> bytes, std::size_t at, std::size_t count, std::string_view where
) {
  std::vector<IndexEntry> entries;
  entries.reserve(count);
  for (std::size_t i = 0; i < count; ++i) {
    const auto entry = decode_entry(bytes.subspan(at + i * index(kEntryBytes), index(kEntryBytes)));
    if (!entry) return fail(Code::kBadFile, "{}: entry {} makes no sense", where, i);
    entries.push_back(*entry);
  }
  return entries;
}

void clear(std::span<std::byte> bytes, std::int64_t expected) {
  CHECK(bytes.size() == index(expected));
  std::ranges::fill(bytes, std::byte{0});
}

// A block of its own, with its checksum over all of it.
Result<> check_block(
    std::span<const std::byte> block, std::string_view magic, std::string_view where
) {
  if (block.size() != index(kBlock)) {
    return fail(Code::kBadFile, "{}: {} bytes, expected {}", where, block.size(), kBlock);
  }
  TRY(wire::check_magic(block, magic, where));
  TRY(wire::check_crc(block, where));
  return wire::check_version(block, kFormatVersion, where);
}

template <typename T>
std::optional<T> number_of(std::string_view name, std::string_view begin, std::string_view end) {
  if (!name.starts_with(begin) || !name.ends_with(end)) return std::nullopt;
  if (name.size() < begin.size() + 8 + end.size()) return std::nullopt;
  const std::string_view digits =
      name.substr(begin.size(), name.size() - begin.size() - end.size());
  if (digits.size() > 8 && digits[0] == '0') return std::nullopt;  // one name a number
  T value = 0;
  const auto [stop, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (error != std::errc{} || stop != digits.data() + digits.size()) return std::nullopt;
  return value;
}

}  // namespace

bool operator==(const IndexEntry& a, const IndexEntry& b) {
  return a.kind == b.kind && a.record == b.record && a.ttl == b.ttl && a.encrypted == b.encrypted &&
         a.place.segment == b.place.segment && a.place.offset == b.place.offset &&
         a.place.bytes == b.place.bytes && a.pages == b.pages && a.uses == b.uses &&
         a.space == b.space && a.key == b.key && a.parent == b.parent &&
         a.written_s == b.written_s && a.last_use_s == b.last_use_s &&
         a.guaranteed_until_s == b.guaranteed_until_s && a.sequence == b.sequence;
}

std::uint64_t space_tag(const Digest& space) {
  return wire::get<std::uint64_t>(std::as_bytes(std::span(space)), 0);
}

IndexEntry put_entry(const RecordHeader& header, const Place& place) {
  return {
      .kind = EntryKind::kPut,
      .record = header.kind,
      .ttl = header.ttl,
      .encrypted = header.encrypted,
      .place = place,
      .pages = header.pages,
      .uses = 0,
      .space = space_tag(header.space),
      .key = header.key,
      .parent = header.parent,
      .written_s = header.written_s,
      .last_use_s = header.written_s,
      .guaranteed_until_s = header.guaranteed_until_s,
      .sequence = header.sequence,
  };
}

void encode_segment_header(const SegmentHeader& header, std::span<std::byte> block) {
  clear(block, kBlock);
  wire::put(block, 16, header.segment);
  wire::put(block, 20, static_cast<std::uint8_t>(header.ttl));
  wire::put(block, 24, header.epoch);
  wire::put(block, 32, header.created_s);
  wire::put(block, 40, header.bytes);
  wire::seal(block, kSegmentMagic, kFormatVersion);
}

Result<SegmentHeader> decode_segment_header(
    std::span<const std::byte> block, std::string_view where
) {
  TRY(check_block(block, kSegmentMagic, where));
  const auto ttl = wire::get<std::uint8_t>(block, 20);
  const auto bytes = wire::get<std::int64_t>(block, 40);
  if (ttl >= kTtlClasses || !is_blocks(bytes)) {
    return fail(Code::kBadFile, "{}: class {}, {} bytes", where, ttl, bytes);
  }
  return SegmentHeader{
      .segment = wire::get<SegmentId>(block, 16),
      .ttl = static_cast<TtlClass>(ttl),
      .epoch = wire::get<std::uint64_t>(block, 24),
      .created_s = wire::get<std::int64_t>(block, 32),
      .bytes = bytes
  };
}

void encode_footer(
    const Trailer& trailer, std::span<const IndexEntry> entries, std::span<std::byte> out
) {
  CHECK(is_blocks(trailer.records_end));
  const auto count = static_cast<std::int64_t>(entries.size());
  clear(out, footer_bytes(count));
  for (std::size_t i = 0; i < entries.size(); ++i) {
    encode_entry(entries[i], out.subspan(i * index(kEntryBytes), index(kEntryBytes)));
  }
  const auto block = out.last(index(kBlock));
  wire::put(block, 16, trailer.segment);
  wire::put(block, 20, static_cast<std::uint8_t>(trailer.ttl));
  wire::put(block, 24, trailer.epoch);
  wire::put(block, 32, trailer.sealed_s);
  wire::put(block, 40, trailer.records_end);
  wire::put(block, 48, count);
  wire::put(block, 56, crc32c(out.first(index(count * kEntryBytes))));
  wire::seal(block, kTrailerMagic, kFormatVersion);
}

Result<Trailer> decode_trailer(
    std::span<const std::byte> block, std::int64_t file_bytes, std::string_view where
) {
  TRY(check_block(block, kTrailerMagic, where));
  const auto ttl = wire::get<std::uint8_t>(block, 20);
  const Trailer trailer{
      .segment = wire::get<SegmentId>(block, 16),
      .ttl = static_cast<TtlClass>(ttl),
      .epoch = wire::get<std::uint64_t>(block, 24),
      .sealed_s = wire::get<std::int64_t>(block, 32),
      .records_end = wire::get<std::int64_t>(block, 40),
      .entries = wire::get<std::int64_t>(block, 48)
  };
  // A record has one block at least, which bounds the entries before they are multiplied.
  const bool fits = is_blocks(trailer.records_end) && trailer.records_end >= kBlock &&
                    trailer.records_end < file_bytes && trailer.entries >= 0 &&
                    trailer.entries <= trailer.records_end / kBlock - 1;
  if (ttl >= kTtlClasses || !fits ||
      trailer.records_end + footer_bytes(trailer.entries) != file_bytes) {
    return fail(
        Code::kBadFile,
        "{}: class {}, {} entries at {} in a file of {} bytes",
        where,
        ttl,
        trailer.entries,
        trailer.records_end,
        file_bytes
    );
  }
  return trailer;
}

Result<std::vector<IndexEntry>> decode_footer(
    const Trailer& trailer, std::span<const std::byte> footer, std::string_view where
) {
  const bool is_possible = trailer.entries >= 0 && trailer.records_end >= kBlock &&
                           trailer.entries <= trailer.records_end / kBlock - 1;
  if (!is_possible || footer.size() != index(footer_bytes(trailer.entries))) {
    return fail(
        Code::kBadFile,
        "{}: {} bytes are no footer of {} entries",
        where,
        footer.size(),
        trailer.entries
    );
  }
  const auto bytes = footer.first(index(trailer.entries * kEntryBytes));
  const auto found = wire::get<std::uint32_t>(footer.last(index(kBlock)), 56);
  const std::uint32_t computed = crc32c(bytes);
  if (found != computed) {
    return fail(
        Code::kBadFile,
        "{}: CRC-32C is {:08x}, the entries give {:08x}: damaged",
        where,
        found,
        computed
    );
  }
  auto entries = TRY(decode_entries(bytes, 0, index(trailer.entries), where));
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const IndexEntry& e = entries[i];
    if (e.kind != EntryKind::kPut || e.place.segment != trailer.segment ||
        e.place.offset < kBlock || e.place.bytes < kBlock || e.pages < 1 ||
        e.place.offset + e.place.bytes > trailer.records_end) {
      return fail(Code::kBadFile, "{}: entry {} is no record of the segment", where, i);
    }
  }
  return entries;
}

void encode_journal_header(const JournalHeader& header, std::span<std::byte> block) {
  clear(block, kBlock);
  wire::put(block, 16, header.journal);
  wire::put(block, 24, header.epoch);
  wire::put(block, 32, header.created_s);
  wire::seal(block, kJournalMagic, kFormatVersion);
}

Result<JournalHeader> decode_journal_header(
    std::span<const std::byte> block, std::string_view where
) {
  TRY(check_block(block, kJournalMagic, where));
  return JournalHeader{
      .journal = wire::get<std::uint64_t>(block, 16),
      .epoch = wire::get<std::uint64_t>(block, 24),
      .created_s = wire::get<std::int64_t>(block, 32)
  };
}

void encode_batch(const Batch& batch, std::span<std::byte> out) {
  const auto count = static_cast<std::int64_t>(batch.entries.size());
  CHECK(count <= kBatchEntriesMax);
  clear(out, batch_bytes(count));
  wire::put(out, 16, batch.journal);
  wire::put(out, 24, batch.sequence);
  wire::put(out, 32, batch.time_s);
  wire::put(out, 40, static_cast<std::uint32_t>(count));
  std::size_t at = index(kBatchHeaderBytes);
  for (const IndexEntry& entry : batch.entries) {
    encode_entry(entry, out.subspan(at, index(kEntryBytes)));
    at += index(kEntryBytes);
  }
  wire::seal(out.first(at), kBatchMagic, kFormatVersion);
}

Result<Batch> decode_batch(
    std::span<const std::byte> bytes,
    std::uint64_t journal,
    std::uint64_t sequence,
    std::string_view where
) {
  if (bytes.size() < index(kBatchHeaderBytes)) {
    return fail(Code::kBadFile, "{}: {} bytes are no batch", where, bytes.size());
  }
  TRY(wire::check_magic(bytes, kBatchMagic, where));
  const auto count = std::int64_t{wire::get<std::uint32_t>(bytes, 40)};
  if (count > kBatchEntriesMax || bytes.size() < index(batch_bytes(count))) {
    return fail(Code::kBadFile, "{}: {} entries in {} bytes: cut off", where, count, bytes.size());
  }
  const std::size_t end = index(kBatchHeaderBytes + count * kEntryBytes);
  TRY(wire::check_crc(bytes.first(end), where));
  TRY(wire::check_version(bytes, kFormatVersion, where));
  Batch batch;
  batch.journal = wire::get<std::uint64_t>(bytes, 16);
  batch.sequence = wire::get<std::uint64_t>(bytes, 24);
  batch.time_s = wire::get<std::int64_t>(bytes, 32);
  batch.bytes = batch_bytes(count);
  if (batch.journal != journal || batch.sequence != sequence) {
    return fail(
        Code::kBadFile,
        "{}: batch {} of journal {}, expected batch {} of journal {}",
        where,
        batch.sequence,
        batch.journal,
        sequence,
        journal
    );
  }
  batch.entries = TRY(decode_entries(bytes, index(kBatchHeaderBytes), index(count), where));
  return batch;
}

void encode_super(const SuperBlock& super, std::span<std::byte> block) {
  clear(block, kBlock);
  wire::put(block, 16, super.generation);
  wire::put(block, 24, super.epoch);
  wire::put(block, 32, super.journal);
  wire::put(block, 48, super.next_segment);
  wire::put(block, 52, static_cast<std::uint8_t>(super.is_clean ? 1 : 0));
  wire::put(block, 56, super.created_s);
  wire::put(block, 64, super.changed_s);
  wire::put(block, 72, static_cast<std::uint8_t>(super.secret_check ? 1 : 0));
  wire::put(block, 76, super.secret_check.value_or(0));
  wire::seal(block, kSuperMagic, kFormatVersion);
}

Result<SuperBlock> decode_super(std::span<const std::byte> block, std::string_view where) {
  TRY(check_block(block, kSuperMagic, where));
  const bool has_check = wire::get<std::uint8_t>(block, 72) == 1;
  return SuperBlock{
      .generation = wire::get<std::uint64_t>(block, 16),
      .epoch = wire::get<std::uint64_t>(block, 24),
      .journal = wire::get<std::uint64_t>(block, 32),
      .next_segment = wire::get<SegmentId>(block, 48),
      .is_clean = wire::get<std::uint8_t>(block, 52) == 1,
      .created_s = wire::get<std::int64_t>(block, 56),
      .changed_s = wire::get<std::int64_t>(block, 64),
      .secret_check = has_check ? std::optional(wire::get<std::uint32_t>(block, 76)) : std::nullopt,
  };
}

Result<SuperBlock> pick_super(std::span<const std::byte> file, std::string_view where) {
  std::optional<SuperBlock> best;
  std::optional<Error> refused;
  for (const std::int64_t at : {std::int64_t{0}, kBlock}) {
    if (file.size() < index(at + kBlock)) break;
    auto slot = decode_super(file.subspan(index(at), index(kBlock)), where);
    if (slot && (!best || slot->generation > best->generation)) best = *slot;
    // A store that another version has taken over is its own, whatever the other slot says.
    if (!slot && (!refused || slot.error().code == Code::kUnsupported)) refused = slot.error();
  }
  if (refused && refused->code == Code::kUnsupported) return tl::unexpected<Error>(*refused);
  if (best) return *best;
  if (refused) return tl::unexpected<Error>(*refused);
  return fail(Code::kBadFile, "{}: {} bytes are no super block", where, file.size());
}

std::string segment_name(SegmentId segment) { return fmt::format("seg-{:08}.akv", segment); }

std::string journal_name(std::uint64_t journal) {
  return fmt::format("journal-{:08}.akj", journal);
}

std::optional<SegmentId> segment_of(std::string_view name) {
  return number_of<SegmentId>(name, "seg-", ".akv");
}

std::optional<std::uint64_t> journal_of(std::string_view name) {
  return number_of<std::uint64_t>(name, "journal-", ".akj");
}

}  // namespace artery::kvstore
