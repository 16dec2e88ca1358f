#include "kvstore/survey.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <unordered_map>

#include "kvstore/folder_secret.h"
#include "kvstore/record_format.h"
#include "kvstore/segment_file.h"
#include "kvstore/slot_pool.h"
#include "kvstore/tenant_cipher.h"

namespace artery::kvstore {
namespace {

constexpr std::int64_t kWindowBytes = 8 << 20;  // of reads that verify

using SpaceTags = std::unordered_map<std::uint64_t, SpaceId>;

// The folder at one moment.
struct Snapshot {
  Recovered found;
  std::unique_ptr<Spaces> spaces;
  SpaceTags tags;
};

Result<Snapshot> take_snapshot(const std::string& folder, FileSystem& files) {
  Snapshot out;
  out.found = TRY(recover(folder, files));
  if (out.found.is_new)
    return fail(
        Code::kBadFile, "{}: not a KV store: it has no super block and no segments", folder
    );
  out.spaces = TRY(Spaces::open(folder, files));
  for (SpaceId id = 0; id < out.spaces->count(); ++id)
    out.tags.emplace(space_tag(out.spaces->digest(id)), id);
  for (SegmentScan& scan : out.found.segments)
    for (IndexEntry& entry : scan.entries) out.found.replay.raise(entry);
  return out;
}

bool is_expired(const IndexEntry& entry, std::int64_t now_s) {
  return std::min(entry.last_use_s, now_s) + ttl_seconds(entry.ttl) < now_s &&
         entry.guaranteed_until_s < now_s;
}

Entry to_entry(const IndexEntry& from, SpaceId space) {
  return {
      .facts =
          {.space = space,
           .kind = from.record,
           .ttl = from.ttl,
           .key = from.key,
           .parent = from.parent,
           .pages = from.pages,
           .guaranteed_until_s = from.guaranteed_until_s},
      .place = from.place,
      .written_s = from.written_s,
      .last_use_s = from.last_use_s,
      .uses = from.uses,
  };
}

void count_entry(const IndexEntry& entry, const Snapshot& at, std::int64_t now_s, Survey& out) {
  out.oldest_written_s =
      out.oldest_written_s == 0 ? entry.written_s : std::min(out.oldest_written_s, entry.written_s);
  out.newest_written_s = std::max(out.newest_written_s, entry.written_s);
  ++out.disk_records;
  out.encrypted_records += entry.encrypted ? 1 : 0;
  const auto space = at.tags.find(entry.space);
  if (space == at.tags.end()) {
    ++out.unknown_records;
    out.unknown_bytes += entry.place.bytes;
  } else if (is_expired(entry, now_s)) {
    ++out.expired_records;
    out.expired_bytes += entry.place.bytes;
  } else {
    SpaceLine& line = out.spaces[static_cast<std::size_t>(space->second)];
    ++line.records;
    line.bytes += entry.place.bytes;
  }
}

// Through the production index, which knows what can be reached.
void fill_status(const Snapshot& at, std::int64_t now_s, Survey& out) {
  Catalog catalog({.bytes_max = std::int64_t{1} << 50, .segment_bytes = 256 << 20});
  for (SpaceId id = 0; id < at.spaces->count(); ++id) {
    const SpaceSpec spec = at.spaces->spec(id);
    catalog.add_space(id, spec.tenant, spec.record_pages);
  }
  for (const SegmentScan& scan : at.found.segments) {
    const bool is_sealed = scan.state == SegmentScan::State::kSealed;
    out.sealed_segments += is_sealed ? 1 : 0;
    catalog.restore_segment(scan.id, scan.ttl, scan.bytes, true);
    for (const IndexEntry& entry : scan.entries) {
      count_entry(entry, at, now_s, out);
      const auto space = at.tags.find(entry.space);
      if (space == at.tags.end() || is_expired(entry, now_s)) continue;
      catalog.restore(to_entry(entry, space->second), now_s);
    }
  }
  catalog.fill(out.status, now_s);
  out.status.bytes_max = 0;  // the folder does not know it
}

// What the small files lack that records need.
void add_small_file_troubles(
    const std::string& folder, FileSystem& files, const Snapshot& at, Survey& out
) {
  const auto secret = open_secret(
      folder, files, {.records = out.disk_records, .check = at.found.super.secret_check}
  );
  if (!secret && out.disk_records > 0) out.troubles.push_back(secret.error().message);
  if (const int lines = at.spaces->damaged_lines(); lines > 0) {
    out.troubles.push_back(
        fmt::format("{}/spaces.json: {} damaged lines; what they named misses", folder, lines)
    );
  } else if (at.spaces->count() == 0 && out.unknown_records > 0) {
    out.troubles.push_back(fmt::format(
        "{}/spaces.json: missing; the model and tenant of {} records were in it, and these miss",
        folder,
        out.unknown_records
    ));
  }
  if (!out.is_encrypted && out.encrypted_records > 0) {
    out.troubles.push_back(fmt::format(
        "{}/keys.json: missing; without the keys in it {} encrypted records cannot be read",
        folder,
        out.encrypted_records
    ));
  }
  std::ranges::move(keys_file_troubles(folder, files), std::back_inserter(out.troubles));
}

Survey make_survey(
    const std::string& folder, FileSystem& files, const Snapshot& at, std::int64_t now_s
) {
  Survey out;
  out.super = at.found.super;
  out.troubles = at.found.troubles;
  out.unknown_files = at.found.unknown_files;
  for (SpaceId id = 0; id < at.spaces->count(); ++id) out.spaces.push_back({at.spaces->spec(id)});
  fill_status(at, now_s, out);
  out.is_encrypted = has_keys_file(folder, files).value_or(true);
  add_small_file_troubles(folder, files, at, out);
  for (TenantStatus& tenant : out.status.tenants) tenant.encrypted = out.is_encrypted;
  out.status.folder = folder;
  out.status.epoch = out.super.epoch;
  out.status.unknown_files = static_cast<std::int64_t>(out.unknown_files.size());
  const std::string journal = folder + "/" + journal_name(out.super.journal);
  const auto file = files.open_blocks(journal, OpenMode::kRead);
  out.index_files_bytes = 2 * kBlock + (file ? (*file)->size().value_or(0) : 0);
  out.status.bytes_used += out.index_files_bytes;
  if (const auto space = files.space(folder)) {
    out.disk_free_bytes = space->free_bytes;
    out.is_disk_read_only = space->is_read_only;
  }
  const auto lock = files.lock(folder + "/lock", "a look at it");
  out.is_live = !lock && lock.error().code == Code::kUnavailable;
  if (!out.is_live) return out;
  const std::string& text = lock.error().message;  // ends in what the holder wrote
  const std::size_t colon = text.rfind(": ");
  out.holder = colon == text.npos ? text : text.substr(colon + 2);
  return out;
}

class Checker {
 public:
  Checker(
      const Snapshot& at,
      const VerifyOptions& options,
      std::vector<std::string> tenants_with_keys,
      Verified& out
  )
      : at_(at), options_(options), out_(out) {
    with_keys_.insert(tenants_with_keys.begin(), tenants_with_keys.end());
    if (options.keys != nullptr)
      cipher_ = std::make_unique<TenantCipher>(*options.keys, *at.spaces, system_random());
  }

