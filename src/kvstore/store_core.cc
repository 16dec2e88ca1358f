#include "kvstore/store_core.h"

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>

#include "base/log.h"

namespace artery::kvstore {
namespace {

constexpr std::int64_t kSmallFiles = 8 * kBlock;  // super, secret, spaces, lock, keys

bool is_read(IoRequest::Kind kind) { return kind == IoRequest::Kind::kRead; }

}  // namespace

std::int64_t StoreCore::segments_max() const {
  const std::int64_t next = std::max(
      {journal_bytes, journal_wanted, journal != nullptr ? journal->bytes() : journal_bytes}
  );
  return config.bytes_max - other_bytes() - next - kSmallFiles;  // as much again for their growth
}

std::int64_t StoreCore::other_bytes() const {
  return kSmallFiles + (journal != nullptr ? journal->bytes() : 0);
}

std::int64_t StoreCore::folder_bytes() const { return segments.bytes() + other_bytes(); }

void StoreCore::trouble(std::string_view cause, const std::string& text) {
  // That the folder is gone explains all that fails meanwhile.
  count([&](StoreStatus& counts) { counts.trouble = away.empty() ? text : away; });
  if (causes_.insert(std::string(cause)).second) log_warn("kvstore cause={} {}", cause, text);
}

void StoreCore::watch(const IoEnd& end) {
  const auto kind = is_read(end.kind) ? Breaker::Kind::kRead : Breaker::Kind::kWrite;
  if (end.error == 0 && is_prompt(end)) {
    breaker.success(kind);
    if (end.kind == IoRequest::Kind::kWrite) {
      count([&](StoreStatus& counts) { counts.bytes_to_disk += end.bytes; });
      write_breaker.success(kind);
      is_read_only_now = false;
    }
    return;
  }
  if (end.error == 0) {
    if (!end.is_late) report_late(1);
    return;
  }
  count([](StoreStatus& counts) { ++counts.io_errors; });
  const std::string text = std::error_code(end.error, std::generic_category()).message();
  const std::string_view verb = is_read(end.kind) ? "read" : "write";
  trouble(
      fmt::format("{}-{}", verb, end.error),
      fmt::format("{}: cannot {}: {}", config.folder, verb, text)
  );
  const bool writes_only =
      !is_read(end.kind) && (end.error == ENOSPC || end.error == EDQUOT || end.error == EROFS);
  if (writes_only) {
    wants_reclaim |= end.error != EROFS;
    write_failed(end.error);
  } else if (breaker.failure(kind, now_ns())) {
    count([](StoreStatus& counts) { ++counts.breaker_opened; });
  }
}

void StoreCore::write_failed(int error) {
  is_read_only_now = error == EROFS;
  // Read-only, nothing is written that could tell that it is over: only a probe can.
  const bool has_opened = is_read_only_now ? write_breaker.trip(now_ns())
                                           : write_breaker.failure(Breaker::Kind::kWrite, now_ns());
  if (has_opened) {
    count([](StoreStatus& counts) { ++counts.breaker_opened; });
  }
}

void StoreCore::file_failed(const Error& error) {
  count([](StoreStatus& counts) { ++counts.io_errors; });
  trouble(fmt::format("file-{}", static_cast<int>(error.code)), error.message);
  const auto space = files.space(config.folder);
  const bool is_read_only = space && space->is_read_only;
  if (error.code == Code::kOutOfMemory) {
    write_failed(ENOSPC);
    wants_reclaim = true;
  } else if (error.code == Code::kUnavailable || is_read_only) {
    write_failed(EROFS);
  } else if (breaker.failure(Breaker::Kind::kWrite, now_ns())) {
    count([](StoreStatus& counts) { ++counts.breaker_opened; });
  }
}

void StoreCore::report_late(int requests) {
  for (int i = 0; i < requests; ++i) {
    if (!breaker.failure(Breaker::Kind::kRead, now_ns())) continue;
    count([](StoreStatus& counts) { ++counts.breaker_opened; });
  }
  if (requests > 0) {
    trouble(
        "late",
        fmt::format("{}: the disk takes longer than {} s", config.folder, kLateNs / 1'000'000'000)
    );
  }
}

void StoreCore::sync_gates() {
  state->is_out.store(is_out(), std::memory_order_relaxed);
  state->writes_out.store(
      config.read_only || write_breaker.is_open() || is_read_only_now, std::memory_order_relaxed
  );
  const Health health = is_out()                               ? Health::kSick
                        : config.read_only || is_read_only_now ? Health::kReadOnly
                        : write_breaker.is_open()              ? Health::kSick
                                                               : Health::kOk;
  count([&](StoreStatus& counts) { counts.health = health; });
}

void StoreCore::erase(const ChainKey& key, SegmentId segment, MissReason why) {
  Place place{.segment = segment};
  {
    const MutexLock lock(state->mu);
    const auto entry = state->catalog.look_up(key);
    if (entry && entry->place.segment == segment) place = entry->place;
    state->catalog.erase(key, why);
  }
  if (!config.read_only) note_erased(key, place);
}

void StoreCore::note_erased(const ChainKey& key, const Place& place) {
  const Place at{.segment = place.segment, .offset = place.offset};
  changes.push_back({.kind = EntryKind::kErase, .place = at, .key = key});
  SegmentFile* file = segments.find(place.segment);
  if (file != nullptr && file->has_footer()) file->erased.emplace_back(key, place.offset);
}

void StoreCore::drop_segment(SegmentId id, MissReason why, std::vector<Place> copies) {
  {
    const MutexLock lock(state->mu);
    state->catalog.drop_segment(id, why);
  }
  SegmentFile* segment = segments.find(id);
  if (segment == nullptr) return;
  segment->is_dropped = true;
  if (config.read_only) return;
  segment->awaits_copies = true;
  drops.push_back({id, std::move(copies)});
  settle_drops();
  wants_round = true;
}

bool StoreCore::is_journaled(const Place& put) const {
  const auto at = segments.all().find(put.segment);
  if (at == segments.all().end()) return true;
  if (at->second.is_dropped) return !at->second.awaits_copies;
  return std::ranges::none_of(at->second.puts, [&](const SegmentFile::Put& one) {
    return one.entry.place.offset <= put.offset;
  });
}

std::vector<Place> StoreCore::last_puts() const {
  std::vector<Place> out;
  for (const auto& [id, segment] : segments.all())
    if (!segment.puts.empty()) out.push_back(segment.puts.back().entry.place);
  return out;
}

void StoreCore::settle_drops() {
  std::erase_if(drops, [&](const Drop& drop) {
    const bool is_ready =
        std::ranges::all_of(drop.copies, [&](const Place& copy) { return is_journaled(copy); });
    if (!is_ready) return false;
    if (const auto at = segments.all().find(drop.segment); at != segments.all().end())
      at->second.awaits_copies = false;
    changes.push_back({.kind = EntryKind::kDropSegment, .place = {.segment = drop.segment}});
    return true;
  });
}

void StoreCore::open_failed(SegmentId id, const Error& error) {
  if (error.code == Code::kNotFound) {
    lose_segment(id, "it is gone");
  } else {
    file_failed(error);
  }
}

void StoreCore::lose_segment(SegmentId id, std::string_view how) {
  if (segments.find(id) == nullptr) return;
  if (!config.read_only) {  // else its writer has given it back
    count([](StoreStatus& counts) { ++counts.segments_lost; });
    trouble("lost-segment", fmt::format("{}: {}", segments.path(id), how));
  }
  drop_segment(id, MissReason::kEvicted);
}

bool StoreCore::awaits_removal() const {
  return std::ranges::any_of(segments.all(), [](const auto& item) {
    return item.second.is_dropped;
  });
}

Result<> StoreCore::write_super(SuperBlock next) {
  next.generation = super.generation + 1;
  next.changed_s = now_s();
  const AlignedBytes block(kBlock);
  encode_super(next, block.span());
  TRY(write_all(*super_file, super_offset(next.generation), block.span(), config.folder + "/super")
  );
  TRY(super_file->sync());
  super = next;
  count([](StoreStatus& counts) { counts.bytes_to_disk += kBlock; });
  return {};
}

}  // namespace artery::kvstore
