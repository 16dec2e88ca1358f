#pragma once
// The catalog's state, shared by catalog*.cc: segments, spaces, tenants, counters, and the steps
// that every public method is made of. The owner's lock.

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "kvstore/catalog.h"
#include "kvstore/index.h"
#include "kvstore/leaf_order.h"
#include "kvstore/tenant_ledger.h"

namespace artery::kvstore {

struct Segment {
  SegmentId id = 0;
  TtlClass ttl = TtlClass::kHour;
  bool exists = false;
  std::int64_t bytes = 0;       // that count against the cap
  std::int64_t fill = 0;        // where the next record begins
  std::int64_t placed = 0;      // records placed since it was opened, for the footer's size
  std::int64_t live_bytes = 0;  // of records that hang in the index, those being written too
  std::int64_t live = 0;        // such records
  std::int64_t pending = 0;     // writes and copies under way
  std::int64_t opened_s = 0;
  std::int64_t alive_until = 0;  // no record in it lives longer; may be later than the last one
  std::vector<Slot> slots;       // its records, some of them stale or twice
};

struct Space {
  int tenant = 0;
  int record_pages = 0;  // 0: unknown space
};

struct ClassCount {
  std::int64_t records = 0, bytes = 0, pages = 0;  // indexed, written
  std::int64_t hits = 0, expired = 0, evicted = 0;
};

struct Catalog::Impl {
  explicit Impl(const CatalogLimits& limits_in) : limits(limits_in) {}

  // catalog.cc
  bool is_alive(const Node& node, std::int64_t now_s) const;
  bool is_found(Slot slot, std::uint32_t space, int pages, std::int64_t now_s) const;
  // Of the tails after `begin` whole-record pages, those that lead furthest, in order; at most
  // `most` pages. A tail may hang on another one: what goes on from it writes the pages after it.
  std::vector<Slot> tails(
      std::uint32_t space,
      std::span<const ChainKey> keys,
      std::int64_t begin,
      std::int64_t most,
      std::int64_t now_s
  ) const;
  // Why what follows `begin` pages, whose last whole record is `last`, was not found.
  MissReason why_missing(
      std::span<const ChainKey> keys, int pages, std::int64_t begin, Slot last, std::int64_t now_s
  ) const;
  int record_pages(SpaceId space) const {  // 0: unknown space
    return space < 0 || static_cast<std::size_t>(space) >= spaces.size()
               ? 0
               : spaces[static_cast<std::size_t>(space)].record_pages;
  }
  int tenant_id(const std::string& name);
  void use(Slot slot, TtlClass ttl, std::int64_t guaranteed_until_s, std::int64_t now_s);
  void promise(Slot slot, std::int64_t until_s);
  void raise_ttl(Node& node, TtlClass ttl);
  void lengthen(const Node& node);  // its segment lives as long as it does
  Slot node_for(const ChainKey& key, const ChainKey& parent);
  void put(Slot slot, const RecordFacts& facts, const Place& place, NodeState state);
  Entry entry_of(Slot slot) const;
  Tenant& tenant_of(const Node& node);

  // catalog_segments.cc
  enum class For { kRecord, kCopy, kCopyInOpen };
  Placed allocate(TtlClass ttl, std::int64_t bytes, For what, std::int64_t now_s);
  // In open segments, but for `but`, surely usable for records of up to `record` bytes.
  std::int64_t open_room(std::int64_t record, std::uint16_t but = kNoSegment) const;
  std::int64_t unopened() const { return limits.bytes_max - bytes_used; }
  std::int64_t copy_reserve() const;  // what unopened() and open_room() keep for copies, together
  std::optional<Place> append(Segment& segment, std::int64_t bytes);
  std::uint16_t add_segment(SegmentId id, TtlClass ttl, std::int64_t bytes);
  Segment* segment(SegmentId id);
  const Segment* segment(SegmentId id) const;
  void close(Segment& segment);
  std::vector<Slot> records(const Segment& segment) const;  // placed and live, by offset
  void count(const Node& node, int sign);                   // in its segment and tenant
  void count_live(const Node& node, int sign);              // in its class, once it is written

