#include "kvstore/reader.h"

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>

#include "kvstore/record_format.h"

namespace artery::kvstore {

Reader::Reader(StoreCore& core)
    : core_(core),
      budget_(core.config.read_bytes_per_s, core.state->slots.slot_bytes()),
      speed_(500e6) {
  core.state->read_bytes_per_s.store(speed_.bytes_per_s());
}

void Reader::start(LoadJob job) {
  Load load;
  load.parts.resize(job.wanted.size());
  load.stop = job.wanted.size();
  const LoadId id = job.id;
  load.job = std::move(job);
  const std::int64_t bytes = load.job.bytes;
  give(loads_.insert_or_assign(id, std::move(load)).first->second);  // an empty one ends at once
  publish();
  core_.state->bytes_posted.fetch_sub(bytes);
}

void Reader::cancel(LoadId id) {
  const auto at = loads_.find(id);
  if (at != loads_.end()) finish(at->second);
}

// Slots of what was read and not given come free now, those of reads under way when these end.
void Reader::finish(Load& load) {
  for (std::size_t i = load.given; i < load.sent; ++i) {
    if (load.parts[i].is_read) free_slot(load.parts[i].slot);
  }
  loads_.erase(load.job.id);
}

void Reader::push(const ReadyPiece& piece) {
  const MutexLock lock(core_.state->ready_mu);
  core_.state->ready.push_back(piece);
  has_news_ = true;
}

void Reader::stop(Load& load, std::size_t index, MissReason why) {
  if (index >= load.stop) return;
  load.stop = index;
  load.why = why;
}

void Reader::give(Load& load) {
  const LoadId id = load.job.id;
  while (load.given < load.stop && load.parts[load.given].is_read) {
    const Part& part = load.parts[load.given];
    push({.load = id, .index = load.given, .slot = part.slot, .payload = part.payload});
    ++load.given;
    --load.slots;  // poll() gives it back
  }
  if (load.given < load.stop) return;
  push({.load = id, .index = load.given, .why = load.why});
  finish(load);
}

void Reader::end_all(MissReason why) {
  while (!loads_.empty()) {
    Load& load = loads_.begin()->second;
    stop(load, load.given, why);
    give(load);
  }
}

void Reader::pump() {
  const std::int64_t now = core_.now_ns();
  std::vector<LoadId> late;
  for (const auto& [id, load] : loads_) {
    if (load.job.deadline_ns <= now) late.push_back(id);
  }
  for (const LoadId id : late) {
    core_.count([](StoreStatus& counts) { ++counts.reads_slow; });
    Load& load = loads_.at(id);
    stop(load, load.given, MissReason::kSlow);
    give(load);
  }
  token_wait_ns_ = 0;
  for (auto at = loads_.begin(); at != loads_.end() && reads_ < kReadsMax;) {
    Load& load = (at++)->second;  // give() may end it
    while (reads_ < kReadsMax && send_next(load)) {
    }
    give(load);
  }
}

// False: nothing more of this load can be sent now.
bool Reader::send_next(Load& load) {
  if (load.sent >= load.stop) return false;
  // One load alone may have all slots; with others it leaves them half, also when its reads hang.
  const int share = core_.state->slots.capacity(SlotPool::Use::kRead) / 2;
  if (loads_.size() > 1 && load.slots >= share) return false;
  std::optional<Entry> entry;
  {
    const MutexLock lock(core_.state->mu);
    entry = core_.state->catalog.look_up(load.job.wanted[load.sent].key);
  }
  const Wanted& wanted = load.job.wanted[load.sent];
  SegmentFile* segment = entry ? core_.segments.find(entry->place.segment) : nullptr;
  if (segment == nullptr) {
    stop(load, load.sent, MissReason::kEvicted);
    return false;
  }
  if (entry->facts.pages != wanted.pages || entry->facts.kind != wanted.kind ||
      entry->facts.space != load.job.space ||
      entry->place.bytes > core_.state->slots.slot_bytes()) {
    core_.count([](StoreStatus& counts) { ++counts.version_mismatches; });
    stop(load, load.sent, MissReason::kVersion);
    return false;
  }
  auto file = core_.segments.file(*segment);
  if (!file) {
    const bool is_gone = file.error().code == Code::kNotFound;
    core_.open_failed(segment->id, file.error());
    stop(load, load.sent, is_gone ? MissReason::kEvicted : MissReason::kBudget);
    return false;
  }
  const std::int64_t now = core_.now_ns();
  token_wait_ns_ = budget_.wait_ns(entry->place.bytes, now);
  if (token_wait_ns_ > 0) return false;
  const int slot = core_.state->slots.take(SlotPool::Use::kRead);
  if (slot < 0) return false;
  budget_.take(entry->place.bytes, now);
  return send(load, *entry, file.take(), slot);
}

bool Reader::send(Load& load, const Entry& entry, std::shared_ptr<BlockFile> file, int slot) {
  const Read read{
      .load = load.job.id,
      .index = load.sent,
      .slot = slot,
      .key = load.job.wanted[load.sent].key,
      .entry = entry
  };
  load.parts[load.sent].slot = slot;
  ++load.sent;
  ++load.slots;
  ++reads_;
  speed_.begin(core_.io->watched_ns());
  core_.io->submit({
      .kind = IoRequest::Kind::kRead,
      .file = std::move(file),
      .offset = entry.place.offset,
      .buffer = core_.state->slots.slot(slot).first(static_cast<std::size_t>(entry.place.bytes)),
      .keep = core_.state,
      .done = [this, read](const IoEnd& end) { ended(read, end); },
  });
  return true;
}

void Reader::measure(const IoEnd& end) {
  speed_.end(end.bytes, core_.io->watched_ns());
  speed_.latency(static_cast<double>(end.took_ns) * 1e-9);
  core_.state->read_bytes_per_s.store(speed_.bytes_per_s(), std::memory_order_relaxed);
  core_.state->read_latency_s.store(speed_.latency_s(), std::memory_order_relaxed);
}

void Reader::ended(const Read& read, const IoEnd& end) {
  --reads_;
  measure(end);
  const auto at = loads_.find(read.load);
  if (at == loads_.end() || read.index >= at->second.stop) {  // nobody waits for it any more
    free_slot(read.slot);
    if (at != loads_.end()) --at->second.slots;
    return;
  }
  Load& load = at->second;
  while (reads_ < kReadsMax && send_next(load)) {
  }
  MissReason why = MissReason::kNone;
  std::span<const std::byte> payload;
  if (end.error != 0) {
    why = failed(read, end.error);
  } else if (end.bytes < read.entry.place.bytes) {
    why = came_short(read);
  } else {
    why = verify(read, load.job.wanted[read.index], payload);
  }
  if (why == MissReason::kNone) {
    load.parts[read.index].is_read = true;
    load.parts[read.index].payload = payload;
    core_.count([&](StoreStatus& counts) {
      ++counts.records_read;
      counts.bytes_read += read.entry.place.bytes;
    });
  } else {
    free_slot(read.slot);
    --load.slots;
    stop(load, read.index, why);
  }
  give(load);
}

// A disk may fail once and be well again; a record that fails twice is given up.
MissReason Reader::failed(const Read& read, int error) {
  if (++failures_[read.key] < 2) return MissReason::kBudget;
  failures_.erase(read.key);
  const std::string text = std::error_code(error, std::generic_category()).message();
  return reject(read, MissReason::kChecksum, "cannot be read: " + text);
}

// Either the file was cut under us, or the disk gave less than it has.
MissReason Reader::came_short(const Read& read) {
  const Place& place = read.entry.place;
  SegmentFile* segment = core_.segments.find(place.segment);
  if (segment == nullptr) return MissReason::kEvicted;
  auto file = core_.segments.file(*segment);
  const auto size = file ? (*file)->size() : tl::unexpected<Error>(file.error());
  if (!size || *size >= place.offset + place.bytes) return failed(read, EIO);
  core_.lose_segment(place.segment, "the file is shorter than its records");
  return MissReason::kEvicted;
}

MissReason Reader::reject(const Read& read, MissReason why, const std::string& text) {
  const Place& place = read.entry.place;
  {
    // It may have been written anew elsewhere since this read began.
    const MutexLock lock(core_.state->mu);
    const auto now = core_.state->catalog.look_up(read.key);
    if (!now || now->place.segment != place.segment || now->place.offset != place.offset) {
      return MissReason::kEvicted;
    }
  }
  core_.erase(read.key, place.segment, why);
  core_.trouble(
      fmt::format("record-{}", name(why)),
      fmt::format("{} at byte {}: {}", core_.segments.path(place.segment), place.offset, text)
  );
  return why;
}

MissReason Reader::verify(
    const Read& read, const Wanted& wanted, std::span<const std::byte>& payload
) {
  const auto record =
      core_.state->slots.slot(read.slot).first(static_cast<std::size_t>(read.entry.place.bytes));
  const auto damaged = [&](const std::string& text) {
    core_.count([](StoreStatus& counts) { ++counts.checksum_failures; });
    return reject(read, MissReason::kChecksum, text);
  };
  const auto other = [&](const std::string& text) {
    core_.count([](StoreStatus& counts) { ++counts.version_mismatches; });
    return reject(read, MissReason::kVersion, text);
  };
  const Result<RecordHeader> header = decode_record_header(record, "record");
  if (!header) {
    const std::string& text = header.error().message;
    return header.error().code == Code::kUnsupported ? other(text) : damaged(text);
  }
  if (header->key != wanted.key) return damaged("another record lies there");
  const SpaceSpec spec = core_.spaces->spec(read.entry.facts.space);
  if (header->space != core_.spaces->digest(read.entry.facts.space) ||
      header->kind != wanted.kind || header->pages != wanted.pages ||
      header->payload_bytes != wanted.pages * spec.page_bytes ||
      record_bytes(header->ids, header->payload_bytes) != read.entry.place.bytes) {
    return other("kind, pages or namespace are not what was asked for");
  }
  if (!check_payload(*header, record)) return damaged("CRC-32C of the payload does not fit");
  if (header->encrypted) {
    if (core_.cipher == nullptr) return other("encrypted, and no key is given");
    const Result<> opened = core_.cipher->open(read.entry.facts.space, *header, record);
    if (!opened && opened.error().code == Code::kNotFound)
      return reject(read, MissReason::kTenant, opened.error().message);
    if (!opened) return damaged(opened.error().message);
  } else if (core_.cipher != nullptr) {
    return other("not encrypted, in a store that is");
  }
  if (!holds_ids(*header, record, wanted.ids)) {
    core_.count([](StoreStatus& counts) { ++counts.token_mismatches; });
    return reject(read, MissReason::kChecksum, "its token ids are not those of the prompt");
  }
  payload = record_payload(*header, record);
  return MissReason::kNone;
}

void Reader::publish() {
  std::int64_t bytes = 0;
  for (const auto& [id, load] : loads_) {
    const std::int64_t page = core_.spaces->spec(load.job.space).page_bytes;
    for (std::size_t i = load.given; i < load.stop; ++i) {
      const Wanted& one = load.job.wanted[i];
      bytes += stored_bytes(std::ssize(one.ids), one.pages * page);
    }
  }
  core_.state->bytes_to_read.store(bytes);
}

std::int64_t Reader::next_event_ns() {
  std::int64_t next = -1;
  for (const auto& [id, load] : loads_) {
    if (next < 0 || load.job.deadline_ns < next) next = load.job.deadline_ns;
  }
  if (token_wait_ns_ > 0) {
    const std::int64_t token = core_.now_ns() + token_wait_ns_;
    next = next < 0 ? token : std::min(next, token);
  }
  return next;
}

}  // namespace artery::kvstore
