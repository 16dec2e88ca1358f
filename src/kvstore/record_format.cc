#include "kvstore/record_format.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <string>

#include "base/check.h"
#include "kvstore/wire.h"

namespace artery::kvstore {
namespace {

static_assert(std::endian::native == std::endian::little);
static_assert(sizeof(TokenId) == 4);

constexpr std::string_view kMagic = "ArteryRC";
constexpr std::uint8_t kEncrypted = 1;

std::size_t index(std::int64_t offset) { return static_cast<std::size_t>(offset); }

// Header and ids.
std::size_t head_bytes(const RecordHeader& header) { return index(payload_offset(header.ids)); }

void check_sizes(const RecordHeader& header, std::span<std::byte> record) {
  CHECK(header.pages > 0 && header.ids >= 0 && header.ids <= kRecordIdsMax);
  CHECK(header.payload_bytes >= 0 && header.payload_bytes <= kRecordPayloadMax);
  CHECK(record.size() == index(record_bytes(header.ids, header.payload_bytes)));
}

}  // namespace

Digest space_digest(std::string_view identity, std::string_view tenant) {
  std::string text(8, '\0');
  const std::uint64_t length = identity.size();
  std::memcpy(text.data(), &length, 8);
  text.append(identity).append(tenant);
  return sha256(std::as_bytes(std::span(text)));
}

std::int64_t record_bytes(int ids, std::int64_t payload_bytes) {
  return (payload_offset(ids) + payload_bytes + kBlock - 1) / kBlock * kBlock;
}

std::span<std::byte> record_body(const RecordHeader& header, std::span<std::byte> record) {
  check_sizes(header, record);
  return record.subspan(
      index(kRecordHeaderBytes), index(4 * std::int64_t{header.ids} + header.payload_bytes)
  );
}

std::span<const std::byte> record_payload(
    const RecordHeader& header, std::span<const std::byte> record
) {
  return record.subspan(head_bytes(header), index(header.payload_bytes));
}

void put_ids(std::span<const TokenId> ids, std::span<std::byte> record) {
  CHECK(ids.size() <= index(kRecordIdsMax) && record.size() >= index(kBlock));
  if (!ids.empty()) std::memcpy(&record[index(kRecordHeaderBytes)], ids.data(), ids.size_bytes());
}

std::vector<TokenId> record_ids(const RecordHeader& header, std::span<const std::byte> record) {
  std::vector<TokenId> ids(index(header.ids));
  if (!ids.empty()) {
    const auto bytes = record.subspan(index(kRecordHeaderBytes), 4 * ids.size());
    std::memcpy(ids.data(), bytes.data(), bytes.size());
  }
  return ids;
}

bool holds_ids(
    const RecordHeader& header, std::span<const std::byte> record, std::span<const TokenId> ids
) {
  if (ids.size() != index(header.ids)) return false;
  if (ids.empty()) return true;
  const auto bytes = record.subspan(index(kRecordHeaderBytes), ids.size_bytes());
  return std::memcmp(bytes.data(), ids.data(), ids.size_bytes()) == 0;
}

void encode_record(RecordHeader& header, std::span<std::byte> record) {
  check_sizes(header, record);
  const auto payload = record_payload(header, record);
  for (int q = 0; q < kQuarters; ++q) {
    const Range range = quarter_range(header.payload_bytes, q);
    header.quarter_crcs[index(q)] =
        crc32c(payload.subspan(index(range.begin), index(range.end - range.begin)));
  }
  std::ranges::fill(record.subspan(head_bytes(header) + payload.size()), std::byte{0});
  encode_record_header(header, record);
}

void encode_record_header(const RecordHeader& header, std::span<std::byte> record) {
  check_sizes(header, record);
  std::ranges::fill(record.first(index(kRecordHeaderBytes)), std::byte{0});
  wire::put(record, 16, static_cast<std::uint8_t>(header.kind));
  wire::put(record, 17, static_cast<std::uint8_t>(header.ttl));
  wire::put(record, 18, header.encrypted ? kEncrypted : std::uint8_t{0});
  wire::put(record, 20, static_cast<std::uint32_t>(header.pages));
  wire::put(record, 24, static_cast<std::uint32_t>(header.ids));
  wire::put(record, 32, static_cast<std::uint64_t>(header.payload_bytes));
  wire::put(record, 40, header.sequence);
  wire::put(record, 48, header.epoch);
  wire::put(record, 56, header.written_s);
  wire::put(record, 64, header.guaranteed_until_s);
  wire::put(record, 72, header.quarter_crcs);
  wire::put(record, 96, header.space);
  wire::put(record, 128, header.key);
  wire::put(record, 160, header.parent);
  wire::put(record, 192, header.nonce);
  wire::put(record, 204, header.tag);
  wire::put(record, 224, header.key_id);
  wire::seal(record.first(head_bytes(header)), kMagic, kFormatVersion);
}

Result<RecordHeader> decode_record_header(
    std::span<const std::byte> record, std::string_view where
) {
  if (record.size() < index(kRecordHeaderBytes)) {
    return fail(Code::kBadFile, "{}: {} bytes are no record header", where, record.size());
  }
  TRY(wire::check_magic(record, kMagic, where));
  const auto ids = wire::get<std::uint32_t>(record, 24);
  if (ids > static_cast<std::uint32_t>(kRecordIdsMax)) {
    return fail(Code::kBadFile, "{}: {} token ids, at most {}", where, ids, kRecordIdsMax);
  }
  const std::size_t head = index(payload_offset(static_cast<int>(ids)));
  if (record.size() < head) {
    return fail(Code::kBadFile, "{}: ends after {} of {} bytes", where, record.size(), head);
  }
  TRY(wire::check_crc(record.first(head), where));
  TRY(wire::check_version(record, kFormatVersion, where));
  const auto kind = wire::get<std::uint8_t>(record, 16);
  const auto ttl = wire::get<std::uint8_t>(record, 17);
  const auto flags = wire::get<std::uint8_t>(record, 18);
  const auto pages = wire::get<std::uint32_t>(record, 20);
  const auto payload = wire::get<std::uint64_t>(record, 32);
  if (kind > static_cast<std::uint8_t>(RecordKind::kWindow) || ttl >= kTtlClasses ||
      flags > kEncrypted || pages == 0 || pages > 0xFFFF ||
      payload > static_cast<std::uint64_t>(kRecordPayloadMax)) {
    return fail(
        Code::kBadFile,
        "{}: kind {}, class {}, flags {}, {} pages, {} bytes of payload",
        where,
        kind,
        ttl,
        flags,
        pages,
        payload
    );
  }
  RecordHeader header;
  header.kind = static_cast<RecordKind>(kind);
  header.ttl = static_cast<TtlClass>(ttl);
  header.encrypted = flags == kEncrypted;
  header.pages = static_cast<int>(pages);
  header.ids = static_cast<int>(ids);
  header.payload_bytes = static_cast<std::int64_t>(payload);
  header.sequence = wire::get<std::uint64_t>(record, 40);
  header.epoch = wire::get<std::uint64_t>(record, 48);
  header.written_s = wire::get<std::int64_t>(record, 56);
  header.guaranteed_until_s = wire::get<std::int64_t>(record, 64);
  header.quarter_crcs = wire::get<std::array<std::uint32_t, kQuarters>>(record, 72);
  header.space = wire::get<Digest>(record, 96);
  header.key = wire::get<ChainKey>(record, 128);
  header.parent = wire::get<ChainKey>(record, 160);
  header.nonce = wire::get<std::array<std::uint8_t, 12>>(record, 192);
  header.tag = wire::get<std::array<std::uint8_t, 16>>(record, 204);
  header.key_id = wire::get<std::uint64_t>(record, 224);
  return header;
}

Range quarter_range(std::int64_t payload_bytes, int quarter) {
  const std::int64_t each = (payload_bytes + kQuarters - 1) / kQuarters;
  return {std::min(payload_bytes, each * quarter), std::min(payload_bytes, each * (quarter + 1))};
}

bool check_quarter(const RecordHeader& header, std::span<const std::byte> record, int quarter) {
  const Range range = quarter_range(header.payload_bytes, quarter);
  const std::size_t begin = head_bytes(header) + index(range.begin);
  const std::size_t end = head_bytes(header) + index(range.end);
  if (record.size() < end) return false;
  return crc32c(record.subspan(begin, end - begin)) == header.quarter_crcs[index(quarter)];
}

bool check_payload(const RecordHeader& header, std::span<const std::byte> record) {
  for (int q = 0; q < kQuarters; ++q) {
    if (!check_quarter(header, record, q)) return false;
  }
  return true;
}

std::array<std::byte, 128> record_aad(const RecordHeader& header) {
  std::array<std::byte, 128> aad{};
  std::memcpy(aad.data(), kMagic.data(), 8);
  wire::put(std::span(aad), 8, kFormatVersion);
  wire::put(std::span(aad), 12, static_cast<std::uint8_t>(header.kind));
  wire::put(std::span(aad), 16, static_cast<std::uint32_t>(header.pages));
  wire::put(std::span(aad), 20, static_cast<std::uint32_t>(header.ids));
  wire::put(std::span(aad), 24, static_cast<std::uint64_t>(header.payload_bytes));
  wire::put(std::span(aad), 32, header.space);
  wire::put(std::span(aad), 64, header.key);
  wire::put(std::span(aad), 96, header.parent);
  return aad;
}

}  // namespace artery::kvstore
