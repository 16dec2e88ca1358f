#pragma once
// Gives space back: whole segments when all in them has expired, and under pressure the one that
// the catalog names, after what is worth it was copied forward. One segment at a time, a few copies
// side by side, each verified. A segment whose promised records find no place stays. Also gives up,
// a step at a time, what tenants have over their quotas.
//
// The store thread's.

#include <cstdint>
#include <map>
#include <memory>

#include "kvstore/store_core.h"
#include "kvstore/writer.h"

namespace artery::kvstore {

class Reclaimer {
 public:
  Reclaimer(StoreCore& core, Writer& writer) : core_(core), writer_(writer) {}

  void pump();
  // Expire now, not at the next second.
  void expire();
  // Begins to give up what tenants have over their quotas; pump() goes on with it step by step.
  void enforce_quotas();
  bool is_enforcing() const { return enforces_quotas_; }
  bool is_idle() const { return job_ == nullptr; }
  // Something has to go and can; false also after a try that failed, for a while.
  bool wants_more();

 private:
  static constexpr int kCopiesMax = 4;
  struct Job {
    Catalog::Victim victim;
    std::size_t next = 0;
    int under_way = 0;
    std::map<SegmentId, std::int64_t> copied;  // the last offset in each
    bool is_stuck = false;                     // a copy found no place
    bool has_failed = false;                   // for the disk's sake
  };
  struct Copy {
    Entry entry;
    int slot = -1;
    Place place;
    RecordHeader header;
  };

  void begin();
  bool copy_next();
  void was_read(Copy copy, const IoEnd& end);
  bool place(Copy& copy);
  void write(Copy copy);
  void was_written(const Copy& copy, const IoEnd& end);
  void over(const Copy& copy);  // its slot is free
  void pump_quotas();
  bool has_late_copies();
  void finish();

  StoreCore& core_;
  Writer& writer_;
  std::unique_ptr<Job> job_;
  bool enforces_quotas_ = false;
  std::int64_t expired_ns_ = -1;     // when it was last looked for
  std::int64_t not_before_ns_ = -1;  // after a try that failed
  std::int64_t pause_ns_ = 0;        // the last one, after none could go
};

}  // namespace artery::kvstore
