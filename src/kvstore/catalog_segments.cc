// Segments of a catalog: which are there, where the next record goes, and their recovery.

#include <algorithm>

#include "base/check.h"
#include "kvstore/catalog_impl.h"
#include "kvstore/folder_format.h"

namespace artery::kvstore {

namespace {

constexpr std::int64_t kSegmentMax = std::int64_t{256} << 20;
constexpr std::int64_t kSegmentsWanted = 128;  // under a small cap: what is open costs its share
constexpr std::int64_t kRecordsAtLeast = 4;
constexpr std::size_t kSegmentsMax = kNoSegment;
constexpr std::int64_t kReserveQuarters = 7;  // of a segment, for copies of what is promised
constexpr std::int64_t kBlocksMax = 0xFFFF;   // of a record

}  // namespace

std::int64_t segment_bytes_for(std::int64_t bytes_max, std::int64_t record_bytes_max) {
  const std::int64_t least =
      kRecordsAtLeast * ((record_bytes_max + kBlock - 1) / kBlock * kBlock) + 4 * kBlock;
  const std::int64_t share = std::min(bytes_max / kSegmentsWanted, kSegmentMax) / kBlock * kBlock;
  return std::max(share, least);
}

Segment* Catalog::Impl::segment(SegmentId id) {
  const auto found = numbers.find(id);
  return found == numbers.end() ? nullptr : &table[found->second];
}

const Segment* Catalog::Impl::segment(SegmentId id) const {
  const auto found = numbers.find(id);
  return found == numbers.end() ? nullptr : &table[found->second];
}

// kNoSegment: too many.
std::uint16_t Catalog::Impl::add_segment(SegmentId id, TtlClass ttl, std::int64_t bytes) {
  if (unused.empty()) {
    if (table.size() >= kSegmentsMax) return kNoSegment;
    unused.push_back(static_cast<std::uint16_t>(table.size()));
    table.emplace_back();
  }
  const std::uint16_t number = unused.back();
  unused.pop_back();
  Segment& segment = table[number];
  segment = Segment{};
  segment.id = id;
  segment.ttl = ttl;
  segment.exists = true;
  segment.bytes = bytes;
  segment.fill = kBlock;  // behind its header
  numbers[id] = number;
  bytes_used += bytes;
  next_segment = std::max(next_segment, id + 1);
  return number;
}

void Catalog::Impl::close(Segment& segment) {
  for (std::uint16_t& number : open)
    if (number != kNoSegment && table[number].id == segment.id) number = kNoSegment;
  segment.slots.shrink_to_fit();
}

std::optional<Place> Catalog::Impl::append(Segment& segment, std::int64_t bytes) {
  if (segment.fill + bytes + footer_bytes(segment.placed + 1) > segment.bytes) return std::nullopt;
  const Place place{segment.id, segment.fill, bytes};
  segment.fill += bytes;
  ++segment.placed;
  return place;
}

std::int64_t Catalog::Impl::open_room(std::int64_t record, std::uint16_t but) const {
  std::int64_t room = 0;
  for (const std::uint16_t number : open) {
    if (number == kNoSegment || number == but) continue;
    const Segment& segment = table[number];
    // Less than a record and a block of its footer are left unused at its end.
    const std::int64_t end = segment.bytes - footer_bytes(segment.placed) - kBlock - record;
    room += std::max<std::int64_t>(0, end - segment.fill);
  }
  return room;
}

// What is promised is at most half of all, so a segment is there of which about half goes; 3/4 fit
// even where the last whole segment is in use for copies. What is not promised can just be dropped.
std::int64_t Catalog::Impl::copy_reserve() const {
  return promised > 0 ? limits.segment_bytes / 4 * kReserveQuarters : 0;
}

void Catalog::set_bytes_max(std::int64_t bytes) { impl_->limits.bytes_max = bytes; }

Catalog::Placed Catalog::Impl::allocate(
    TtlClass ttl, std::int64_t bytes, For what, std::int64_t now_s
) {
  const bool is_copy = what != For::kRecord;
  Placed out;
  std::uint16_t& own = open[static_cast<std::size_t>(ttl)];
  const auto into = [&](std::uint16_t number) {
    const std::optional<Place> place = append(table[number], bytes);
    if (place) out.place = *place;
    return place.has_value();
  };
  const std::int64_t spare = unopened() + open_room(std::max(record_max, bytes));
  const bool may_fill = is_copy || promised == 0 || spare - bytes >= copy_reserve();
  if (own != kNoSegment && may_fill && into(own)) return out;
  // One segment is kept for copies: what is reclaimed must have a place to go to.
  const std::int64_t reserve = is_copy ? 0 : limits.segment_bytes;
  if (what != For::kCopyInOpen && bytes / kBlock <= kBlocksMax &&
      bytes + kBlock + footer_bytes(1) <= limits.segment_bytes &&
      unopened() >= limits.segment_bytes + reserve) {
    const std::uint16_t number = add_segment(next_segment, ttl, limits.segment_bytes);
    if (number != kNoSegment) {
      if (own != kNoSegment) {
        out.seal = table[own].id;
        close(table[own]);
      }
      own = number;
      table[number].opened_s = now_s;
      out.opens_segment = true;
      CHECK(into(number), "an empty segment has no room");
      return out;
    }
  }
  if (is_copy)
    for (const std::uint16_t number : open)
      if (number != kNoSegment && into(number)) return out;
  out.refusal = Refusal::kRoom;
  return out;
}

std::vector<Slot> Catalog::Impl::records(const Segment& segment) const {
  std::vector<Slot> out;
  const std::uint16_t number = numbers.at(segment.id);
  for (const Slot slot : segment.slots) {
    const Node& node = index.at(slot);
    if (node.segment != number) continue;
    if (node.state() == NodeState::kLive || node.state() == NodeState::kPlaced) out.push_back(slot);
  }
  std::sort(out.begin(), out.end(), [&](Slot a, Slot b) {
    return index.at(a).block < index.at(b).block;
  });
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

void Catalog::Impl::count(const Node& node, int sign) {
  const std::int64_t bytes = std::int64_t{node.blocks} * kBlock * sign;
  Segment& in = table[node.segment];
  in.live += sign;
  in.live_bytes += bytes;
  Tenant& tenant = tenant_of(node);
  tenant.bytes += bytes;
  tenant.records += sign;
}

void Catalog::Impl::count_live(const Node& node, int sign) {
  ClassCount& of = classes[static_cast<std::size_t>(node.ttl())];
  of.records += sign;
  of.bytes += std::int64_t{node.blocks} * kBlock * sign;
  of.pages += std::int64_t{node.kind() == RecordKind::kGlobal ? node.pages : 0} * sign;
}

Catalog::Placed Catalog::place_copy(const ChainKey& key, std::int64_t now_s, bool may_open) {
  Impl& m = *impl_;
  Placed out;
  out.refusal = Refusal::kRoom;
  const Slot slot = m.index.find(short_key(key));
  if (slot == kNil || m.index.at(slot).state() != NodeState::kLive) return out;
  const Node& node = m.index.at(slot);
  const auto what = may_open ? Impl::For::kCopy : Impl::For::kCopyInOpen;
  out = m.allocate(node.ttl(), std::int64_t{node.blocks} * kBlock, what, now_s);
  if (out.refusal == Refusal::kNone) ++m.segment(out.place.segment)->pending;
  return out;
}

bool Catalog::commit_copy(const ChainKey& key, const Place& place) {
  Impl& m = *impl_;
  Segment* into = m.segment(place.segment);
  if (into == nullptr) return false;
  --into->pending;
  const Slot slot = m.index.find(short_key(key));
  if (slot == kNil || m.index.at(slot).state() != NodeState::kLive) return false;
  Node& node = m.index.at(slot);
  m.count(node, -1);
  node.segment = m.numbers.at(place.segment);
  node.block = static_cast<std::uint32_t>(place.offset / kBlock);
  node.blocks = static_cast<std::uint16_t>(place.bytes / kBlock);
  node.uses = 0;
  m.count(node, 1);
  into->slots.push_back(slot);
  m.lengthen(node);
  return true;
}

void Catalog::forget_copy(const Place& place) {
  if (Segment* into = impl_->segment(place.segment); into != nullptr) --into->pending;
}

void Catalog::set_next_segment(SegmentId next) {
  impl_->next_segment = std::max(impl_->next_segment, next);
}

void Catalog::restore_segment(SegmentId segment, TtlClass ttl, std::int64_t bytes, bool sealed) {
  Impl& m = *impl_;
  CHECK(m.segment(segment) == nullptr, "segment {} restored twice", segment);
  const std::uint16_t number = m.add_segment(segment, ttl, bytes);
  CHECK(number != kNoSegment, "more than {} segments", kSegmentsMax);
  if (!sealed) m.open[static_cast<std::size_t>(ttl)] = number;
}

void Catalog::restore(const Entry& entry, std::int64_t now_s) {
  Impl& m = *impl_;
  const RecordFacts& facts = entry.facts;
  const Place& place = entry.place;
  Segment* in = m.segment(place.segment);
  if (in == nullptr || m.record_pages(facts.space) == 0) return;
  if (place.offset < kBlock || place.bytes <= 0 || place.offset + place.bytes > in->bytes) return;
  if (place.bytes / kBlock > kBlocksMax || facts.pages <= 0 || facts.pages > 0xFF) return;
  in->fill = std::max(in->fill, place.offset + place.bytes);
  ++in->placed;
  in->opened_s = in->opened_s == 0 ? entry.written_s : std::min(in->opened_s, entry.written_s);
  const Slot slot = m.node_for(facts.key, facts.parent);
  if (slot == kNil) return;
  Node& node = m.index.at(slot);
  const bool is_new = node.state() == NodeState::kPhantom;
  std::int64_t last_use = std::min(entry.last_use_s, now_s), promised = facts.guaranteed_until_s;
  if (!is_new) {
    const Segment& other = m.table[node.segment];
    const bool is_later =
        other.id != in->id ? other.id > in->id : std::int64_t{node.block} * kBlock > place.offset;
    if (node.state() != NodeState::kLive || is_later) return;
    last_use = std::max<std::int64_t>(last_use, node.last_use);
    promised = std::max<std::int64_t>(promised, node.guaranteed);
    m.leave_order(slot);  // the other one may be of another tenant, in a damaged folder
    m.count_live(node, -1);
    m.count(node, -1);
  }
  m.put(slot, facts, place, NodeState::kLive);
  node.last_use = seconds32(last_use);
  node.uses = static_cast<std::uint16_t>(std::clamp(entry.uses, 0, 0xFFFF));
  node.guaranteed = seconds32(promised);
  m.lengthen(node);
  m.order(slot);
  if (is_new && promised >= now_s) {
    m.tenant_of(node).promise(place.bytes, node.guaranteed);
    m.promised += place.bytes;
  }
}

void Catalog::end_restore(std::int64_t now_s) {
  Impl& m = *impl_;
  for (Slot slot = 0; slot < m.index.end(); ++slot) {
    const Node& node = m.index.at(slot);
    if (node.state() == NodeState::kLive && m.is_promised(node, now_s))
      m.promise(node.parent, node.guaranteed);
  }
}

void Catalog::seal(SegmentId segment, std::int64_t bytes) {
  Impl& m = *impl_;
  Segment* found = m.segment(segment);
  if (found == nullptr) return;
  m.bytes_used += bytes - found->bytes;
  found->bytes = bytes;
  m.close(*found);
}

std::vector<Entry> Catalog::records_of(SegmentId segment) const {
  std::vector<Entry> out;
  const Segment* found = impl_->segment(segment);
  if (found == nullptr) return out;
  for (const Slot slot : impl_->records(*found))
    if (impl_->index.at(slot).state() == NodeState::kLive) out.push_back(impl_->entry_of(slot));
  return out;
}

std::vector<SegmentId> Catalog::segments() const {
  std::vector<SegmentId> out;
  for (const auto& [id, number] : impl_->numbers) out.push_back(id);
  return out;
}

bool Catalog::is_open(SegmentId segment) const {
  const auto found = impl_->numbers.find(segment);
  if (found == impl_->numbers.end()) return false;
  return std::find(impl_->open.begin(), impl_->open.end(), found->second) != impl_->open.end();
}

// A new segment is needed when one that is open is nearly full; the room for it is made before. So
// is the reserve of copies, before it stops new records.
std::int64_t Catalog::pressure() const {
  const Impl& m = *impl_;
  const std::int64_t over = m.bytes_used - m.limits.bytes_max;
  bool is_near = false;
  for (const std::uint16_t number : m.open)
    is_near |= number != kNoSegment && m.table[number].fill > m.table[number].bytes / 4 * 3;
  const std::int64_t missing = m.promised > 0
                                   ? m.copy_reserve() + m.limits.segment_bytes / 4 + m.record_max -
                                         m.unopened() - m.open_room(m.record_max)
                                   : 0;
  return std::max(missing, is_near ? over + 2 * m.limits.segment_bytes : over);
}

}  // namespace artery::kvstore
