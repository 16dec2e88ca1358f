#pragma once
// What makes writes last: each second, or when asked, a round of syncs of the open segments, one
// batch of the journal with what they now hold (and with what was used, erased, dropped, sealed),
// and a sync of the journal. Files of dropped segments go after that. Begins the journal anew when
// it has grown. Nothing else waits for a round.
//
// The store thread's.

#include <cstdint>
#include <vector>

#include "kvstore/store_core.h"

namespace artery::kvstore {

class Checkpointer {
 public:
  explicit Checkpointer(StoreCore& core) : core_(core) {}

  // Begins a round when it is time and there is something to say.
  void pump();
  bool is_idle() const { return phase_ == Phase::kIdle; }
  // A round that begins from now on has a number from here on.
  std::uint64_t next_round() const { return round_ + 1; }
  // The last one that ended well.
  std::uint64_t finished_round() const { return finished_; }
  std::uint64_t failed_round() const { return failed_round_; }
  // Nothing is left for a next round.
  bool is_clean();
  // A new journal with the live state; waits for it. Where it has no room under the cap yet and
  // does not have to be, nothing happens.
  Result<> rotate(bool must = true);

 private:
  enum class Phase : std::uint8_t { kIdle, kSegments, kJournal };
  void begin();
  void segment_synced(SegmentId id, std::size_t puts, const IoEnd& end);
  void gather();
  void gather_puts(SegmentFile& segment);
  void gather_uses();
  void write();
  void written(const Journal::Chunk& chunk, std::size_t count, const IoEnd& end);
  void sync_journal();
  void end(bool is_well);
  void remove_dropped();
  std::vector<IndexEntry> live_state();

  StoreCore& core_;
  Phase phase_ = Phase::kIdle;
  std::uint64_t round_ = 0, finished_ = 0, failed_round_ = 0;
  std::int64_t last_ns_ = 0;
  int syncing_ = 0;
  bool failed_ = false;
  std::vector<IndexEntry> entries_;  // gathered, not in the journal yet
  std::vector<SegmentId> removals_;  // whose drop is among them, or in the journal
  std::size_t state_entries_ = 0;    // that the journal began with
  bool journal_dirty_ = false;
};

}  // namespace artery::kvstore
