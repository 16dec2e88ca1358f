#pragma once
// Writes: offered records in order, each placed by the catalog before, into segment files that are
// made when the first record of theirs comes. After each, the record can be found; the journal has
// it a second later. Segments that are full get their footer and are cut.
//
// The store thread's.

#include <cstdint>
#include <deque>
#include <memory>

#include "kvstore/budget.h"
#include "kvstore/store_core.h"

namespace artery::kvstore {

class Writer {
 public:
  explicit Writer(StoreCore& core);

  void add(WriteJob job);
  // Sends writes as far as depth, budget and room allow; seals what is full.
  void pump();
  // Drops what waits: the tier is out of service.
  void drop_all();
  // Writes and seals, waiting or under way.
  bool is_idle() const;
  // Jobs added so far; and how many of them, from the first on, are over.
  std::uint64_t added() const { return added_; }
  std::uint64_t finished() const { return added_ - waiting_.size() - under_way_; }
  // Until the next token, or -1.
  std::int64_t next_event_ns() const;

  // Makes the file of a new segment, if cap and floor allow: also for copies.
  enum class Made : std::uint8_t { kYes, kLater, kNo };
  Made make_segment(SegmentId id, TtlClass ttl);
  // Whether a file of so many bytes can be made, under the cap and above the floor.
  bool has_room(std::int64_t bytes) const;
  // Nothing more is placed in it: footer, cut, sync.
  void want_seal(SegmentId id);
  void resume_seal(SegmentId id) { seals_.push_back(id); }  // found at start-up without a footer
  // An open segment's record, from now on. `offset` rises within a segment.
  static void begin_put(SegmentFile& segment, const IndexEntry& entry);
  static void end_put(SegmentFile& segment, std::int64_t offset, bool is_written);

 private:
  static constexpr std::size_t kWritesMax = 8;

  bool start(WriteJob& job);
  void send(WriteJob job, SegmentFile& segment);
  void ended(const WriteJob& job, const IoEnd& end);
  void drop(const WriteJob& job, std::int64_t StoreStatus::* counter);
  void drop_segment_of(const WriteJob& job);
  Result<RecordHeader> encode(const WriteJob& job, std::span<std::byte> record);
  void pump_seals();
  void seal(SegmentFile& segment);
  void seal_failed(SegmentId id);
  void footer_ended(SegmentId id, std::int64_t bytes, const IoEnd& end);
  void seal_ended(SegmentId id, std::int64_t bytes, const IoEnd& end);
  bool is_under_cap(std::int64_t bytes) const;
  void look_for_room();

  StoreCore& core_;
  TokenBucket budget_;
  SpeedMeter speed_;
  std::deque<WriteJob> waiting_;
  std::deque<SegmentId> seals_;
  std::size_t under_way_ = 0;
  int sealing_ = 0;
  std::uint64_t added_ = 0;
  std::int64_t token_wait_ns_ = 0;
  std::int64_t room_since_ns_ = -1;  // the first in line waits for a file since
  std::int64_t room_tried_ns_ = -1;  // when it was looked for, while nothing is stored
};

}  // namespace artery::kvstore
