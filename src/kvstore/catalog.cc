#include "kvstore/catalog.h"

#include <algorithm>

#include "base/check.h"
#include "kvstore/catalog_impl.h"

namespace artery::kvstore {

namespace {
constexpr std::int64_t kTableAhead = 16, kNodeAhead = 8;  // links of a chain fetched ahead
constexpr std::int64_t kUnpromised = 3;                   // segments at least
constexpr int kSiblingsMax = 8;                           // looked at to tell diverged from cold
}  // namespace

Catalog::Catalog(const CatalogLimits& limits) : impl_(std::make_unique<Impl>(limits)) {
  CHECK(
      limits.segment_bytes > 2 * kBlock && limits.segment_bytes % kBlock == 0,
      "segments of {} bytes",
      limits.segment_bytes
  );
}
Catalog::~Catalog() = default;

// --- one record

bool Catalog::Impl::is_alive(const Node& node, std::int64_t now_s) const {
  if (std::int64_t{node.guaranteed} >= now_s && node.guaranteed != 0) return true;
  return now_s - std::int64_t{node.last_use} <= ttl_seconds(node.ttl());
}

bool Catalog::Impl::is_found(Slot slot, std::uint32_t space, int pages, std::int64_t now_s) const {
  if (slot == kNil) return false;
  const Node& node = index.at(slot);
  return node.state() == NodeState::kLive && node.space == space && node.pages == pages &&
         node.kind() == RecordKind::kGlobal && is_alive(node, now_s);
}

Tenant& Catalog::Impl::tenant_of(const Node& node) {
  return tenants[static_cast<std::size_t>(spaces[node.space].tenant)];
}

void Catalog::Impl::lengthen(const Node& node) {
  Segment& in = table[node.segment];
  const std::int64_t until = std::max<std::int64_t>(
      std::int64_t{node.last_use} + ttl_seconds(node.ttl()), node.guaranteed
  );
  in.alive_until = std::max(in.alive_until, until);
}

void Catalog::Impl::raise_ttl(Node& node, TtlClass ttl) {
  if (ttl <= node.ttl()) return;
  if (node.state() == NodeState::kLive) count_live(node, -1);
  node.set_ttl(ttl);
  if (node.state() == NodeState::kLive) count_live(node, 1);
}

// What a promised record hangs on is promised too: it could not be found without.
void Catalog::Impl::promise(Slot slot, std::int64_t until_s) {
  const std::uint32_t until = seconds32(until_s);
  for (; slot != kNil; slot = index.at(slot).parent) {
    Node& node = index.at(slot);
    if (node.guaranteed >= until || node.state() == NodeState::kPhantom) return;
    node.guaranteed = until;
    if (node.segment != kNoSegment) lengthen(node);
    order(slot);
  }
}

void Catalog::Impl::use(
    Slot slot, TtlClass ttl, std::int64_t guaranteed_until_s, std::int64_t now_s
) {
  Node& node = index.at(slot);
  node.last_use = seconds32(now_s);
  if (node.uses < 0xFFFF) ++node.uses;
  raise_ttl(node, ttl);
  ++classes[static_cast<std::size_t>(node.ttl())].hits;
  lengthen(node);
  if (guaranteed_until_s > 0) promise(slot, guaranteed_until_s);
  order(slot);
}

Slot Catalog::Impl::node_for(const ChainKey& key, const ChainKey& parent) {
  const Key16 own = short_key(key), above = short_key(parent);
  Slot slot = index.find(own);
  if (slot == kNil) slot = index.insert(own);
  if (slot == kNil || own == above || index.at(slot).parent != kNil) return slot;
  Slot up = index.find(above);
  if (up == kNil) up = index.insert(above);
  if (up == kNil) return slot;
  index.link(slot, up);
  order(up);
  return slot;
}

void Catalog::Impl::put(Slot slot, const RecordFacts& facts, const Place& place, NodeState state) {
  Node& node = index.at(slot);
  node.set(facts.ttl, facts.kind, state);
  node.space = static_cast<std::uint32_t>(facts.space);
  node.pages = static_cast<std::uint8_t>(facts.pages);
  node.segment = numbers.at(place.segment);
  node.block = static_cast<std::uint32_t>(place.offset / kBlock);
  node.blocks = static_cast<std::uint16_t>(place.bytes / kBlock);
  record_max = std::max(record_max, place.bytes);
  node.uses = 0;
  node.guaranteed = 0;
  count(node, 1);
  if (state == NodeState::kLive) count_live(node, 1);
  table[node.segment].slots.push_back(slot);
}

Entry Catalog::Impl::entry_of(Slot slot) const {
  const Node& node = index.at(slot);
  Entry out;
  out.facts.space = static_cast<SpaceId>(node.space);
  out.facts.kind = node.kind();
  out.facts.ttl = node.ttl();
  out.facts.key = padded_key(node.key);
  if (node.parent != kNil) out.facts.parent = padded_key(index.at(node.parent).key);
  out.facts.pages = node.pages;
  out.facts.guaranteed_until_s = node.guaranteed;
  const Segment& in = table[node.segment];
  out.place = {in.id, std::int64_t{node.block} * kBlock, std::int64_t{node.blocks} * kBlock};
  out.written_s = in.opened_s;
  out.last_use_s = node.last_use;
  out.uses = node.uses;
  return out;
}

// --- spaces, look-up

void Catalog::add_space(SpaceId space, const std::string& tenant, int record_pages) {
  CHECK(space >= 0 && record_pages > 0 && record_pages < 256, "space {}", space);
  Impl& m = *impl_;
  if (m.spaces.size() <= static_cast<std::size_t>(space))
    m.spaces.resize(static_cast<std::size_t>(space) + 1);
  m.spaces[static_cast<std::size_t>(space)] = {m.tenant_id(tenant), record_pages};
}

std::vector<Slot> Catalog::Impl::tails(
    std::uint32_t space,
    std::span<const ChainKey> keys,
    std::int64_t begin,
    std::int64_t most,
    std::int64_t now_s
) const {
  // A key has one record, so each end is reached in one way: by the record that ends there.
  std::vector<Slot> at(static_cast<std::size_t>(std::max<std::int64_t>(most, 0)) + 1, kNil);
  std::size_t end = 0;
  for (std::size_t i = 1; i < at.size(); ++i) {
    const Slot slot = index.find(short_key(keys[static_cast<std::size_t>(begin) + i - 1]));
    if (slot == kNil) continue;
    const std::size_t pages = index.at(slot).pages;
    if (pages > i || (pages < i && at[i - pages] == kNil)) continue;
    if (!is_found(slot, space, static_cast<int>(pages), now_s)) continue;
    at[i] = slot;
    end = i;
  }
  std::vector<Slot> out;
  for (std::size_t i = end; i > 0; i -= index.at(out.back()).pages) out.push_back(at[i]);
  std::reverse(out.begin(), out.end());
  return out;
}

Found Catalog::find(SpaceId space, std::span<const ChainKey> keys, std::int64_t now_s) const {
  const Impl& m = *impl_;
  Found out;
  const int pages = m.record_pages(space);
  if (pages == 0) {
    out.miss = keys.empty() ? MissReason::kNone : MissReason::kCold;
    return out;
  }
  const auto n = static_cast<std::int64_t>(keys.size());
  const std::int64_t whole = n / pages;
  const auto key_of = [&](std::int64_t link) {
    return short_key(keys[static_cast<std::size_t>((link + 1) * pages - 1)]);
  };
  const auto owner = static_cast<std::uint32_t>(space);
  for (std::int64_t i = 0; i < std::min(whole, kTableAhead); ++i) m.index.prefetch_table(key_of(i));
  for (std::int64_t i = 0; i < std::min(whole, kNodeAhead); ++i) m.index.prefetch_node(key_of(i));
  Slot last = kNil;
  for (std::int64_t i = 0; i < whole; ++i) {
    if (i + kTableAhead < whole) m.index.prefetch_table(key_of(i + kTableAhead));
    if (i + kNodeAhead < whole) m.index.prefetch_node(key_of(i + kNodeAhead));
    const Slot slot = m.index.find(key_of(i));
    if (!m.is_found(slot, owner, pages, now_s)) break;
    last = slot;
    out.extents.push_back({i * pages, pages});
    out.pages += pages;
  }
  const std::int64_t most = std::min<std::int64_t>(pages - 1, n - out.pages);
  for (const Slot slot : m.tails(owner, keys, out.pages, most, now_s)) {
    const int tail = m.index.at(slot).pages;
    out.extents.push_back({out.pages, tail});
    out.pages += tail;
  }
  if (out.pages < n) out.miss = m.why_missing(keys, pages, out.pages, last, now_s);
  return out;
}

MissReason Catalog::Impl::why_missing(
    std::span<const ChainKey> keys, int pages, std::int64_t begin, Slot last, std::int64_t now_s
) const {
  const auto n = static_cast<std::int64_t>(keys.size());
  const std::int64_t end = (begin / pages + 1) * pages;  // of the next whole record
  const Key16 key = short_key(keys[static_cast<std::size_t>(std::min(end, n) - 1)]);
  if (const Slot slot = index.find(key); slot != kNil) {
    const Node& node = index.at(slot);
    if (node.state() == NodeState::kLive && !is_alive(node, now_s)) return MissReason::kExpired;
    if (node.state() == NodeState::kPlaced) return MissReason::kBudget;  // not yet written
  }
  // The whole record, or a tail that ended before it.
  for (std::int64_t page = std::min(end, n); page > begin; --page) {
    const MissReason why = ghosts.find(short_key(keys[static_cast<std::size_t>(page - 1)]));
    if (why != MissReason::kNone) return why;
  }
  if (begin == 0) return MissReason::kCold;
  if (end > n) return MissReason::kBoundary;
  if (last == kNil || begin % pages != 0) return MissReason::kCold;
  int looked = 0;
  for (Slot child = index.at(last).child; child != kNil && looked < kSiblingsMax; ++looked) {
    const Node& node = index.at(child);
    if (node.kind() == RecordKind::kGlobal && node.segment != kNoSegment)
      return MissReason::kDiverged;
    child = node.next;
  }
  return MissReason::kCold;
}

std::optional<Entry> Catalog::look_up(const ChainKey& key) const {
  const Slot slot = impl_->index.find(short_key(key));
  if (slot == kNil || impl_->index.at(slot).state() != NodeState::kLive) return std::nullopt;
  return impl_->entry_of(slot);
}

bool Catalog::contains(const ChainKey& key, std::int64_t now_s) const {
  const Slot slot = impl_->index.find(short_key(key));
  return slot != kNil && impl_->index.at(slot).state() == NodeState::kLive &&
         impl_->is_alive(impl_->index.at(slot), now_s);
}

bool Catalog::promise(const ChainKey& key, std::int64_t guaranteed_until_s, std::int64_t now_s) {
  Impl& m = *impl_;
  const Slot slot = m.index.find(short_key(key));
  if (slot == kNil) return false;
  Node& node = m.index.at(slot);
  if (node.state() != NodeState::kLive && node.state() != NodeState::kPlaced) return false;
  node.last_use = seconds32(now_s);
  m.lengthen(node);
  m.promise(slot, guaranteed_until_s);
  m.order(slot);
  return true;
}

void Catalog::touch(
    SpaceId space,
    std::span<const ChainKey> keys,
    std::int64_t pages,
    TtlClass ttl,
    std::int64_t guaranteed_until_s,
    std::int64_t now_s
) {
  Impl& m = *impl_;
  const int record = m.record_pages(space);
  if (record == 0) return;
  pages = std::min(pages, static_cast<std::int64_t>(keys.size()));
  const std::int64_t whole = pages / record;
  const auto owner = static_cast<std::uint32_t>(space);
  const auto key_at = [&](std::int64_t end) {
    return short_key(keys[static_cast<std::size_t>(end - 1)]);
  };
  const std::vector<Slot> tails = m.tails(owner, keys, whole * record, pages % record, now_s);
  for (auto slot = tails.rbegin(); slot != tails.rend(); ++slot) {
    m.use(*slot, ttl, guaranteed_until_s, now_s);
  }
  for (std::int64_t i = whole; i > 0; --i) {
    if (i > kTableAhead) m.index.prefetch_table(key_at((i - kTableAhead) * record));
    if (i > kNodeAhead) m.index.prefetch_node(key_at((i - kNodeAhead) * record));
    const Slot slot = m.index.find(key_at(i * record));
    if (m.is_found(slot, owner, record, now_s)) m.use(slot, ttl, guaranteed_until_s, now_s);
  }
}

// --- writing

Catalog::Placed Catalog::place(const RecordFacts& facts, std::int64_t bytes, std::int64_t now_s) {
  Impl& m = *impl_;
  CHECK(m.record_pages(facts.space) > 0, "a record of space {}, which is not open", facts.space);
  CHECK(bytes > 0 && bytes % kBlock == 0, "a record of {} bytes", bytes);
  Placed out;
  Slot slot = m.index.find(short_key(facts.key));
  if (slot != kNil) {
    Node& node = m.index.at(slot);
    if (node.state() == NodeState::kLive && !m.is_alive(node, now_s)) {
      m.drop(slot, MissReason::kExpired);
    } else if (node.state() != NodeState::kPhantom) {
      if (node.state() != NodeState::kDoomed) {
        m.raise_ttl(node, facts.ttl);
        m.promise(slot, facts.guaranteed_until_s);
        m.lengthen(node);
      }
      out.refusal = Refusal::kKnown;
      return out;
    }
  }
  if (!m.make_room_in_quota(facts, bytes, now_s)) {
    m.ghosts.add(short_key(facts.key), MissReason::kTenant);
    out.refusal = Refusal::kQuota;
    return out;
  }
  out = m.allocate(facts.ttl, bytes, Impl::For::kRecord, now_s);
  if (out.refusal != Refusal::kNone) return out;
  slot = m.node_for(facts.key, facts.parent);
  if (slot == kNil) {  // 67 million records: the space stays unused
    out.refusal = Refusal::kRoom;
    return out;
  }
  m.put(slot, facts, out.place, NodeState::kPlaced);
  m.index.at(slot).last_use = seconds32(now_s);
  ++m.table[m.index.at(slot).segment].pending;
  m.promise(slot, facts.guaranteed_until_s);
  m.lengthen(m.index.at(slot));
  return out;
}

void Catalog::commit(const ChainKey& key, std::int64_t now_s) {
  Impl& m = *impl_;
  const Slot slot = m.index.find(short_key(key));
  if (slot == kNil) return;
  Node& node = m.index.at(slot);
  if (node.state() == NodeState::kDoomed) return m.finish_doomed(slot);
  if (node.state() != NodeState::kPlaced) return;
  --m.table[node.segment].pending;
  node.set_state(NodeState::kLive);
  node.last_use = seconds32(now_s);
  m.count_live(node, 1);
  m.lengthen(node);
  m.order(slot);
}

void Catalog::forget(const ChainKey& key) {
  Impl& m = *impl_;
  const Slot slot = m.index.find(short_key(key));
  if (slot == kNil) return;
  const NodeState state = m.index.at(slot).state();
  if (state == NodeState::kPlaced) m.drop(slot, MissReason::kBudget);
  if (state == NodeState::kPlaced || state == NodeState::kDoomed) m.finish_doomed(slot);
}

std::int64_t Catalog::guarantee(
    SpaceId space, std::int64_t bytes, TtlClass ttl, std::int64_t now_s
) {
  Impl& m = *impl_;
  if (m.record_pages(space) == 0 || bytes < 0) return 0;
  m.settle_promises(now_s);
  Tenant& tenant = m.tenants[static_cast<std::size_t>(m.tenant_of_space(space))];
  const auto share_of = [&](std::int64_t whole) {
    return static_cast<std::int64_t>(m.limits.guaranteed_share * static_cast<double>(whole));
  };
  const std::int64_t least = m.limits.bytes_max - kUnpromised * m.limits.segment_bytes;
  if (bytes > std::min(share_of(m.limits.bytes_max), least) - m.promised) return 0;
  if (tenant.quota > 0 && bytes > share_of(tenant.quota) - tenant.promised) return 0;
  const std::int64_t until = seconds32(now_s + ttl_seconds(ttl));
  tenant.promise(bytes, until);
  m.promised += bytes;
  return until;
}

}  // namespace artery::kvstore