  // catalog_reclaim.cc
  void drop(Slot slot, MissReason why);          // one record; its children hang on a phantom
  void drop_subtree(Slot slot, MissReason why);  // leaves first
  void finish_doomed(Slot slot);                 // its write has ended
  void take_out(Slot slot);
  bool is_dead(const Segment& segment, std::int64_t now_s) const;
  std::uint32_t cut_time();  // what was used later is worth its place
  void sweep(std::int64_t now_s);
  enum class KeepRule { kUsedAfter, kPinned, kPromised };
  bool is_worth(const Node& node, KeepRule rule, std::uint32_t cut, std::int64_t now_s) const;
  // Its records that are to be copied, by offset.
  std::vector<Slot> worth_keeping(
      const Segment& segment, KeepRule rule, std::uint32_t cut, std::int64_t now_s
  ) const;
  std::int64_t bytes_of(const std::vector<Slot>& slots) const;
  bool fits_copies(const std::vector<Slot>& keep, std::uint16_t of, bool may_open) const;
  struct Terms {  // of a reclaim
    std::uint32_t cut = 0;
    std::int64_t now_s = 0;
    bool may_open = true;
  };
  struct Choice {
    std::uint16_t number = 0;
    std::vector<Slot> keep;
  };
  std::vector<std::uint16_t> candidates(bool is_open_too) const;
  std::optional<Choice> choose(
      const std::vector<std::uint16_t>& from, const Terms& terms, KeepRule rule
  ) const;
  void settle_promises(std::int64_t now_s);

  // catalog_quota.cc
  bool is_promised(const Node& node, std::int64_t now_s) const {
    return node.guaranteed != 0 && std::int64_t{node.guaranteed} >= now_s;
  }
  int tenant_of_space(SpaceId space) const {
    return spaces[static_cast<std::size_t>(space)].tenant;
  }
  // Puts the node where it belongs in its tenant's order of leaves, or takes it out of there. To be
  // called whenever its state, children, last use or promise has changed.
  void order(Slot slot);
  void leave_order(Slot slot);  // before it changes its tenant or goes
  bool order_rest();            // a step of ordering what a new quota found; false: done
  bool evict_leaf(int tenant, Slot spare, std::int64_t now_s);  // any but `spare`
  bool is_gone(const ChainKey& key) const;
  bool make_room_in_quota(const RecordFacts& facts, std::int64_t bytes, std::int64_t now_s);

  std::uint64_t random();  // of samples

  CatalogLimits limits;
  Index index;
  Ghosts ghosts;
  std::vector<Segment> table;  // by the nodes' 16-bit number
  std::vector<std::uint16_t> unused;
  std::map<SegmentId, std::uint16_t> numbers;  // oldest first
  std::array<std::uint16_t, kTtlClasses> open{
      kNoSegment, kNoSegment, kNoSegment, kNoSegment, kNoSegment
  };
  SegmentId next_segment = 1;
  std::int64_t bytes_used = 0;
  std::int64_t record_max = 0;  // bytes of the largest one so far
  std::vector<Space> spaces;
  std::vector<Tenant> tenants;
  std::unordered_map<std::string, int> tenant_ids;
  LeafOrder leaves;
  Slot unordered = 0;            // nodes below may lack in the order of a tenant with a new quota
  std::vector<Evicted> evicted;  // for a quota, since take_evicted()
  std::array<ClassCount, kTtlClasses> classes{};
  std::int64_t promised = 0;
  Slot sweep_at = 0;
  std::uint64_t noise = 0x853C49E6748FEA9BULL;
};

inline std::uint32_t seconds32(std::int64_t s) {
  return static_cast<std::uint32_t>(s < 0 ? 0 : s > 0xFFFFFFFFLL ? 0xFFFFFFFFLL : s);
}

}  // namespace artery::kvstore
