#include "kvstore/store.h"

#include <unistd.h>

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "base/log.h"
#include "base/random.h"
#include "kvstore/checkpointer.h"
#include "kvstore/disk_store.h"
#include "kvstore/folder_secret.h"
#include "kvstore/record_format.h"
#include "kvstore/recovery.h"
#include "kvstore/tenant_cipher.h"

namespace artery::kvstore {
namespace {

constexpr int kDepth = 64;    // of the queue: loads, writes, copies, syncs together
constexpr int kThreads = 16;  // where io_uring is not there; some may hang
constexpr std::int64_t kJournalMost = 64 << 20, kJournalLeast = 128 << 10;
constexpr std::int64_t kSmallFiles = 16 * kBlock;
constexpr std::int64_t kSegmentsLeast = 3;
constexpr int kRecordIds = 256;  // 16 pages

std::int64_t journal_bytes(const StoreConfig& config) {
  return std::clamp(config.bytes_max / 128, kJournalLeast, kJournalMost) / kBlock * kBlock;
}

// Two journals are there while one is begun anew.
CatalogLimits limits_of(const StoreConfig& config) {
  return {
      .bytes_max = config.bytes_max - 2 * journal_bytes(config) - kSmallFiles,
      .segment_bytes = config.segment_bytes,
  };
}

Result<StoreConfig> checked(StoreConfig config) {
  if (config.folder.empty()) return fail(Code::kInvalidArgument, "the store's folder has no name");
  while (config.folder.size() > 1 && config.folder.back() == '/') config.folder.pop_back();
  if (config.record_bytes_max <= 0 || config.record_bytes_max > kRecordPayloadMax) {
    return fail(
        Code::kInvalidArgument,
        "records of {} bytes: from 1 to {}",
        config.record_bytes_max,
        kRecordPayloadMax
    );
  }
  const std::int64_t record = record_bytes(kRecordIds, config.record_bytes_max);
  const std::int64_t least = kBlock + record + footer_bytes(1);
  if (config.segment_bytes == 0) {
    config.segment_bytes = segment_bytes_for(limits_of(config).bytes_max, record);
  }
  config.segment_bytes = std::max(config.segment_bytes / kBlock * kBlock, least);
  const std::int64_t needed = kSegmentsLeast * config.segment_bytes + 2 * journal_bytes(config);
  if (config.bytes_max < needed + kSmallFiles) {
    return fail(
        Code::kInvalidArgument,
        "{}: a cap of {} bytes is too small for records of {}; raise --kv-max-bytes to {} or more",
        config.folder,
        config.bytes_max,
        record,
        needed + kSmallFiles
    );
  }
  return config;
}

Result<std::unique_ptr<FileLock>> lock_folder(const StoreConfig& config, FileSystem& files) {
  const std::string owner = fmt::format("process {}", ::getpid());
  auto lock = files.lock(config.folder + "/lock", owner);
  if (lock || lock.error().code != Code::kUnavailable) return lock;
  return fail(
      Code::kUnavailable,
      "{} (opened for writing by another server: stop it, name another folder with --kv-dir, or "
      "open "
      "this one with --kv-read-only)",
      lock.error().message
  );
}

void report(const Recovered& found, const StoreConfig& config, StoreCore& core) {
  for (const std::string& trouble : found.troubles) core.trouble("recovery", trouble);
  if (!found.unknown_files.empty()) {
    std::string names;
    for (std::size_t i = 0; i < std::min<std::size_t>(found.unknown_files.size(), 5); ++i) {
      names += (i == 0 ? "" : ", ") + found.unknown_files[i];
    }
    log_warn(
        "kvstore {}: {} files that are not the store's are left alone: {}{}",
        config.folder,
        found.unknown_files.size(),
        names,
        found.unknown_files.size() > 5 ? ", ..." : ""
    );
  }
  core.count([&](StoreStatus& counts) {
    counts.segments_lost = found.lost;
    counts.recovery_cuts = found.cuts;
    counts.version_mismatches = found.versions;
    counts.unknown_files = static_cast<std::int64_t>(found.unknown_files.size());
  });
}

// Of open segments of one class the latest goes on; where what lies at its end is not in the index
// any more it does not, because the index would write over what the journal speaks of.
bool goes_on(
    const SegmentScan& scan,
    const std::vector<SegmentScan>& all,
    const std::unordered_map<std::uint64_t, SpaceId>& spaces
) {
  if (scan.state != SegmentScan::State::kOpen) return false;
  for (const SegmentScan& other : all) {
    if (other.state == scan.state && other.ttl == scan.ttl && other.id > scan.id) return false;
  }
  std::int64_t end = kBlock;
  for (const IndexEntry& entry : scan.entries) {
    if (spaces.contains(entry.space)) end = std::max(end, entry.place.offset + entry.place.bytes);
  }
  return end == scan.end;
}

Entry to_entry(const IndexEntry& from, SpaceId space) {
  return {
      .facts =
          {
              .space = space,
              .kind = from.record,
              .ttl = from.ttl,
              .key = from.key,
              .parent = from.parent,
              .pages = from.pages,
              .guaranteed_until_s = from.guaranteed_until_s,
          },
      .place = from.place,
      .written_s = from.written_s,
      .last_use_s = from.last_use_s,
      .uses = from.uses,
  };
}

void adopt(const SegmentScan& scan, bool is_open, const Replay& replay, StoreCore& core) {
  SegmentFile segment;
  segment.id = scan.id;
  segment.ttl = scan.ttl;
  segment.bytes = scan.bytes;
  segment.sealed_s = scan.sealed_s;
  segment.end = scan.end;
  if (scan.state != SegmentScan::State::kSealed) {
    segment.wants_seal = !is_open && !core.config.read_only;
    const auto journaled = scan.entries.begin() + static_cast<std::ptrdiff_t>(scan.journaled);
    segment.log.assign(scan.entries.begin(), journaled);
    for (auto at = journaled; at != scan.entries.end(); ++at) {
      segment.puts.push_back({.entry = *at, .state = SegmentFile::Put::State::kWritten});
    }
    segment.is_dirty = !segment.puts.empty() && !core.config.read_only;
  }
  if (const auto known = replay.segments.find(scan.id); known != replay.segments.end()) {
    for (const auto& [key, upto] : known->second.erased) {
      segment.erased.emplace_back(key, upto < scan.bytes ? upto : 0);
    }
  }
  core.segments.adopt(std::move(segment));
}

// Switching encryption on changes nothing of what is there already.
void warn_of_plain_records(const Recovered& found, const StoreConfig& config) {
  std::int64_t records = 0, plain = 0;
  for (const SegmentScan& scan : found.segments) {
    for (const IndexEntry& entry : scan.entries) {
      ++records;
      plain += entry.encrypted ? 0 : 1;
    }
  }
  if (plain == 0) return;
  log_warn(
      "kvstore {}: {} of {} records were written without encryption: they stay in plain text on "
      "the disk until they expire, and are never used; to be rid of them now, stop the server and "
      "delete the folder, or `artery kv drop-tenant` the tenants that `artery inspect` lists",
      config.folder,
      plain,
      records
  );
}

void fill_catalog(Recovered& found, StoreCore& core) {
  std::unordered_map<std::uint64_t, SpaceId> spaces;
  for (SpaceId id = 0; id < core.spaces->count(); ++id) {
    spaces.emplace(space_tag(core.spaces->digest(id)), id);
  }
  const MutexLock lock(core.state->mu);
  Catalog& catalog = core.state->catalog;
  for (const auto& [tag, id] : spaces) {
    const SpaceSpec spec = core.spaces->spec(id);
    catalog.add_space(id, spec.tenant, spec.record_pages);
  }
  for (const auto& [tenant, bytes] : core.config.quotas) catalog.set_quota(tenant, bytes);
  for (SegmentScan& scan : found.segments) {
    const bool is_open = !core.config.read_only && goes_on(scan, found.segments, spaces);
    catalog.restore_segment(scan.id, scan.ttl, scan.bytes, !is_open);
    for (IndexEntry& entry : scan.entries) {
      const auto space = spaces.find(entry.space);
      if (space == spaces.end()) {
        ++core.state->counts.version_mismatches;
        continue;
      }
      found.replay.raise(entry);
      catalog.restore(to_entry(entry, space->second), core.now_s());
      ++core.state->counts.recovered_records;
    }
    adopt(scan, is_open, found.replay, core);
  }
  catalog.set_next_segment(found.next_segment);
  catalog.end_restore(core.now_s());
  if (core.config.read_only) return;
  while (catalog.enforce_quotas(core.now_s())) {
  }
}

// Counted as version_mismatches by fill_catalog().
void warn_of_unnamed_records(const Recovered& found, StoreCore& core) {
  std::int64_t unnamed = -found.versions;
  core.count([&](const StoreStatus& counts) { unnamed += counts.version_mismatches; });
  const int damaged = core.spaces->damaged_lines();
  if (unnamed == 0 && damaged == 0) return;
  core.trouble(
      "spaces",
      fmt::format(
          "{}/spaces.json: {}; the model and tenant of {} records were in it, and these are misses "
          "until they expire; to have them again, stop the server and put spaces.json back from a "
          "backup",
          core.config.folder,
          damaged > 0 ? fmt::format("{} damaged lines", damaged) : "missing, or lines of it are",
          unnamed
      )
  );
}

// The folder is ours from here on: a new epoch.
Result<> begin_writing(const Recovered& found, StoreCore& core) {
  const StoreConfig& config = core.config;
  for (const std::string& name : found.leftovers) {
    const Result<> removed = core.files.remove_file(config.folder + "/" + name);
    if (!removed) log_warn("kvstore {}", removed.error().message);
  }
  const std::string path = config.folder + "/super";
  auto file = core.files.open_blocks(path, OpenMode::kWrite);
  const bool is_there = file.has_value();
  if (!is_there && file.error().code == Code::kNotFound) {
    file = core.files.open_blocks(path, OpenMode::kCreate);
  }
  if (!file) return tl::unexpected<Error>(file.error());
  core.super_file = file.take();
  core.super = found.super;
  core.super.epoch += 1;
  core.super.is_clean = false;
  core.super.next_segment = found.next_segment;
  if (core.super.created_s == 0) core.super.created_s = core.now_s();
  if (found.has_journal) {
    core.journal = TRY(Journal::resume(
        config.folder, core.files, found.super.journal, found.replay.end, found.replay.sequence
    ));
  }
  const bool is_large = found.has_journal && core.journal->bytes() > 2 * core.journal_bytes;
  if (found.has_journal && !found.replay.is_torn && !is_large) return core.write_super(core.super);
  TRY(Checkpointer(core).rotate());
  return is_there ? Result<>{} : core.files.sync_folder(config.folder);
}

// io_uring needs descriptors; a file system of tests has none.
Result<std::unique_ptr<IoQueue>> make_queue(const StoreCore& core) {
  using Io = StoreConfig::Io;
  const bool has_descriptors = core.super_file == nullptr || core.super_file->descriptor() >= 0;
  if (core.config.io != Io::kThreads && has_descriptors) {
    auto queue = make_uring_queue(kDepth, core.state->slots.memory());
    if (queue || core.config.io == Io::kUring) return queue;
    log_info("kvstore {}: threads instead", queue.error().message);
  }
  return make_thread_queue(kDepth, kThreads);
}

Result<> find_secret(const Recovered& found, const StoreConfig& config, OpenedStore& out) {
  std::int64_t records = 0;
  for (const SegmentScan& scan : found.segments) {
    records += static_cast<std::int64_t>(scan.entries.size());
  }
  const SecretFacts facts{
      .may_make = !config.read_only,
      .records = records,
      .check = found.super.secret_check,
  };
  auto secret = open_secret(config.folder, *out.files, facts);
  // Erasing and collecting go by what is in the index.
  if (!secret && secret.error().code == Code::kBadFile && config.keyless) return {};
  out.secret = TRY(std::move(secret));
  return {};
}

// keys.json is made with the first encrypted record at the latest, and never removed.
Result<> check_keys_file(
    const Recovered& found, const StoreConfig& config, FileSystem& files, bool& is_there
) {
  is_there = TRY(has_keys_file(config.folder, files));
  std::int64_t encrypted = 0;
  for (const SegmentScan& scan : found.segments) {
    encrypted += std::ranges::count_if(scan.entries, &IndexEntry::encrypted);
  }
  if (is_there || encrypted == 0 || config.keyless) return {};
  return fail(
      Code::kBadFile,
      "{}/keys.json: missing; the tenants' keys were in it, and without them the {} encrypted "
      "records in this folder cannot be read. Put it back from a backup, or delete the folder to "
      "start over",
      config.folder,
      encrypted
  );
}

Result<> open_keys(const Recovered& found, const StoreConfig& config, OpenedStore& out) {
  FileSystem& files = *out.files;
  out.core->spaces = TRY(Spaces::open(config.folder, files));
  bool has_file = false;
  TRY(check_keys_file(found, config, files, has_file));
  if (!config.encrypt) {
    // Plain text beside encrypted records is never what somebody wanted.
    if (config.keyless || !has_file) return {};
    return fail(Code::kBadFile, "{}: is encrypted: give --kv-encryption-key-file", config.folder);
  }
  const AeadKey master = TRY(read_master_key(config.encryption_key_file, files));
  out.keys = TRY(TenantKeys::open(config.folder, master, files, system_random(), config.read_only));
  for (const std::string& trouble : out.keys->troubles()) out.core->trouble(trouble, trouble);
  out.secret = out.keys->chain_secret(out.secret);
  out.core->cipher = std::make_unique<TenantCipher>(*out.keys, *out.core->spaces, system_random());
  return {};
}

}  // namespace

Result<std::unique_ptr<DiskStore>> DiskStore::open(
    const StoreConfig& config_in, FileSystem& files, const Clock& clock
) {
  const std::int64_t begun_ns = clock.monotonic_ns();
  const StoreConfig config = TRY(checked(config_in));
  OpenedStore opened;
  if (!config.read_only) {
    const Result<> made = files.make_folder(config.folder);
    if (!made)
      return fail(made.error().code, "{}: cannot be made: {}", config.folder, made.error().message);
    opened.lock = TRY(lock_folder(config, files));
  }
  opened.files = std::make_unique<FolderGuard>(files, config.folder);
  config.read_only ? opened.files->hold_folder() : opened.files->hold_lock();
  Recovered found = TRY(recover(config.folder, *opened.files));
  opened.core = std::make_unique<StoreCore>(config, *opened.files, clock);
  StoreCore& core = *opened.core;
  core.journal_bytes = journal_bytes(config);
  core.state = std::make_shared<StoreState>(
      limits_of(config), config.buffer_bytes, record_bytes(kRecordIds, config.record_bytes_max)
  );
  TRY(find_secret(found, config, opened));
  found.super.secret_check =
      opened.secret.empty() ? found.super.secret_check : secret_check(opened.secret);
  TRY(open_keys(found, config, opened));
  report(found, config, core);
  if (config.encrypt) warn_of_plain_records(found, config);
  fill_catalog(found, core);
  warn_of_unnamed_records(found, core);
  core.super = found.super;
  if (!config.read_only) TRY(begin_writing(found, core));
  core.io = std::make_unique<IoPump>(TRY(make_queue(core)), kDepth, clock);
  core.count([&](StoreStatus& counts) {
    counts.io = std::string(core.io->name());
    counts.epoch = core.super.epoch;
    counts.open_s = static_cast<double>(clock.monotonic_ns() - begun_ns) * 1e-9;
  });
  const bool is_over = core.folder_bytes() > config.bytes_max;
  auto store = std::make_unique<DiskStoreImpl>(std::move(opened));
  if (is_over && !config.read_only) {
    const auto freed = store->collect();
    if (!freed) log_warn("kvstore {}", freed.error().message);
  }
  return store;
}

}  // namespace artery::kvstore
