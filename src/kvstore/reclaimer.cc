#include "kvstore/reclaimer.h"

#include <algorithm>
#include <utility>

#include "kvstore/record_format.h"

namespace artery::kvstore {
namespace {

constexpr std::int64_t kExpireNs = 1'000'000'000;
constexpr std::int64_t kRetryNs = 5'000'000'000;
constexpr std::int64_t kRoomRetryNs = 50'000'000;

}  // namespace

void Reclaimer::expire() {
  expired_ns_ = core_.now_ns();
  std::vector<SegmentId> dead;
  {
    const MutexLock lock(core_.state->mu);
    dead = core_.state->catalog.dead_segments(core_.now_s());
  }
  for (const SegmentId id : dead) {
    const SegmentFile* segment = core_.segments.find(id);
    // Its first record has not come here yet, or it is being read for copies.
    if (segment == nullptr || segment->is_sealing) continue;
    if (job_ != nullptr && job_->victim.segment == id) continue;
    {
      const MutexLock lock(core_.state->mu);
      if (!core_.state->catalog.drop_dead(id, core_.now_s())) continue;
    }
    core_.drop_segment(id, MissReason::kExpired);
    core_.count([](StoreStatus& counts) { ++counts.segments_expired; });
  }
}

bool Reclaimer::wants_more() {
  // What was dropped already comes back first: until then no file can be made for copies.
  if (core_.now_ns() < not_before_ns_ || core_.awaits_removal()) return false;
  std::int64_t pressure = 0;
  {
    const MutexLock lock(core_.state->mu);
    pressure = core_.state->catalog.pressure();
  }
  if (pressure > 0) return true;
  return core_.wants_reclaim || core_.state->wants_room.load(std::memory_order_relaxed);
}

void Reclaimer::enforce_quotas() { enforces_quotas_ = !core_.config.read_only; }

void Reclaimer::pump_quotas() {
  if (!enforces_quotas_) return;
  const MutexLock lock(core_.state->mu);
  enforces_quotas_ = core_.state->catalog.enforce_quotas(core_.now_s());
}

void Reclaimer::pump() {
  pump_quotas();
  if (core_.config.read_only || core_.is_out()) return;
  if (expired_ns_ < 0 || core_.now_ns() - expired_ns_ >= kExpireNs) {
    enforce_quotas();  // a promise may have ended
    expire();
  }
  if (job_ == nullptr && !core_.holds_reclaim && wants_more()) begin();
  if (job_ == nullptr) return;
  while (job_->under_way < kCopiesMax && copy_next()) {
  }
  if (job_->under_way == 0 && (job_->is_stuck || job_->next == job_->victim.keep.size())) finish();
}

void Reclaimer::begin() {
  core_.wants_reclaim = false;
  core_.state->wants_room.store(false, std::memory_order_relaxed);
  std::optional<Catalog::Victim> victim;
  const bool may_open = writer_.has_room(core_.config.segment_bytes);
  {
    const MutexLock lock(core_.state->mu);
    victim = core_.state->catalog.victim(core_.now_s(), may_open);
  }
  if (!victim) {  // all promised, or written to just now
    pause_ns_ = std::clamp(2 * pause_ns_, kRoomRetryNs, kRetryNs);
    not_before_ns_ = core_.now_ns() + pause_ns_;
    return;
  }
  pause_ns_ = 0;
  SegmentFile* segment = core_.segments.find(victim->segment);
  // A segment that was never made a file: nothing to copy.
  if (segment != nullptr && segment->is_sealing) return;
  job_ = std::make_unique<Job>();
  job_->victim = std::move(*victim);
}

// False: nothing more can be sent now.
bool Reclaimer::copy_next() {
  if (job_->is_stuck || job_->next == job_->victim.keep.size()) return false;
  SegmentFile* segment = core_.segments.find(job_->victim.segment);
  if (segment == nullptr) {  // lost meanwhile
    job_->next = job_->victim.keep.size();
    return false;
  }
  auto file = core_.segments.file(*segment);
  if (!file) {
    core_.open_failed(segment->id, file.error());
    job_->is_stuck = job_->has_failed = true;
    return false;
  }
  const Entry& entry = job_->victim.keep[job_->next];
  if (entry.place.bytes > core_.state->slots.slot_bytes()) {
    ++job_->next;  // of a store with larger records: it is not read here either
    return true;
  }
  const int slot = core_.state->slots.take(SlotPool::Use::kWrite);
  if (slot < 0) return false;
  ++job_->next;
  ++job_->under_way;
  const Copy copy{.entry = entry, .slot = slot, .place = {}, .header = {}};
  core_.io->submit({
      .kind = IoRequest::Kind::kRead,
      .file = file.take(),
      .offset = entry.place.offset,
      .buffer = core_.state->slots.slot(slot).first(static_cast<std::size_t>(entry.place.bytes)),
      .keep = core_.state,
      .done = [this, copy](const IoEnd& end) { was_read(copy, end); },
  });
  return true;
}

void Reclaimer::over(const Copy& copy) {
  --job_->under_way;
  core_.state->slots.give(SlotPool::Use::kWrite, copy.slot);
}

void Reclaimer::was_read(Copy copy, const IoEnd& end) {
  const Place& from = copy.entry.place;
  const auto record =
      core_.state->slots.slot(copy.slot).first(static_cast<std::size_t>(from.bytes));
  if (end.error != 0) {
    job_->is_stuck = job_->has_failed = true;  // a promise is not given up for one failure
    over(copy);
    return;
  }
  const auto header = decode_record_header(record, core_.segments.path(from.segment));
  const bool is_whole = end.bytes == from.bytes && header &&
                        Replay::half(header->key) == Replay::half(copy.entry.facts.key) &&
                        record_bytes(header->ids, header->payload_bytes) == from.bytes &&
                        check_payload(*header, record);
  if (!is_whole) {
    core_.count([](StoreStatus& counts) { ++counts.checksum_failures; });
    core_.erase(copy.entry.facts.key, from.segment, MissReason::kChecksum);
    over(copy);
    return;
  }
  copy.header = *header;
  if (!place(copy)) {
    over(copy);
    return;
  }
  write(std::move(copy));
}

// False: no place for it, or it is not there any more.
bool Reclaimer::place(Copy& copy) {
  const ChainKey& key = copy.header.key;
  Catalog::Placed placed;
  std::optional<Entry> now;
  const bool may_open = writer_.has_room(core_.config.segment_bytes);
  {
    const MutexLock lock(core_.state->mu);
    now = core_.state->catalog.look_up(key);
    if (now && now->place.segment == copy.entry.place.segment) {
      placed = core_.state->catalog.place_copy(key, core_.now_s(), may_open);
    }
  }
  if (!now || now->place.segment != copy.entry.place.segment) return false;
  if (placed.refusal != Catalog::Refusal::kNone) {
    job_->is_stuck = true;
    return false;
  }
  copy.entry = *now;  // class and promise may have been raised
  copy.place = placed.place;
  if (placed.seal) writer_.want_seal(*placed.seal);
  const SegmentId into = placed.place.segment;
  const TtlClass ttl = now->facts.ttl;
  if (placed.opens_segment && writer_.make_segment(into, ttl) != Writer::Made::kYes) {
    const MutexLock lock(core_.state->mu);
    core_.state->catalog.forget_copy(placed.place);
    core_.state->catalog.drop_segment(into, MissReason::kBudget);
    job_->is_stuck = true;
    return false;
  }
  if (core_.segments.find(into) != nullptr) return true;
  // The engine thread placed the segment's first record, which has not come here yet.
  const MutexLock lock(core_.state->mu);
  core_.state->catalog.forget_copy(placed.place);
  job_->is_stuck = true;
  return false;
}

void Reclaimer::write(Copy copy) {
  const auto record =
      core_.state->slots.slot(copy.slot).first(static_cast<std::size_t>(copy.place.bytes));
  RecordHeader& header = copy.header;
  header.ttl = copy.entry.facts.ttl;
  header.guaranteed_until_s = copy.entry.facts.guaranteed_until_s;
  header.epoch = core_.super.epoch;
  header.sequence = core_.next_sequence();
  encode_record_header(header, record);
  SegmentFile* segment = core_.segments.find(copy.place.segment);
  auto file = core_.segments.writable(*segment);
  if (!file) {
    core_.file_failed(file.error());
    was_written(copy, {.kind = IoRequest::Kind::kWrite, .error = 5});
    return;
  }
  IndexEntry put = put_entry(header, copy.place);
  put.last_use_s = copy.entry.last_use_s;
  Writer::begin_put(*segment, put);
  core_.io->submit({
      .kind = IoRequest::Kind::kWrite,
      .file = file.take(),
      .offset = copy.place.offset,
      .buffer = record,
      .keep = core_.state,
      .done = [this, copy](const IoEnd& end) { was_written(copy, end); },
  });
}

void Reclaimer::was_written(const Copy& copy, const IoEnd& end) {
  const bool is_written = end.error == 0 && end.bytes == copy.place.bytes;
  if (SegmentFile* into = core_.segments.find(copy.place.segment); into != nullptr) {
    Writer::end_put(*into, copy.place.offset, is_written);
  }
  {
    const MutexLock lock(core_.state->mu);
    if (is_written) {
      core_.state->catalog.commit_copy(copy.header.key, copy.place);
      ++core_.state->counts.records_copied;
      core_.state->counts.bytes_copied += copy.place.bytes;
    } else {
      core_.state->catalog.forget_copy(copy.place);
    }
  }
  if (!is_written) job_->is_stuck = job_->has_failed = true;
  std::int64_t& last = job_->copied[copy.place.segment];
  last = std::max(last, copy.place.offset);
  over(copy);
}

// What was promised since the segment was chosen is copied too, before anything goes: one lock for
// the look and the end of it, for a promise comes from another thread.
bool Reclaimer::has_late_copies() {
  std::vector<Entry>& tried = job_->victim.keep;
  std::vector<Entry> late;
  {
    const MutexLock lock(core_.state->mu);
    late = core_.state->catalog.drop_victim(job_->victim.segment, tried, core_.now_s());
  }
  tried.insert(tried.end(), late.begin(), late.end());
  return !late.empty();
}

void Reclaimer::finish() {
  const bool is_there = core_.segments.find(job_->victim.segment) != nullptr;
  if (is_there && !job_->is_stuck && has_late_copies()) return;
  const std::unique_ptr<Job> job = std::move(job_);
  if (job->is_stuck) {
    not_before_ns_ = core_.now_ns() + (job->has_failed ? kRetryNs : kRoomRetryNs);
    writer_.want_seal(job->victim.segment);  // an open one was closed by being named
    return;
  }
  if (!is_there) {
    // Lost, or never a file: the catalog has to know all the same.
    const MutexLock lock(core_.state->mu);
    core_.state->catalog.drop_segment(job->victim.segment, MissReason::kEvicted);
    return;
  }
  std::vector<Place> copies;
  for (const auto& [segment, offset] : job->copied) copies.push_back({segment, offset, 0});
  core_.drop_segment(job->victim.segment, MissReason::kEvicted, std::move(copies));
  core_.count([](StoreStatus& counts) { ++counts.segments_reclaimed; });
}

}  // namespace artery::kvstore
