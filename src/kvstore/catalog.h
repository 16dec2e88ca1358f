#pragma once
// What is in a store and what has to go: the index of records, the segments they lie in, classes of
// life time, quotas, promises. Pure bookkeeping on given times: no files, no threads, no clock; the
// owner (DiskStore, `artery simulate cache`) does the I/O that it asks for. The owner's lock.
//
// Rules.
//   - A record lives until its class's time after its last use has passed, or longer where it is
//     promised. One that has expired is not found any more; whole segments go when all in them has.
//   - One segment is open per class. What does not fit opens the next one.
//   - Copies may use every byte under the cap; new records leave a reserve to them: always a whole
//     segment before one is opened, and while there are promises, which no reclaim may give up, 7/4
//     of a segment, not yet opened or free in open ones. A copy takes no more of that than what its
//     victim gives back, so the reserve comes back, and a victim whose records fit is always found.
//   - Over the cap, of the oldest segments the one goes that frees most: records in it that an LRU
//     of this size would still hold, and all promised ones, are to be copied forward; what is
//     dropped unlinks its descendants.
//   - A quota is an LRU's bound: a tenant over it loses the least recently used of its own leaves
//     that are not promised. kQuota only where all that it has is promised, being written, or what
//     the new record hangs on: without that it could not be found, nor where that is gone already.
//   - find() assumes nothing of what a reclaim keeps: it walks link by link.
//   - Clocks jump. A time before a record's last use counts as equal to it; a last use in the
//     future becomes now when the record is touched or restored.
//
// Memory holds 16 bytes of a key. Keys that come out of here are those, then zeros, and go back in
// as such; the whole key and the parent stand in the record's own header, where copying forward
// reads them. A parent is zeros where it is not known. Times are kept as 32-bit unix seconds.
// A TB of 229,376-byte records (4.36 M) takes 298 MB, and 391 links are found there in 38 us on
// average (catalog_test: CatalogSizes). Records of tenants with a quota take 4 bytes more, and 12
// where none hangs on them (leaf_order.h).

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/chain_key.h"
#include "kvstore/record_store.h"
#include "kvstore/status.h"

namespace artery::kvstore {

constexpr std::int64_t kBlock = 4096;  // alignment of everything on disk

using SegmentId = std::uint32_t;

struct Place {
  SegmentId segment = 0;
  std::int64_t offset = 0;  // bytes, multiple of kBlock
  std::int64_t bytes = 0;   // multiple of kBlock
};

// What the catalog keeps of a record.
struct Entry {
  RecordFacts facts;
  Place place;
  std::int64_t written_s = 0;   // unix seconds; out of the catalog: that its segment was begun
  std::int64_t last_use_s = 0;  // unix seconds
  int uses = 0;                 // since written or copied
};

struct CatalogLimits {
  std::int64_t bytes_max = 0;      // of all segments together, open ones at their full size
  std::int64_t segment_bytes = 0;  // multiple of kBlock; see segment_bytes_for()
  double guaranteed_share = 0.5;   // of bytes_max, and of a quota, at most, for promised records
};

// 256 MiB, smaller under a small cap so that several classes and a reclaim fit; never below four
// of the largest records.
std::int64_t segment_bytes_for(std::int64_t bytes_max, std::int64_t record_bytes_max);

class Catalog {
 public:
  explicit Catalog(const CatalogLimits& limits);
  ~Catalog();
  Catalog(const Catalog&) = delete;
  Catalog& operator=(const Catalog&) = delete;

  // Spaces and tenants. The owner gives the ids (small, dense). quota_bytes 0: none.
  void add_space(SpaceId space, const std::string& tenant, int record_pages);
  // Cheap; what is over it goes by enforce_quotas().
  void set_quota(const std::string& tenant, std::int64_t quota_bytes);
  // A bounded step of giving up what tenants have over their quotas, as after set_quota(), a
  // recovery, or the end of a promise. True: call again.
  bool enforce_quotas(std::int64_t now_s);
  // What went for quotas since the last call, so that the owner can make it last: half keys.
  struct Evicted {
    ChainKey key;
    Place place;
  };
  std::vector<Evicted> take_evicted();
  bool has_evicted() const;