  // Appends to `out.damaged`. False: told to stop.
  bool segment(const SegmentScan& scan, BlockFile& file, const std::string& path) {
    window_begin_ = window_end_ = 0;
    std::vector<const IndexEntry*> entries;
    for (const IndexEntry& entry : scan.entries) entries.push_back(&entry);
    std::ranges::sort(entries, {}, [](const IndexEntry* entry) { return entry->place.offset; });
    for (const IndexEntry* entry : entries) {
      if (options_.progress && !options_.progress(out_.bytes, total_)) return false;
      std::string what = record(*entry, file, path);
      ++out_.records;
      out_.bytes += entry->place.bytes;
      if (!what.empty()) out_.damaged.push_back({scan.id, entry->place.offset, std::move(what)});
    }
    return true;
  }
  void set_total(std::int64_t bytes) { total_ = bytes; }

 private:
  // Empty: sound.
  std::string record(const IndexEntry& entry, BlockFile& file, const std::string& path) {
    const auto read = fetch(entry.place, file, path);
    if (!read) return read.error().message;
    const std::span<std::byte> bytes = *read;
    if (static_cast<std::int64_t>(bytes.size()) != entry.place.bytes) return "the file ends in it";
    const auto header = decode_record_header(bytes, "header");
    const auto space = at_.tags.find(entry.space);
    if (!header) {
      const bool is_erased =
          std::ranges::all_of(bytes.first(static_cast<std::size_t>(kBlock)), [](std::byte b) {
            return b == std::byte{0};
          });
      if (!is_erased || space == at_.tags.end()) return header.error().message;
      return fmt::format(
          "zeros: erased, and the erasure of tenant '{}' was cut off; `artery kv drop-tenant` "
          "finishes it",
          at_.spaces->spec(space->second).tenant
      );
    }
    if (record_bytes(header->ids, header->payload_bytes) != entry.place.bytes)
      return "another size than the index says";
    if (!same_record(*header, entry)) return "another record than the index says";
    if (!check_payload(*header, bytes)) return "the payload's checksum does not fit";
    if (space == at_.tags.end()) return {};
    const SpaceSpec spec = at_.spaces->spec(space->second);
    const bool is_global = header->kind == RecordKind::kGlobal;
    if (is_global && header->payload_bytes != header->pages * spec.page_bytes)
      return "another size than its pages have";
    if (!header->encrypted) return {};
    if (cipher_ != nullptr) return decrypt(*header, space->second, bytes);
    ++(with_keys_.contains(spec.tenant) ? out_.records_unopened : out_.records_without_key);
    return {};
  }

