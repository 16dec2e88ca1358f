#include "bench/kv_synthetic.h"

#include <algorithm>
#include <random>

#include "kvstore/folder_format.h"
#include "kvstore/record_format.h"
#include "kvstore/slot_pool.h"
#include "kvstore/spaces.h"

namespace artery::bench {
namespace {

using kvstore::kBlock;

constexpr std::int64_t kSegmentBytes = 256 << 20;
constexpr int kRecordPages = 16;
constexpr std::int64_t kRecordBytes = 229'376;  // in the catalog; of V4.1
constexpr kvstore::SegmentId kFirstSegment = 1000;

ChainKey random_key(std::mt19937_64& random) {
  ChainKey key{};
  for (std::size_t at = 0; at < key.size(); at += 8) {
    const std::uint64_t bits = random();
    for (std::size_t i = 0; i < 8; ++i) key[at + i] = static_cast<std::uint8_t>(bits >> 8 * i);
  }
  return key;
}

// Hands out places, one segment after the other.
class Places {
 public:
  explicit Places(kvstore::Catalog& catalog) : catalog_(catalog) {}
  kvstore::Place next() {
    if (offset_ + kRecordBytes > kSegmentBytes) {
      catalog_.restore_segment(++segment_, kvstore::TtlClass::kHour, kSegmentBytes, true);
      offset_ = kBlock;
    }
    const kvstore::Place place{segment_, offset_, kRecordBytes};
    offset_ += kRecordBytes;
    return place;
  }

 private:
  kvstore::Catalog& catalog_;
  kvstore::SegmentId segment_ = 0;
  std::int64_t offset_ = kSegmentBytes;
};

// One sealed segment; `parent` is the key before its first record, then that of its last.
Result<> write_segment(
    const std::string& folder,
    kvstore::SegmentId id,
    std::vector<kvstore::IndexEntry>& entries,
    std::int64_t now_s,
    FileSystem& files
) {
  const auto file =
      TRY(files.open_blocks(folder + "/" + kvstore::segment_name(id), OpenMode::kCreate));
  kvstore::SegmentHeader header;
  header.segment = id;
  header.epoch = 1;
  header.created_s = now_s;
  header.bytes = kSegmentBytes;
  kvstore::Trailer trailer;
  trailer.segment = id;
  trailer.epoch = 1;
  trailer.sealed_s = now_s;
  trailer.records_end = entries.back().place.offset + entries.back().place.bytes;
  kvstore::AlignedBytes first(kBlock);
  kvstore::encode_segment_header(header, first.span());
  kvstore::AlignedBytes footer(kvstore::footer_bytes(std::ssize(entries)));
  kvstore::encode_footer(trailer, entries, footer.span());
  if (file->write_at(0, first.span()) != std::ssize(first.span()) ||
      file->write_at(trailer.records_end, footer.span()) != std::ssize(footer.span())) {
    return fail(Code::kIo, "{}: cannot write a synthetic segment", folder);
  }
  return {};
}

}  // namespace

std::unique_ptr<kvstore::Catalog> synthetic_catalog(
    const ChainKey& root, std::span<const std::vector<ChainKey>> prompts, std::int64_t records
) {
  kvstore::CatalogLimits limits;
  limits.segment_bytes = kSegmentBytes;
  limits.bytes_max = std::int64_t{1} << 50;
  auto catalog = std::make_unique<kvstore::Catalog>(limits);
  catalog->add_space(0, "", kRecordPages);
  Places places(*catalog);
  std::mt19937_64 random(3);
  const auto add = [&](const ChainKey& key, const ChainKey& parent) {
    kvstore::Entry entry;
    entry.facts.key = key;
    entry.facts.parent = parent;
    entry.facts.pages = kRecordPages;
    entry.place = places.next();
    entry.written_s = entry.last_use_s = kSyntheticNow;
    catalog->restore(entry, kSyntheticNow);
  };
  for (const std::vector<ChainKey>& keys : prompts) {
    ChainKey parent = root;
    for (std::size_t end = kRecordPages; end <= keys.size(); end += kRecordPages) {
      add(keys[end - 1], parent);
      parent = keys[end - 1];
    }
    records -= std::ssize(keys) / kRecordPages;
  }
  // Prompts of 20 records each.
  ChainKey parent = root;
  for (; records > 0; --records) {
    const ChainKey key = random_key(random);
    add(key, records % 20 == 0 ? root : parent);
    parent = key;
  }
  return catalog;
}

Result<std::int64_t> write_synthetic_segments(
    const std::string& folder,
    const kvstore::SpaceSpec& space,
    std::int64_t bytes,
    FileSystem& files,
    const Clock& clock
) {
  {
    const auto spaces = TRY(kvstore::Spaces::open(folder, files));
    TRY(spaces->save(spaces->add(space)));
  }
  const std::int64_t now_s = clock.unix_ms() / 1000;
  const int ids = space.record_pages * kPageTokens;
  const std::int64_t record = kvstore::record_bytes(ids, space.record_pages * space.page_bytes);
  const std::uint64_t tag = kvstore::space_tag(kvstore::space_digest(space.identity, space.tenant));
  std::mt19937_64 random(5);
  std::int64_t count = 0;
  ChainKey parent = chain_root("bench", "synthetic");
  const std::int64_t segments = bytes / kSegmentBytes;
  for (std::int64_t i = 0; i < segments; ++i) {
    std::vector<kvstore::IndexEntry> entries;
    const auto id = static_cast<kvstore::SegmentId>(kFirstSegment + i);
    for (std::int64_t offset = kBlock; offset + record + (256 << 10) <= kSegmentBytes;
         offset += record) {
      kvstore::IndexEntry& entry = entries.emplace_back();
      entry.place = {id, offset, record};
      entry.pages = space.record_pages;
      entry.space = tag;
      entry.key = random_key(random);
      entry.parent = parent;
      entry.written_s = entry.last_use_s = now_s;
      entry.sequence = static_cast<std::uint64_t>(++count);
      parent = entry.key;
    }
    TRY(write_segment(folder, id, entries, now_s, files));
  }
  return count;
}

}  // namespace artery::bench