  // Longest chain of whole records, tails included, alive at `now_s`. Under 50 us for the 391
  // records of 100,000 tokens.
  Found find(SpaceId space, std::span<const ChainKey> keys, std::int64_t now_s) const;
  std::optional<Entry> look_up(const ChainKey& key) const;  // also an expired one
  bool contains(const ChainKey& key, std::int64_t now_s) const;
  // Marks the records of the first `pages` pages as used, the last one first, so that what ends a
  // chain is always older than what it hangs on. Raises their class and their promise, never lowers
  // them; `guaranteed_until_s` 0: no promise.
  void touch(
      SpaceId space,
      std::span<const ChainKey> keys,
      std::int64_t pages,
      TtlClass ttl,
      std::int64_t guaranteed_until_s,
      std::int64_t now_s
  );
  // A record that is there, or being written, was offered again with a promise: a use; raises its
  // promise and that of what it hangs on, never lowers it. False: it is not there.
  bool promise(const ChainKey& key, std::int64_t guaranteed_until_s, std::int64_t now_s);
  // Unix seconds, or 0: refused, over guaranteed_share (of the store, or of the tenant's quota), or
  // fewer than three segments were left for what is not promised. Counts against the tenant until
  // then.
  std::int64_t guarantee(SpaceId space, std::int64_t bytes, TtlClass ttl, std::int64_t now_s);

  // --- writing. place() -> the owner writes -> commit(), or forget() when that failed.
  enum class Refusal : std::uint8_t { kNone, kKnown, kQuota, kRoom };
  struct Placed {
    Refusal refusal = Refusal::kNone;  // kRoom: reclaim() first, then ask again
    Place place;
    bool opens_segment = false;     // the owner creates the file
    std::optional<SegmentId> seal;  // of the same class, now full: the owner writes its footer
  };
  // `bytes`: of the whole record on disk, multiple of kBlock. The key counts as on its way. Places
  // leave room for the segment's header, its first block, and its footer (folder_format.h).
  Placed place(const RecordFacts& facts, std::int64_t bytes, std::int64_t now_s);
  // From here on it can be found; but not where it was dropped meanwhile. Each place() is ended by
  // one of these two: a segment with writes under way is neither dead nor a victim.
  void commit(const ChainKey& key, std::int64_t now_s);
  void forget(const ChainKey& key);  // it was placed and not written; its bytes are dead

  // --- giving back.
  // Segments in which nothing is alive or promised any more, sealed or not; call drop_segment().
  // Each call also looks for expired records in a part of the index, and drops them. Once a second.
  std::vector<SegmentId> dead_segments(std::int64_t now_s);
  // Drops one of those if it is dead still: nothing was placed in it or touched since.
  bool drop_dead(SegmentId segment, std::int64_t now_s);
  struct Victim {
    SegmentId segment = 0;
    std::vector<Entry> keep;  // to be copied forward, in order of offset
  };
  // Next segment to give up under pressure; nullopt: nothing can go (all promised). Kept records
  // are copied by place_copy() and commit_copy(), then drop_victim(). One at a time: until then
  // it is named again. An open one is closed by this, without a footer. `may_open`: a file can be
  // made for copies; else only victims whose copies fit in segments that are open.
  std::optional<Victim> victim(std::int64_t now_s, bool may_open = true);
  // Drops it, unless records in it were promised since it was named: these, less `tried`, are to be
  // copied first. Empty: it is gone.
  std::vector<Entry> drop_victim(
      SegmentId segment, std::span<const Entry> tried, std::int64_t now_s
  );
  // Room for a copy of `key` in the open segment of its class, in a new one (`may_open`), or in any
  // open one. Copies use the reserve that place() does not touch.
  Placed place_copy(const ChainKey& key, std::int64_t now_s, bool may_open = true);
  // Either ends it: found at its new place from here on, or the copy failed. False: the record was
  // dropped meanwhile.
  bool commit_copy(const ChainKey& key, const Place& place);
  void forget_copy(const Place& place);
  // The segment's file is gone or will be: its records are forgotten for `why`, with what hangs
  // on them.
  void drop_segment(SegmentId segment, MissReason why);
  // One damaged or outdated record and its descendants.
  void erase(const ChainKey& key, MissReason why);
  // All records of a tenant; the places where their bytes lie.
  std::vector<Place> drop_tenant(const std::string& tenant);

  // What segments may take from now on, where the folder's other files have grown or shrunk.
  void set_bytes_max(std::int64_t bytes);

  // --- recovery. Segments first, then records in any order; the clock may have jumped. Numbers of
  // segments to come are not below `next`.
  void set_next_segment(SegmentId next);
  void restore_segment(SegmentId segment, TtlClass ttl, std::int64_t bytes, bool sealed);
  // Of two with one key the one in the later segment stays.
  void restore(const Entry& entry, std::int64_t now_s);
  // After the last of them: what a promised record hangs on is promised too.
  void end_restore(std::int64_t now_s);
  void seal(SegmentId segment, std::int64_t bytes);  // its file was cut to `bytes`

  // Records of a segment in order of offset (for its footer).
  std::vector<Entry> records_of(SegmentId segment) const;
  std::vector<SegmentId> segments() const;
  bool is_open(SegmentId segment) const;
  // Bytes that the owner should give back now, before a place() has to be refused; 0 or less: none.
  std::int64_t pressure() const;
  // Fills what the catalog knows of a status.
  void fill(StoreStatus& status, std::int64_t now_s) const;
  void check_integrity() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace artery::kvstore
