#pragma once
// What the parts of the store thread (Reader, Writer, Checkpointer, Reclaimer, Eraser) work on, and
// the few steps that all of them take: counting, reporting trouble, forgetting a record or a
// segment. The store thread's, after open() has filled it.

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/file_system.h"
#include "kvstore/breaker.h"
#include "kvstore/folder_format.h"
#include "kvstore/io_pump.h"
#include "kvstore/journal.h"
#include "kvstore/record_cipher.h"
#include "kvstore/segment_file.h"
#include "kvstore/spaces.h"
#include "kvstore/store.h"
#include "kvstore/store_state.h"

namespace artery::kvstore {

struct StoreCore {
  StoreCore(const StoreConfig& config_in, FileSystem& files_in, const Clock& clock_in)
      : config(config_in),
        files(files_in),
        clock(clock_in),
        segments(config_in.folder, files_in, config_in.read_only) {}

  const StoreConfig config;
  FileSystem& files;
  const Clock& clock;
  std::shared_ptr<StoreState>
      state;  // kept by requests that hang, too: its slots are their buffers
  std::unique_ptr<Spaces> spaces;
  std::unique_ptr<RecordCipher> cipher;  // null: nothing is encrypted
  std::unique_ptr<IoPump> io;
  SegmentTable segments;
  std::unique_ptr<Journal> journal;       // null: read-only
  std::shared_ptr<BlockFile> super_file;  // null: read-only
  SuperBlock super;                       // as it was written last
  std::int64_t journal_bytes = 0;         // that a journal is made with, at least
  std::int64_t journal_wanted = 0;        // that the next one needs: it found no room

  Breaker breaker;                // the tier
  Breaker write_breaker;          // writes only: a full or read-only file system
  bool is_read_only_now = false;  // the last write said EROFS
  std::string away;               // why the folder is not ours now (folder_guard.h); empty: it is

  // Changes of the index that the journal has not got yet: kErase, kDropSegment, kSeal.
  std::vector<IndexEntry> changes;
  // A segment may be dropped in the journal, and its file go, when what was copied out of it is on
  // the disk and journaled.
  struct Drop {
    SegmentId segment = 0;
    std::vector<Place> copies;  // the last one in each segment
  };
  std::vector<Drop> drops;     // not among the changes yet; in order
  bool wants_round = false;    // journal now, not at the next second
  bool holds_reclaim = false;  // no segment is begun to be reclaimed
  bool wants_reclaim = false;  // a file could not be made: give something up

  // Out of service: nothing is read or written.
  bool is_out() const { return breaker.is_open() || !away.empty(); }
  std::int64_t now_ns() const { return clock.monotonic_ns(); }
  std::int64_t now_s() const { return clock.unix_ms() / 1000; }
  std::uint64_t next_sequence() { return super.epoch << 40U | ++sequence_; }
  std::int64_t folder_bytes() const;
  std::int64_t other_bytes() const;  // of files that are no segments
  // What segment files, dropped ones too, may take under the cap beside the other files and the
  // next journal. The catalog's own limit, so that both always answer the same.
  std::int64_t segments_max() const;
  bool awaits_removal() const;  // a dropped segment's file is still there

  template <typename F>
  void count(F change) {
    const MutexLock lock(state->mu);
    change(state->counts);
  }
  // Counted and shown always, logged once for each cause.
  void trouble(std::string_view cause, const std::string& text);
  // Every request's end: health of the disk.
  void watch(const IoEnd& end);
  void report_late(int requests);
  bool is_prompt(const IoEnd& end) const { return end.took_ns < kLateNs; }
  void write_failed(int error);
  void file_failed(const Error& error);  // a file could not be made or written
  void sync_gates();                     // tells the engine thread which doors are open

  // One damaged or outdated record, with what hangs on it.
  void erase(const ChainKey& key, SegmentId segment, MissReason why);
  // Makes it last that the record which lies there (offset 0: any of that key) is gone.
  void note_erased(const ChainKey& key, const Place& place);
  // All of a segment's records; its file goes once the journal knows, and not before it has what
  // was copied out of it.
  void drop_segment(SegmentId id, MissReason why, std::vector<Place> copies = {});
  // Changes come of those drops whose copies are journaled.
  void settle_drops();
  // Gathered for the journal, or given up, with all before it in its segment. A segment that was
  // dropped answers for its records until its own drop is through.
  bool is_journaled(const Place& put) const;
  std::vector<Place> last_puts() const;  // not journaled yet, of each segment
  // It could not be opened: lost if it is gone, else trouble that may pass.
  void open_failed(SegmentId id, const Error& error);
  // The file is gone, or shorter than its records.
  void lose_segment(SegmentId id, std::string_view how);

  // The next number of a changed super block, written and synced before this returns.
  Result<> write_super(SuperBlock next);

 private:
  std::uint64_t sequence_ = 0;
  std::set<std::string, std::less<>> causes_;
};

}  // namespace artery::kvstore