  // A record's bytes, fewer where the file ends, from a window that holds those after it as well:
  // one read for many.
  Result<std::span<std::byte>> fetch(const Place& place, BlockFile& file, const std::string& path) {
    const std::int64_t end = place.offset + place.bytes;
    if (place.offset < window_begin_ || end > window_end_) {
      const std::int64_t bytes = std::max(place.bytes, kWindowBytes);
      if (static_cast<std::int64_t>(buffer_.span().size()) < bytes) buffer_ = AlignedBytes(bytes);
      auto got = read_all(file, place.offset, buffer_.first(bytes), path);
      // Something further on may be unreadable.
      if (!got) got = read_all(file, place.offset, buffer_.first(place.bytes), path);
      window_begin_ = place.offset;
      window_end_ = place.offset + got.value_or(0);
      if (!got) return tl::unexpected<Error>(got.error());
    }
    const std::int64_t there = std::min(end, window_end_) - place.offset;
    return buffer_.span().subspan(
        static_cast<std::size_t>(place.offset - window_begin_), static_cast<std::size_t>(there)
    );
  }

  // The index may know only the first half of a key.
  static bool same_record(const RecordHeader& header, const IndexEntry& entry) {
    return Replay::half(header.key) == Replay::half(entry.key) && header.kind == entry.record &&
           header.pages == entry.pages && header.encrypted == entry.encrypted &&
           space_tag(header.space) == entry.space;
  }

  std::string decrypt(const RecordHeader& header, SpaceId space, std::span<std::byte> bytes) {
    const Result<> opened = cipher_->open(space, header, bytes);
    if (opened) return {};
    if (opened.error().code != Code::kNotFound) return opened.error().message;
    ++out_.records_without_key;
    return {};
  }

  const Snapshot& at_;
  const VerifyOptions& options_;
  Verified& out_;
  std::unique_ptr<TenantCipher> cipher_;
  std::set<std::string> with_keys_;
  AlignedBytes buffer_;
  std::int64_t window_begin_ = 0, window_end_ = 0;  // of the segment, in `buffer_`
  std::int64_t total_ = 0;
};

// Records of the segments in `only` (null: of all).
Result<> check_segments(
    const std::string& folder,
    FileSystem& files,
    const Snapshot& at,
    const VerifyOptions& options,
    const std::set<SegmentId>* only,
    Verified& out
) {
  Checker checker(at, options, tenants_with_keys(folder, files), out);
  std::int64_t total = 0;
  for (const SegmentScan& scan : at.found.segments)
    for (const IndexEntry& entry : scan.entries) total += entry.place.bytes;
  checker.set_total(total);
  for (const SegmentScan& scan : at.found.segments) {
    if (only != nullptr && !only->contains(scan.id)) continue;
    const std::string path = folder + "/" + segment_name(scan.id);
    const auto file = files.open_blocks(path, OpenMode::kRead);
    if (!file) {
      if (!scan.entries.empty()) out.damaged.push_back({scan.id, 0, file.error().message});
    } else if (!checker.segment(scan, **file, path)) {
      return fail(Code::kCancelled, "{}: stopped after {} records", folder, out.records);
    }
  }
  return {};
}

// What only the master key tells; what the form of the file told is there already.
void add_key_troubles(const VerifyOptions& options, Survey& out) {
  if (options.keys == nullptr) return;
  for (const std::string& trouble : options.keys->troubles()) {
    if (std::ranges::find(out.troubles, trouble) == out.troubles.end()) {
      out.troubles.push_back(trouble);
    }
  }
}

}  // namespace

bool is_store_folder(const std::string& folder, const FileSystem& files) {
  const auto names = files.list(folder);
  return names && std::ranges::any_of(*names, [](const std::string& name) {
           return name == "super" || segment_of(name) || journal_of(name);
         });
}

Result<Survey> survey_store(const std::string& folder, FileSystem& files, std::int64_t now_s) {
  const Snapshot at = TRY(take_snapshot(folder, files));
  return make_survey(folder, files, at, now_s);
}

Result<Verified> verify_store(
    const std::string& folder, FileSystem& files, const VerifyOptions& options
) {
  const Snapshot at = TRY(take_snapshot(folder, files));
  Verified out;
  out.survey = make_survey(folder, files, at, options.now_s);
  add_key_troubles(options, out.survey);
  TRY(check_segments(folder, files, at, options, nullptr, out));
  if (out.is_clean() || !out.survey.is_live) return out;
  // A running server erases, seals and reclaims; only what is still wrong after a round of its
  // journal is.
  if (options.pause) options.pause();
  const Snapshot later = TRY(take_snapshot(folder, files));
  std::set<SegmentId> suspects;
  for (const Damage& damage : std::exchange(out.damaged, {})) suspects.insert(damage.segment);
  Verified again;
  TRY(check_segments(folder, files, later, options, &suspects, again));
  out.damaged = std::move(again.damaged);
  out.survey.troubles = make_survey(folder, files, later, options.now_s).troubles;
  add_key_troubles(options, out.survey);
  return out;
}

}  // namespace artery::kvstore
