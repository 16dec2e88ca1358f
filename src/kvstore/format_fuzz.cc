// Any bytes to every decoder of a store's folder: refused, or values that encode to the same again.
// The first byte picks the decoder; with its bit 3 the checksums are made right, since no mutation
// would get past them.

#include <cstdlib>
#include <cstring>
#include <string_view>

#include "base/crc32c.h"
#include "kvstore/folder_format.h"
#include "kvstore/record_format.h"
#include "kvstore/wire.h"

namespace artery::kvstore {
namespace {

using Bytes = std::vector<std::byte>;

void require(bool holds) {
  if (!holds) std::abort();
}

void seal(std::span<std::byte> bytes, std::string_view magic) {
  if (bytes.size() >= wire::kPrefixBytes) wire::seal(bytes, magic, kFormatVersion);
}

// Zeros up to whole blocks, one at least.
void pad(Bytes& bytes) {
  const std::size_t block = kBlock;
  bytes.resize((bytes.size() / block + 1) * block);
}

void try_record(Bytes& bytes, bool sealed) {
  if (sealed) {
    pad(bytes);
    const auto ids = wire::get<std::uint32_t>(bytes, 24);
    if (ids <= static_cast<std::uint32_t>(kRecordIdsMax)) {
      const auto head = static_cast<std::size_t>(payload_offset(static_cast<int>(ids)));
      seal(std::span(bytes).first(head), "ArteryRC");
    }
  }
  const auto header = decode_record_header(bytes, "fuzz");
  if (!header) return;
  const auto ids = record_ids(*header, bytes);
  require(holds_ids(*header, bytes, ids));
  check_payload(*header, bytes);
  const std::int64_t whole = record_bytes(header->ids, header->payload_bytes);
  if (whole > (std::int64_t{1} << 20)) return;
  bytes.resize(static_cast<std::size_t>(whole));
  RecordHeader copy = *header;
  encode_record(copy, bytes);
  const auto again = decode_record_header(bytes, "fuzz");
  require(again && check_payload(*again, bytes) && record_ids(*again, bytes) == ids);
  require(record_aad(*again) == record_aad(*header) && again->tag == header->tag);
  require(again->written_s == header->written_s && again->sequence == header->sequence);
}

void try_footer(Bytes& bytes, bool sealed) {
  if (sealed) pad(bytes);
  if (bytes.size() < static_cast<std::size_t>(kBlock)) return;
  const auto block = std::span(bytes).last(kBlock);
  const auto count = wire::get<std::uint64_t>(block, 48);
  if (sealed) {
    if (count < bytes.size() / kEntryBytes) {
      const auto entries = std::span(bytes).first(count * kEntryBytes);
      wire::put(block, 56, crc32c(entries));
    }
    seal(block, "ArteryFT");
  }
  const auto end = wire::get<std::int64_t>(block, 40);
  const auto size = static_cast<std::int64_t>(bytes.size());
  if (end < 0 || end > (std::int64_t{1} << 40)) return;
  const auto trailer = decode_trailer(block, end + size, "fuzz");
  if (!trailer) return;
  const auto entries = decode_footer(*trailer, bytes, "fuzz");
  if (!entries) return;
  Bytes copy(bytes.size());
  encode_footer(*trailer, *entries, copy);
  const auto again = decode_footer(*trailer, copy, "fuzz");
  require(again && *again == *entries);
}

void try_batch(Bytes& bytes, bool sealed) {
  if (sealed) {
    pad(bytes);
    const std::uint64_t count = wire::get<std::uint32_t>(bytes, 40);
    const std::uint64_t head = kBatchHeaderBytes + count * kEntryBytes;
    if (head <= bytes.size()) seal(std::span(bytes).first(head), "ArteryJB");
  }
  std::uint64_t journal = 1;
  std::uint64_t sequence = 1;
  if (bytes.size() >= 32) {
    journal = wire::get<std::uint64_t>(bytes, 16);
    sequence = wire::get<std::uint64_t>(bytes, 24);
  }
  const auto batch = decode_batch(bytes, journal, sequence, "fuzz");
  if (!batch) return;
  require(batch->bytes <= static_cast<std::int64_t>(bytes.size()));
  Bytes copy(static_cast<std::size_t>(batch->bytes));
  encode_batch(*batch, copy);
  const auto again = decode_batch(copy, journal, sequence, "fuzz");
  require(again && again->entries == batch->entries && again->time_s == batch->time_s);
}

template <typename Decode, typename Encode>
void try_block(
    Bytes& bytes, bool sealed, std::string_view magic, const Decode& decode, const Encode& encode
) {
  if (sealed) {
    bytes.resize(kBlock);
    seal(bytes, magic);
  }
  const auto value = decode(bytes, "fuzz");
  if (!value) return;
  Bytes copy(kBlock);
  encode(*value, copy);
  Bytes twice(kBlock);
  encode(*decode(copy, "fuzz"), twice);
  require(copy == twice);
}

void try_names(const Bytes& bytes) {
  const std::string_view name(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (const auto segment = segment_of(name)) require(segment_name(*segment) == name);
  if (const auto journal = journal_of(name)) require(journal_name(*journal) == name);
}

void run(std::uint8_t which, Bytes& bytes) {
  const bool sealed = (which & 8) != 0;
  switch (which & 7) {
    case 0:
      return try_record(bytes, sealed);
    case 1:
      return try_footer(bytes, sealed);
    case 2:
      return try_batch(bytes, sealed);
    case 3:
      return try_block(bytes, sealed, "ArterySG", decode_segment_header, encode_segment_header);
    case 4:
      return try_block(bytes, sealed, "ArteryJN", decode_journal_header, encode_journal_header);
    case 5:
      return try_block(bytes, sealed, "ArterySB", decode_super, encode_super);
    case 6:
      return try_names(bytes);
    default:
      static_cast<void>(pick_super(bytes, "fuzz"));
  }
}

}  // namespace
}  // namespace artery::kvstore

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  std::vector<std::byte> bytes(size - 1);
  if (size > 1) std::memcpy(bytes.data(), data + 1, size - 1);
  artery::kvstore::run(data[0], bytes);
  return 0;
}
