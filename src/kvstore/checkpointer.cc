#include "kvstore/checkpointer.h"

#include <algorithm>
#include <cerrno>
#include <utility>

namespace artery::kvstore {
namespace {

constexpr std::int64_t kRoundNs = 1'000'000'000;
constexpr std::int64_t kDropNs = 10'000'000;  // while a dropped segment waits for its copies
constexpr std::int64_t kRotateAtLeast = 4 << 20;
constexpr std::size_t kKeysAtOnce = 256;  // under the lock

void append_uses(const Entry& entry, const ChainKey& key, std::vector<IndexEntry>& out) {
  out.push_back({
      .kind = EntryKind::kTouch,
      .ttl = entry.facts.ttl,
      .place = {},
      .uses = entry.uses,
      .key = key,
      .last_use_s = entry.last_use_s,
  });
  if (entry.facts.guaranteed_until_s == 0) return;
  out.push_back({
      .kind = EntryKind::kGuarantee,
      .place = {},
      .key = key,
      .guaranteed_until_s = entry.facts.guaranteed_until_s,
  });
}

// Puts that have ended, from the front on.
std::size_t over(const SegmentFile& segment) {
  std::size_t count = 0;
  for (const SegmentFile::Put& put : segment.puts) {
    if (put.state == SegmentFile::Put::State::kWriting) break;
    ++count;
  }
  return count;
}

}  // namespace

bool Checkpointer::is_clean() {
  if (!entries_.empty() || !core_.changes.empty() || !removals_.empty() || journal_dirty_ ||
      !core_.drops.empty()) {
    return false;
  }
  for (const auto& [id, segment] : core_.segments.all()) {
    if (!segment.is_dropped && (segment.is_dirty || over(segment) > 0)) return false;
  }
  const MutexLock lock(core_.state->mu);
  return core_.state->touched.empty() && !core_.state->catalog.has_evicted();
}

void Checkpointer::pump() {
  if (phase_ != Phase::kIdle || core_.journal == nullptr || core_.is_out()) return;
  const std::int64_t since = core_.now_ns() - last_ns_;
  // One that failed is not tried again at once.
  const std::int64_t pause = core_.drops.empty() || failed_ ? kRoundNs : kDropNs;
  const bool is_due = (core_.wants_round && !failed_) || since >= pause;
  if (!is_due || (is_clean() && !core_.wants_round)) return;
  begin();
}

void Checkpointer::begin() {
  core_.wants_round = false;
  last_ns_ = core_.now_ns();
  failed_ = false;
  ++round_;
  phase_ = Phase::kSegments;
  syncing_ = 1;
  for (auto& [id, segment] : core_.segments.all()) {
    if (!segment.is_dirty || segment.is_dropped) continue;
    auto file = core_.segments.writable(segment);
    if (!file) continue;
    segment.is_dirty = false;
    ++syncing_;
    core_.io->submit({
        .kind = IoRequest::Kind::kSync,
        .file = file.take(),
        .done = [this, of = segment.id, puts = over(segment)](const IoEnd& end
                ) { segment_synced(of, puts, end); },
    });
  }
  if (--syncing_ == 0) gather();
}

void Checkpointer::segment_synced(SegmentId id, std::size_t puts, const IoEnd& end) {
  SegmentFile* segment = core_.segments.find(id);
  if (segment != nullptr && end.error != 0) {
    segment->is_dirty = true;
    failed_ = true;
  } else if (segment != nullptr) {
    segment->synced = std::min(puts, segment->puts.size());
  }
  if (--syncing_ == 0) gather();
}

void Checkpointer::gather() {
  phase_ = Phase::kJournal;
  for (auto& [id, segment] : core_.segments.all()) gather_puts(segment);
  core_.settle_drops();
  std::vector<Catalog::Evicted> evicted;
  {
    const MutexLock lock(core_.state->mu);
    evicted = core_.state->catalog.take_evicted();
  }
  for (const Catalog::Evicted& one : evicted) core_.note_erased(one.key, one.place);
  for (const IndexEntry& change : std::exchange(core_.changes, {})) {
    if (change.kind == EntryKind::kDropSegment) removals_.push_back(change.place.segment);
    entries_.push_back(change);
  }
  gather_uses();
  write();
}

// As they are now: a put says all of its record, so what was said of it before would be forgotten,
// as a promise that came while it was being written or copied. What is not in the index any more
// must not come back by its header either.
void Checkpointer::gather_puts(SegmentFile& segment) {
  std::vector<IndexEntry> puts;
  for (; segment.synced > 0; --segment.synced) {
    const SegmentFile::Put& put = segment.puts.front();
    const bool counts = put.state == SegmentFile::Put::State::kWritten && !segment.is_dropped;
    if (counts) puts.push_back(put.entry);
    segment.puts.pop_front();
  }
  for (std::size_t at = 0; at < puts.size(); at += kKeysAtOnce) {
    const MutexLock lock(core_.state->mu);
    for (std::size_t i = at; i < std::min(puts.size(), at + kKeysAtOnce); ++i) {
      IndexEntry& put = puts[i];
      const auto now = core_.state->catalog.look_up(put.key);
      if (now && now->place.segment == put.place.segment && now->place.offset == put.place.offset) {
        put.ttl = now->facts.ttl;
        put.uses = now->uses;
        put.last_use_s = now->last_use_s;
        put.guaranteed_until_s = now->facts.guaranteed_until_s;
        segment.log.push_back(put);
      } else {
        put = {.kind = EntryKind::kErase, .place = put.place, .key = put.key};
      }
    }
  }
  entries_.insert(entries_.end(), puts.begin(), puts.end());
}

void Checkpointer::gather_uses() {
  std::vector<ChainKey> keys;
  {
    const MutexLock lock(core_.state->mu);
    keys.assign(core_.state->touched.begin(), core_.state->touched.end());
    core_.state->touched.clear();
  }
  for (std::size_t at = 0; at < keys.size(); at += kKeysAtOnce) {
    const MutexLock lock(core_.state->mu);
    for (std::size_t i = at; i < std::min(keys.size(), at + kKeysAtOnce); ++i) {
      const auto entry = core_.state->catalog.look_up(keys[i]);
      if (!entry) continue;
      append_uses(*entry, keys[i], entries_);
    }
  }
}

void Checkpointer::write() {
  if (entries_.empty()) {
    sync_journal();
    return;
  }
  const std::size_t count = std::min(entries_.size(), static_cast<std::size_t>(kBatchEntriesMax));
  const std::int64_t live = batch_bytes(static_cast<std::int64_t>(state_entries_));
  const bool has_grown = core_.journal->used() > std::max(kRotateAtLeast, 4 * live);
  if (!core_.journal->fits(count) || has_grown) {
    const Result<> rotated = rotate(false);
    if (!rotated) core_.file_failed(rotated.error());
    // Where a new one cannot be made, or has no room yet, the old one goes on growing.
  }
  const Journal::Chunk chunk =
      core_.journal->encode(std::span(entries_).first(count), core_.now_s());
  core_.io->submit({
      .kind = IoRequest::Kind::kWrite,
      .file = core_.journal->file(),
      .offset = chunk.offset,
      .buffer = chunk.bytes->span(),
      .keep = chunk.bytes,
      .done = [this, chunk, count](const IoEnd& end) { written(chunk, count, end); },
  });
}

void Checkpointer::written(const Journal::Chunk& chunk, std::size_t count, const IoEnd& end) {
  const auto size = static_cast<std::int64_t>(chunk.bytes->span().size());
  if (end.error != 0 || end.bytes != size) {
    // On a full disk that leaves the journal no room, space must come back nevertheless.
    if (end.error == ENOSPC || end.error == EDQUOT) remove_dropped();
    this->end(false);
    return;
  }
  core_.journal->appended(chunk);
  journal_dirty_ = true;
  entries_.erase(entries_.begin(), entries_.begin() + static_cast<std::ptrdiff_t>(count));
  if (entries_.empty()) {
    sync_journal();
  } else {
    write();
  }
}

void Checkpointer::sync_journal() {
  if (!journal_dirty_) {
    end(true);
    return;
  }
  core_.io->submit({
      .kind = IoRequest::Kind::kSync,
      .file = core_.journal->file(),
      .done =
          [this](const IoEnd& result) {
            if (result.error == 0) journal_dirty_ = false;
            end(result.error == 0);
          },
  });
}

void Checkpointer::end(bool is_well) {
  phase_ = Phase::kIdle;
  failed_ |= !is_well;
  if (is_well) remove_dropped();
  (failed_ ? failed_round_ : finished_) = round_;
}

void Checkpointer::remove_dropped() {
  for (const SegmentId id : std::exchange(removals_, {})) {
    const Result<> removed = core_.segments.remove(id);
    if (removed) continue;
    core_.file_failed(removed.error());
    removals_.push_back(id);
  }
}

// What the footers do not say: records of open segments; of sealed ones what was used, promised or
// erased since. Keys of the latter end in zeros: the index knows half of them.
std::vector<IndexEntry> Checkpointer::live_state() {
  std::vector<IndexEntry> out;
  for (const auto& [id, segment] : core_.segments.all()) {
    if (segment.is_dropped && !segment.awaits_copies) continue;
    std::vector<Entry> entries;
    {
      const MutexLock lock(core_.state->mu);
      entries = core_.state->catalog.records_of(id);
    }
    if (segment.sealed_s == 0) {
      std::vector<IndexEntry> puts = segment.log;
      keep_live(entries, puts);
      out.insert(out.end(), puts.begin(), puts.end());
      continue;
    }
    for (const Entry& entry : entries) {
      if (entry.last_use_s >= segment.sealed_s) append_uses(entry, entry.facts.key, out);
    }
    for (const SegmentFile::Erased& one : segment.erased) {
      out.push_back({
          .kind = EntryKind::kErase,
          .place = {.segment = id, .offset = std::int64_t{one.block} * kBlock},
          .key = padded_key(one.key),
      });
    }
  }
  return out;
}

Result<> Checkpointer::rotate(bool must) {
  const std::vector<IndexEntry> state = live_state();
  const auto entries = static_cast<std::int64_t>(state.size());
  const JournalHeader header{
      .journal = core_.super.journal + 1,
      .epoch = core_.super.epoch,
      .created_s = core_.now_s(),
  };
  // The state, as much again, and a few batches.
  const std::int64_t bytes =
      std::max(core_.journal_bytes, kBlock + 2 * batch_bytes(entries) + batch_bytes(256));
  const bool fits = core_.folder_bytes() + bytes <= core_.config.bytes_max;
  core_.journal_wanted = fits ? 0 : bytes;  // the catalog makes room for it
  if (!fits && !must) return {};
  std::unique_ptr<Journal> next =
      TRY(Journal::create(core_.config.folder, core_.files, header, bytes));
  Result<> made = next->append(state, core_.now_s());
  if (made) made = next->file()->sync();
  SuperBlock super = core_.super;
  super.journal = header.journal;
  super.is_clean = false;
  if (made) made = core_.write_super(super);
  if (!made) {
    (void)core_.files.remove_file(next->path());
    return made;
  }
  core_.count([&](StoreStatus& counts) { counts.bytes_to_disk += next->used(); });
  const std::unique_ptr<Journal> old = std::exchange(core_.journal, std::move(next));
  if (old != nullptr) (void)core_.files.remove_file(old->path());
  state_entries_ = state.size();
  journal_dirty_ = false;
  return {};
}

}  // namespace artery::kvstore
