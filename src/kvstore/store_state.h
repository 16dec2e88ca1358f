#pragma once
// What the engine thread, the store thread and askers of status() share. Each group has its own
// lock, and no two are held at once; sections are short (a look-up, a few counters).

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <span>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "kvstore/catalog.h"
#include "kvstore/record_store.h"
#include "kvstore/slot_pool.h"

namespace artery::kvstore {

// A record that waits to be written: payload and ids are in the slot.
struct WriteJob {
  RecordFacts facts;
  Catalog::Placed placed;
  int slot = -1;
  int ids = 0;
  std::int64_t payload_bytes = 0;
};

struct LoadJob {
  LoadId id = 0;
  SpaceId space = 0;
  std::vector<Wanted> wanted;
  std::int64_t deadline_ns = 0;
  std::int64_t bytes = 0;  // of all on the disk
};

// A piece that waits for poll(). `slot` -1: an end.
struct ReadyPiece {
  LoadId load = 0;
  std::size_t index = 0;
  int slot = -1;
  std::span<const std::byte> payload{};
  MissReason why = MissReason::kNone;
};

class StoreThread;

struct StoreState {
  StoreState(const CatalogLimits& limits, std::int64_t buffer_bytes, std::int64_t slot_bytes)
      : catalog(limits), slots(buffer_bytes, slot_bytes) {}

  mutable Mutex mu;
  Catalog catalog GUARDED_BY(mu);
  StoreStatus counts GUARDED_BY(mu);  // what the catalog does not count
  // Ends of the records touched since the last journal batch.
  std::unordered_set<ChainKey, ChainKeyHash> touched GUARDED_BY(mu);

  mutable Mutex inbox_mu;
  std::deque<std::function<void(StoreThread&)>> inbox GUARDED_BY(inbox_mu);

  mutable Mutex ready_mu;
  std::deque<ReadyPiece> ready GUARDED_BY(ready_mu);

  // Held while it is called, so that clearing it waits; nothing else is locked then.
  Mutex notify_mu;
  std::function<void()> notify GUARDED_BY(notify_mu);

  // As notify.
  Mutex erased_mu;
  std::function<void(const std::string&)> erased GUARDED_BY(erased_mu);
  void tell_erased(const std::string& tenant) {
    const MutexLock lock(erased_mu);
    if (erased) erased(tenant);
  }

  SlotPool slots;  // locks itself

  // Written by the store thread, read by all.
  std::atomic<bool> is_out = false;              // the breaker is open: no reads, no writes
  std::atomic<bool> writes_out = false;          // read-only, full, or a write breaker: no writes
  std::atomic<bool> no_room = false;             // no segment may be made now
  std::atomic<bool> wants_room = false;          // place() found none
  std::atomic<std::int64_t> bytes_to_write = 0;  // offered, not written
  std::atomic<std::int64_t> bytes_to_read = 0;   // asked for, not read
  std::atomic<std::int64_t> bytes_posted = 0;    // asked for, not yet among those
  std::atomic<std::int64_t> other_bytes = 0;     // of files that are no segments
  std::atomic<double> write_bytes_per_s = 0, read_bytes_per_s = 0, read_latency_s = 0;
};

}  // namespace artery::kvstore
