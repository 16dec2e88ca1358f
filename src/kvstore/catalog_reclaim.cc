// What a catalog gives up, and what it keeps: expiry, reclaim under pressure, erasure.

#include <algorithm>

#include "base/check.h"
#include "kvstore/catalog_impl.h"
#include "kvstore/folder_format.h"

namespace artery::kvstore {

namespace {

constexpr Slot kSweepNodes = 8192;                // looked at by one dead_segments()
constexpr std::size_t kCutSamples = 1024;         // of last uses
constexpr double kColdShare = 0.12;               // of live bytes: what an LRU would give up next
constexpr std::size_t kOldest = 8, kDeadest = 4;  // segments of which one is taken
constexpr std::int64_t kDeadWeight = 1;
constexpr std::int64_t kFreedLeast = 8;  // a victim frees at least 1/8 of its bytes

}  // namespace

std::uint64_t Catalog::Impl::random() {
  noise = noise * 6364136223846793005ULL + 1442695040888963407ULL;
  return noise >> 32;
}

// --- dropping

void Catalog::Impl::drop(Slot slot, MissReason why) {
  Node& node = index.at(slot);
  const NodeState was = node.state();
  CHECK(was == NodeState::kLive || was == NodeState::kPlaced, "nothing to drop");
  ghosts.add(node.key, why);
  count(node, -1);
  if (was == NodeState::kPlaced) {
    node.set_state(NodeState::kDoomed);
    return;
  }
  leave_order(slot);
  count_live(node, -1);
  ClassCount& of = classes[static_cast<std::size_t>(node.ttl())];
  if (why == MissReason::kExpired) ++of.expired;
  if (why == MissReason::kEvicted) ++of.evicted;
  take_out(slot);
}

// The record is gone; its node goes too, where nothing hangs on it.
void Catalog::Impl::take_out(Slot slot) {
  Node& node = index.at(slot);
  const Slot parent = node.parent;
  if (node.child == kNil) {
    index.erase(slot);
  } else {
    index.unlink(slot);  // phantoms hang on nothing
    node.set_state(NodeState::kPhantom);
    node.segment = kNoSegment;
    node.guaranteed = 0;
  }
  if (parent != kNil) order(parent);  // a leaf now, or gone
}

void Catalog::Impl::drop_subtree(Slot slot, MissReason why) {
  const std::vector<Slot> below = index.subtree(slot);
  for (auto it = below.rbegin(); it != below.rend(); ++it) {
    const NodeState is = index.at(*it).state();
    if (is == NodeState::kLive || is == NodeState::kPlaced) drop(*it, why);
  }
}

void Catalog::Impl::finish_doomed(Slot slot) {
  Node& node = index.at(slot);
  if (node.segment != kNoSegment) --table[node.segment].pending;
  take_out(slot);
}

void Catalog::drop_segment(SegmentId segment, MissReason why) {
  Impl& m = *impl_;
  Segment* found = m.segment(segment);
  if (found == nullptr) return;
  const std::uint16_t number = m.numbers.at(segment);
  for (const Slot slot : m.records(*found)) {
    const Node& node = m.index.at(slot);
    if (node.segment == number && node.state() != NodeState::kDoomed) m.drop_subtree(slot, why);
  }
  for (const Slot slot : found->slots) {  // writes that end later have no segment any more
    Node& node = m.index.at(slot);
    if (node.segment == number && node.state() == NodeState::kDoomed) node.segment = kNoSegment;
  }
  m.close(*found);
  m.bytes_used -= found->bytes;
  m.numbers.erase(segment);
  *found = Segment{};
  m.unused.push_back(number);
}

void Catalog::erase(const ChainKey& key, MissReason why) {
  const Slot slot = impl_->index.find(short_key(key));
  if (slot != kNil) impl_->drop_subtree(slot, why);
}

std::vector<Place> Catalog::drop_tenant(const std::string& tenant) {
  Impl& m = *impl_;
  std::vector<Place> out;
  const auto known = m.tenant_ids.find(tenant);
  if (known == m.tenant_ids.end()) return out;
  for (Slot slot = 0; slot < m.index.end(); ++slot) {
    const Node& node = m.index.at(slot);
    if (node.state() != NodeState::kLive && node.state() != NodeState::kPlaced) continue;
    if (m.spaces[node.space].tenant != known->second) continue;
    out.push_back(m.entry_of(slot).place);
    m.drop(slot, MissReason::kTenant);
  }
  Tenant& of = m.tenants[static_cast<std::size_t>(known->second)];
  m.promised -= of.promised;
  of.promised = 0;
  of.promises.clear();
  return out;
}

// --- expiry

std::vector<SegmentId> Catalog::dead_segments(std::int64_t now_s) {
  Impl& m = *impl_;
  m.sweep(now_s);
  m.settle_promises(now_s);
  std::vector<SegmentId> out;
  for (const auto& [id, number] : m.numbers)
    if (m.is_dead(m.table[number], now_s)) out.push_back(id);
  return out;
}

bool Catalog::Impl::is_dead(const Segment& segment, std::int64_t now_s) const {
  if (segment.pending > 0) return false;
  const bool is_open = std::ranges::find(open, numbers.at(segment.id)) != open.end();
  const bool is_new = segment.placed == 0 && is_open;
  return !is_new && (segment.live == 0 || segment.alive_until < now_s);
}

bool Catalog::drop_dead(SegmentId segment, std::int64_t now_s) {
  const Segment* found = impl_->segment(segment);
  if (found == nullptr || !impl_->is_dead(*found, now_s)) return false;
  drop_segment(segment, MissReason::kExpired);
  return true;
}

void Catalog::Impl::sweep(std::int64_t now_s) {
  const Slot count = std::min(kSweepNodes, index.end());
  for (Slot i = 0; i < count; ++i) {
    if (sweep_at >= index.end()) sweep_at = 0;
    const Slot slot = sweep_at++;
    const Node& node = index.at(slot);
    if (node.state() == NodeState::kLive && !is_alive(node, now_s))
      drop_subtree(slot, MissReason::kExpired);
  }
}

void Catalog::Impl::settle_promises(std::int64_t now_s) {
  for (Tenant& tenant : tenants) promised -= tenant.settle(now_s);
}

// --- reclaim

// The last use at which an LRU of this size would cut next: that of the kColdShare-quantile of live
// bytes, from samples.
std::uint32_t Catalog::Impl::cut_time() {
  std::vector<std::pair<std::uint32_t, std::uint32_t>> sampled;  // last use, blocks
  const Slot end = index.end();
  const auto take = [&](Slot slot) {
    const Node& node = index.at(slot);
    if (node.state() == NodeState::kLive) sampled.emplace_back(node.last_use, node.blocks);
  };
  if (end <= 2 * kCutSamples)
    for (Slot slot = 0; slot < end; ++slot) take(slot);
  else
    for (std::size_t i = 0; i < kCutSamples; ++i)
      take(static_cast<Slot>(random() * std::uint64_t{end} >> 32));
  std::sort(sampled.begin(), sampled.end());
  std::uint64_t all = 0;
  for (const auto& [last_use, blocks] : sampled) all += blocks;
  std::uint64_t below = 0;
  for (const auto& [last_use, blocks] : sampled) {
    below += blocks;
    if (static_cast<double>(below) >= kColdShare * static_cast<double>(all)) return last_use;
  }
  return 0xFFFFFFFF;
}

bool Catalog::Impl::is_worth(const Node& node, KeepRule rule, std::uint32_t cut, std::int64_t now_s)
    const {
  if (node.state() != NodeState::kLive || !is_alive(node, now_s)) return false;
  if (is_promised(node, now_s)) return true;
  if (rule == KeepRule::kPromised) return false;
  return node.ttl() == TtlClass::kPinned || (rule == KeepRule::kUsedAfter && node.last_use > cut);
}

std::vector<Slot> Catalog::Impl::worth_keeping(
    const Segment& segment, KeepRule rule, std::uint32_t cut, std::int64_t now_s
) const {
  const std::vector<Slot> all = records(segment);
  std::vector<Slot> kept;
  for (const Slot slot : all)
    if (is_worth(index.at(slot), rule, cut, now_s)) kept.push_back(slot);
  // What a kept record hangs on is kept too, as far as it lies here.
  const std::uint16_t number = numbers.at(segment.id);
  std::sort(kept.begin(), kept.end());
  std::vector<Slot> above;
  for (const Slot slot : kept)
    for (Slot up = index.at(slot).parent; up != kNil; up = index.at(up).parent) {
      const Node& node = index.at(up);
      if (node.segment != number || node.state() != NodeState::kLive) break;
      if (std::binary_search(kept.begin(), kept.end(), up)) break;
      above.push_back(up);
    }
  kept.insert(kept.end(), above.begin(), above.end());
  std::sort(kept.begin(), kept.end());
  std::vector<Slot> out;
  for (const Slot slot : all)
    if (std::binary_search(kept.begin(), kept.end(), slot)) out.push_back(slot);
  return out;
}

std::int64_t Catalog::Impl::bytes_of(const std::vector<Slot>& slots) const {
  std::int64_t out = 0;
  for (const Slot slot : slots) out += std::int64_t{index.at(slot).blocks} * kBlock;
  return out;
}

// Whether copies have a place: in what is open, but for the segment they come from, or in new
// ones.
bool Catalog::Impl::fits_copies(const std::vector<Slot>& keep, std::uint16_t of, bool may_open)
    const {
  if (keep.empty()) return true;
  const std::int64_t segment = limits.segment_bytes;
  const std::int64_t fresh = may_open ? std::max<std::int64_t>(0, unopened() / segment) : 0;
  const std::int64_t need = bytes_of(keep) + footer_bytes(static_cast<std::int64_t>(keep.size()));
  if (fresh > 0 && kBlock + need <= segment) return true;
  std::int64_t largest = 0;
  for (const Slot slot : keep)
    largest = std::max(largest, std::int64_t{index.at(slot).blocks} * kBlock);
  const std::int64_t each = segment - kBlock - footer_bytes(0) - kBlock - largest;
  return need <= open_room(largest, of) + fresh * std::max<std::int64_t>(0, each);
}

// The oldest of the segments that may go, and those with the most dead bytes.
std::vector<std::uint16_t> Catalog::Impl::candidates(bool is_open_too) const {
  std::vector<std::uint16_t> out, dead;
  for (const auto& [id, number] : numbers) {
    if (table[number].pending > 0) continue;
    if ((std::find(open.begin(), open.end(), number) != open.end()) != is_open_too) continue;
    (out.size() < kOldest ? out : dead).push_back(number);
  }
  const std::size_t most = std::min(kDeadest, dead.size());
  std::partial_sort(
      dead.begin(),
      dead.begin() + static_cast<std::ptrdiff_t>(most),
      dead.end(),
      [&](std::uint16_t a, std::uint16_t b) {
        const std::int64_t more = table[a].bytes - table[a].live_bytes;
        const std::int64_t less = table[b].bytes - table[b].live_bytes;
        return more != less ? more > less : table[a].id < table[b].id;
      }
  );
  out.insert(out.end(), dead.begin(), dead.begin() + static_cast<std::ptrdiff_t>(most));
  return out;
}

// The best of the candidates: what is dead already counts more than what is cold, because it
// costs no hit.
std::optional<Catalog::Impl::Choice> Catalog::Impl::choose(
    const std::vector<std::uint16_t>& from, const Terms& terms, KeepRule rule
) const {
  const auto [cut, now_s, may_open] = terms;
  std::vector<std::pair<std::int64_t, std::size_t>> ranked;  // -gain, place
  for (std::size_t i = 0; i < from.size(); ++i) {
    const Segment& segment = table[from[i]];
    std::int64_t kept = 0;
    for (const Slot slot : segment.slots) {
      const Node& node = index.at(slot);
      if (node.segment == from[i] && is_worth(node, rule, cut, now_s))
        kept += std::int64_t{node.blocks} * kBlock;
    }
    const std::int64_t gain =
        segment.bytes - kept + kDeadWeight * (segment.bytes - segment.live_bytes);
    ranked.emplace_back(-gain, i);
  }
  std::sort(ranked.begin(), ranked.end());
  for (const auto& [loss, i] : ranked) {
    const Segment& segment = table[from[i]];
    std::vector<Slot> keep = worth_keeping(segment, rule, cut, now_s);
    if (segment.bytes - bytes_of(keep) < segment.bytes / kFreedLeast) continue;
    if (fits_copies(keep, from[i], may_open)) return Choice{from[i], std::move(keep)};
  }
  return std::nullopt;
}

std::optional<Catalog::Victim> Catalog::victim(std::int64_t now_s, bool may_open) {
  Impl& m = *impl_;
  const Impl::Terms terms{.cut = m.cut_time(), .now_s = now_s, .may_open = may_open};
  // By the rule; then all but what is pinned; then all that is not promised. Sealed segments before
  // open ones, a few before all.
  for (const bool is_open_too : {false, true}) {
    const std::vector<std::uint16_t> few = m.candidates(is_open_too);
    for (const auto rule :
         {Impl::KeepRule::kUsedAfter, Impl::KeepRule::kPinned, Impl::KeepRule::kPromised}) {
      std::optional<Impl::Choice> choice = m.choose(few, terms, rule);
      if (!choice) {
        std::vector<std::uint16_t> all;
        for (const auto& [id, number] : m.numbers)
          if (m.table[number].pending == 0 && is_open(id) == is_open_too) all.push_back(number);
        if (all.size() > few.size()) choice = m.choose(all, terms, rule);
      }
      if (!choice) continue;
      Segment& segment = m.table[choice->number];
      Victim out;
      out.segment = segment.id;
      if (is_open_too) m.close(segment);
      for (const Slot slot : choice->keep) out.keep.push_back(m.entry_of(slot));
      return out;
    }
  }
  return std::nullopt;
}

std::vector<Entry> Catalog::drop_victim(
    SegmentId segment, std::span<const Entry> tried, std::int64_t now_s
) {
  const Impl& m = *impl_;
  std::vector<Entry> out;
  const Segment* found = m.segment(segment);
  if (found == nullptr) return out;
  for (const Slot slot : m.worth_keeping(*found, Impl::KeepRule::kPromised, 0, now_s)) {
    Entry entry = m.entry_of(slot);
    const bool is_tried = std::ranges::any_of(tried, [&](const Entry& one) {
      return one.place.offset == entry.place.offset;
    });
    if (!is_tried) out.push_back(std::move(entry));
  }
  if (out.empty()) drop_segment(segment, MissReason::kEvicted);
  return out;
}

}  // namespace artery::kvstore
