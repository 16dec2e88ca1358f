#include "kvstore/writer.h"

#include <algorithm>
#include <utility>

#include "kvstore/record_format.h"

namespace artery::kvstore {
namespace {

constexpr std::int64_t kSecond = 1'000'000'000;
constexpr std::int64_t kLookNs = 100'000'000;

}  // namespace

Writer::Writer(StoreCore& core)
    : core_(core),
      budget_(core.config.write_bytes_per_s, core.state->slots.slot_bytes()),
      speed_(200e6) {
  core.state->write_bytes_per_s.store(speed_.bytes_per_s());
}

void Writer::add(WriteJob job) {
  ++added_;
  waiting_.push_back(std::move(job));
}

bool Writer::is_idle() const {
  return waiting_.empty() && under_way_ == 0 && sealing_ == 0 && seals_.empty();
}

std::int64_t Writer::next_event_ns() const {
  return token_wait_ns_ > 0 ? core_.now_ns() + token_wait_ns_ : -1;
}

void Writer::pump() {
  token_wait_ns_ = 0;
  look_for_room();
  while (!waiting_.empty() && under_way_ < kWritesMax && start(waiting_.front())) {
  }
  pump_seals();
}

// False: it has to wait. True: it is not the first in line any more.
bool Writer::start(WriteJob& job) {
  if (job.placed.seal) want_seal(*std::exchange(job.placed.seal, std::nullopt));
  const Place place = job.placed.place;
  SegmentFile* segment = core_.segments.find(place.segment);
  if (segment == nullptr && job.placed.opens_segment) {
    const Made made = make_segment(place.segment, job.facts.ttl);
    if (made == Made::kLater) return false;
    if (made == Made::kNo) {
      drop_segment_of(job);
      return true;
    }
    segment = core_.segments.find(place.segment);
  }
  if (segment != nullptr) {
    token_wait_ns_ = budget_.wait_ns(place.bytes, core_.now_ns());
    if (token_wait_ns_ > 0) return false;
    budget_.take(place.bytes, core_.now_ns());
  }
  WriteJob first = std::move(job);
  waiting_.pop_front();
  if (segment == nullptr) {
    drop(first, &StoreStatus::writes_refused_room);  // the segment went while it waited
  } else {
    send(std::move(first), *segment);
  }
  return true;
}

bool Writer::is_under_cap(std::int64_t bytes) const {
  return core_.segments.bytes() + bytes <= core_.segments_max();
}

// Once no file could be made, nothing is offered that would try again.
void Writer::look_for_room() {
  const std::int64_t now = core_.now_ns();
  if (!core_.state->no_room.load(std::memory_order_relaxed)) return;
  if (room_tried_ns_ >= 0 && now - room_tried_ns_ < kLookNs) return;
  room_tried_ns_ = now;
  if (has_room(core_.config.segment_bytes)) {
    core_.state->no_room.store(false, std::memory_order_relaxed);
  } else if (!is_under_cap(core_.config.segment_bytes)) {
    core_.wants_reclaim = true;
  }
}

bool Writer::has_room(std::int64_t bytes) const {
  if (!is_under_cap(bytes)) return false;
  const auto space = core_.files.space(core_.config.folder);
  if (!space) return space.error().code == Code::kUnsupported;
  return space->free_bytes - bytes >= core_.config.free_floor_bytes;
}

Writer::Made Writer::make_segment(SegmentId id, TtlClass ttl) {
  const std::int64_t bytes = core_.config.segment_bytes;
  const std::int64_t now = core_.now_ns();
  const auto space = core_.files.space(core_.config.folder);
  if (!space && space.error().code != Code::kUnsupported) {
    core_.file_failed(space.error());  // no matter of room: the folder is gone, or the disk
    return Made::kNo;
  }
  if (!has_room(bytes)) {
    if (room_since_ns_ < 0) room_since_ns_ = now;
    core_.wants_reclaim = true;
    // A file that is on its way out makes room soon; otherwise nobody waits for long, and not at
    // all where nothing is there that could go.
    const bool may_come = !core_.segments.all().empty() && now - room_since_ns_ < 2 * kSecond;
    if (core_.awaits_removal() || may_come) return Made::kLater;
    room_since_ns_ = -1;
    core_.state->no_room.store(true, std::memory_order_relaxed);
    core_.trouble(
        "room",
        fmt::format(
            "{}: no room for a segment of {} bytes under the cap of {} and above the floor of {} "
            "free bytes; nothing new is stored",
            core_.config.folder,
            bytes,
            core_.config.bytes_max,
            core_.config.free_floor_bytes
        )
    );
    return Made::kNo;
  }
  room_since_ns_ = -1;
  const auto made = core_.segments.create({
      .segment = id,
      .ttl = ttl,
      .epoch = core_.super.epoch,
      .created_s = core_.now_s(),
      .bytes = bytes,
  });
  if (!made) {
    core_.file_failed(made.error());
    return Made::kNo;
  }
  core_.state->no_room.store(false, std::memory_order_relaxed);
  core_.count([](StoreStatus& counts) { counts.bytes_to_disk += kBlock; });
  return Made::kYes;
}

void Writer::drop(const WriteJob& job, std::int64_t StoreStatus::* counter) {
  {
    const MutexLock lock(core_.state->mu);
    core_.state->catalog.forget(job.facts.key);
  }
  core_.count([counter](StoreStatus& counts) { ++(counts.*counter); });
  core_.state->bytes_to_write.fetch_sub(job.placed.place.bytes, std::memory_order_relaxed);
  core_.state->slots.give(SlotPool::Use::kWrite, job.slot);
}

// Its file cannot be made: nothing that was placed in it is written.
void Writer::drop_segment_of(const WriteJob& job) {
  const SegmentId id = job.placed.place.segment;
  std::deque<WriteJob> rest;
  for (WriteJob& waiting : waiting_) {
    if (waiting.placed.place.segment == id) {
      drop(waiting, &StoreStatus::writes_refused_room);
    } else {
      rest.push_back(std::move(waiting));
    }
  }
  waiting_ = std::move(rest);
  const MutexLock lock(core_.state->mu);
  core_.state->catalog.drop_segment(id, MissReason::kBudget);
}

void Writer::drop_all() {
  while (!waiting_.empty()) {
    const WriteJob job = waiting_.front();
    if (job.placed.seal) want_seal(*job.placed.seal);
    if (job.placed.opens_segment && core_.segments.find(job.placed.place.segment) == nullptr) {
      drop_segment_of(job);
      continue;
    }
    waiting_.pop_front();
    drop(job, &StoreStatus::writes_refused_budget);
  }
}

Result<RecordHeader> Writer::encode(const WriteJob& job, std::span<std::byte> record) {
  RecordHeader header;
  header.kind = job.facts.kind;
  header.ttl = job.facts.ttl;
  header.space = core_.spaces->digest(job.facts.space);
  header.key = job.facts.key;
  header.parent = job.facts.parent;
  header.sequence = core_.next_sequence();
  header.epoch = core_.super.epoch;
  header.written_s = core_.now_s();
  header.guaranteed_until_s = job.facts.guaranteed_until_s;
  header.pages = job.facts.pages;
  header.ids = job.ids;
  header.payload_bytes = job.payload_bytes;
  if (core_.cipher != nullptr) TRY(core_.cipher->seal(job.facts.space, header, record));
  encode_record(header, record);
  return header;
}

void Writer::begin_put(SegmentFile& segment, const IndexEntry& entry) {
  // A copy can be placed after a record that has not come here yet.
  auto at = segment.puts.end();
  while (at != segment.puts.begin() && std::prev(at)->entry.place.offset > entry.place.offset) --at;
  const auto put = segment.puts.insert(at, {.entry = entry});
  if (static_cast<std::size_t>(put - segment.puts.begin()) < segment.synced) {
    segment.synced = static_cast<std::size_t>(put - segment.puts.begin());
  }
  segment.end = std::max(segment.end, entry.place.offset + entry.place.bytes);
  ++segment.writes;
}

void Writer::end_put(SegmentFile& segment, std::int64_t offset, bool is_written) {
  const auto at = std::ranges::find(segment.puts, offset, [](const SegmentFile::Put& put) {
    return put.entry.place.offset;
  });
  if (at == segment.puts.end()) return;
  at->state = is_written ? SegmentFile::Put::State::kWritten : SegmentFile::Put::State::kFailed;
  segment.is_dirty = true;
  --segment.writes;
}

void Writer::send(WriteJob job, SegmentFile& segment) {
  const Place place = job.placed.place;
  const auto record =
      core_.state->slots.slot(job.slot).first(static_cast<std::size_t>(place.bytes));
  const Result<> saved = core_.spaces->save(job.facts.space);
  const auto header = saved ? encode(job, record) : tl::unexpected<Error>(saved.error());
  auto file = core_.segments.writable(segment);
  if (!header || !file) {
    core_.file_failed(header ? file.error() : header.error());
    drop(job, &StoreStatus::writes_refused_budget);
    return;
  }
  begin_put(segment, put_entry(*header, place));
  ++under_way_;
  speed_.begin(core_.io->watched_ns());
  core_.io->submit({
      .kind = IoRequest::Kind::kWrite,
      .file = file.take(),
      .offset = place.offset,
      .buffer = record,
      .keep = core_.state,
      .done = [this, job = std::move(job)](const IoEnd& end) { ended(job, end); },
  });
}

void Writer::ended(const WriteJob& job, const IoEnd& end) {
  --under_way_;
  speed_.end(end.bytes, core_.io->watched_ns());
  core_.state->write_bytes_per_s.store(speed_.bytes_per_s(), std::memory_order_relaxed);
  const Place place = job.placed.place;
  const bool is_written = end.error == 0 && end.bytes == place.bytes;
  if (SegmentFile* segment = core_.segments.find(place.segment); segment != nullptr) {
    end_put(*segment, place.offset, is_written);
  }
  if (!is_written) {
    drop(job, &StoreStatus::writes_refused_budget);
    return;
  }
  {
    const MutexLock lock(core_.state->mu);
    core_.state->catalog.commit(job.facts.key, core_.now_s());
    ++core_.state->counts.records_written;
    core_.state->counts.bytes_written += place.bytes;
  }
  core_.state->bytes_to_write.fetch_sub(place.bytes, std::memory_order_relaxed);
  core_.state->slots.give(SlotPool::Use::kWrite, job.slot);
}

// --- seals

void Writer::want_seal(SegmentId id) {
  SegmentFile* segment = core_.segments.find(id);
  if (segment == nullptr || segment->wants_seal || segment->sealed_s != 0) return;
  segment->wants_seal = true;
  seals_.push_back(id);
}

void Writer::pump_seals() {
  const std::int64_t now = core_.now_ns();
  for (std::size_t i = seals_.size(); i > 0; --i) {
    const SegmentId id = seals_.front();
    seals_.pop_front();
    SegmentFile* segment = core_.segments.find(id);
    if (segment == nullptr || segment->sealed_s != 0) continue;
    const bool may_try = segment->seal_tried_ns < 0 || now - segment->seal_tried_ns > kSecond;
    // Records placed in it may still be on their way here: they are ahead of the record that asked
    // for the seal, but for copies.
    if (segment->writes > 0 || !may_try || core_.is_out()) {
      seals_.push_back(id);
      continue;
    }
    segment->seal_tried_ns = now;
    seal(*segment);
  }
}

void Writer::seal(SegmentFile& segment) {
  std::vector<Entry> live;
  {
    const MutexLock lock(core_.state->mu);
    live = core_.state->catalog.records_of(segment.id);
  }
  std::vector<IndexEntry> entries = segment.log;
  for (const SegmentFile::Put& put : segment.puts) {
    if (put.state == SegmentFile::Put::State::kWritten) entries.push_back(put.entry);
  }
  keep_live(live, entries);
  auto file = core_.segments.writable(segment);
  if (!file) {
    core_.open_failed(segment.id, file.error());
    seals_.push_back(segment.id);
    return;
  }
  const auto footer =
      std::make_shared<AlignedBytes>(footer_bytes(static_cast<std::int64_t>(entries.size())));
  const Trailer trailer{
      .segment = segment.id,
      .ttl = segment.ttl,
      .epoch = core_.super.epoch,
      .sealed_s = core_.now_s(),
      .records_end = segment.end,
      .entries = static_cast<std::int64_t>(entries.size()),
  };
  encode_footer(trailer, entries, footer->span());
  ++sealing_;
  segment.is_sealing = true;
  const std::int64_t bytes = segment.end + static_cast<std::int64_t>(footer->span().size());
  core_.io->submit({
      .kind = IoRequest::Kind::kWrite,
      .file = file.take(),
      .offset = segment.end,
      .buffer = footer->span(),
      .keep = footer,
      .done = [this, id = segment.id, bytes](const IoEnd& end) { footer_ended(id, bytes, end); },
  });
}

// It is tried again a second later.
void Writer::seal_failed(SegmentId id) {
  --sealing_;
  SegmentFile* segment = core_.segments.find(id);
  if (segment == nullptr) return;
  segment->is_sealing = false;
  seals_.push_back(id);
}

void Writer::footer_ended(SegmentId id, std::int64_t bytes, const IoEnd& end) {
  SegmentFile* segment = core_.segments.find(id);
  if (segment == nullptr || end.error != 0) {
    seal_failed(id);
    return;
  }
  auto file = core_.segments.writable(*segment);
  const Result<> cut = file ? (*file)->truncate(bytes) : tl::unexpected<Error>(file.error());
  if (!cut) {
    core_.file_failed(cut.error());
    seal_failed(id);
    return;
  }
  core_.io->submit({
      .kind = IoRequest::Kind::kSync,
      .file = file.take(),
      .done = [this, id, bytes](const IoEnd& synced) { seal_ended(id, bytes, synced); },
  });
}

void Writer::seal_ended(SegmentId id, std::int64_t bytes, const IoEnd& end) {
  SegmentFile* segment = core_.segments.find(id);
  if (segment == nullptr || end.error != 0) {
    seal_failed(id);
    return;
  }
  --sealing_;
  segment->is_sealing = false;
  segment->bytes = bytes;
  segment->sealed_s = core_.now_s();
  segment->is_dirty = false;
  segment->puts.clear();
  segment->synced = 0;
  segment->log = {};
  core_.changes.push_back(
      {.kind = EntryKind::kSeal, .place = {.segment = id, .offset = segment->end}}
  );
  const MutexLock lock(core_.state->mu);
  core_.state->catalog.seal(id, bytes);
}

}  // namespace artery::kvstore
