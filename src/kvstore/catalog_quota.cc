// Quotas of a catalog: the order in which a tenant's records go, and what goes for its quota.

#include <algorithm>
#include <utility>

#include "kvstore/catalog_impl.h"

namespace artery::kvstore {

namespace {

constexpr Slot kOrderedAtOnce = 16'384;  // nodes looked at by a step
constexpr int kEvictedAtOnce = 512;      // records given up by a step
constexpr int kEndedAtOnce = 64;         // promises that are found to be over by one eviction

}  // namespace

void Catalog::Impl::order(Slot slot) {
  const Node& node = index.at(slot);
  if (node.state() != NodeState::kLive) return;  // those that are not were taken out before
  const int tenant = spaces[node.space].tenant;
  if (!tenants[static_cast<std::size_t>(tenant)].is_ordered) return;
  if (node.child != kNil) return leaves.remove(tenant, slot);
  // Whether a promise is over is looked at where it counts: it ends without a call.
  if (node.guaranteed != 0)
    leaves.put(tenant, LeafOrder::Queue::kPromised, slot, node.guaranteed);
  else
    leaves.put(tenant, LeafOrder::Queue::kFree, slot, node.last_use);
}

void Catalog::Impl::leave_order(Slot slot) {
  leaves.remove(spaces[index.at(slot).space].tenant, slot);
}

bool Catalog::Impl::order_rest() {
  for (Slot i = 0; i < kOrderedAtOnce && unordered > 0; ++i) order(--unordered);
  return unordered > 0;
}

// The tenant's least recently used leaf that may go, goes. False: there is none.
bool Catalog::Impl::evict_leaf(int tenant, Slot spare, std::int64_t now_s) {
  using Queue = LeafOrder::Queue;
  for (int i = 0; i < kEndedAtOnce; ++i) {
    const Slot slot = leaves.first(tenant, Queue::kPromised);
    if (slot == kNil || is_promised(index.at(slot), now_s)) break;
    leaves.put(tenant, Queue::kFree, slot, index.at(slot).last_use);
  }
  bool has_spared = false;
  Slot slot = leaves.first(tenant, Queue::kFree);
  for (; slot != kNil; slot = leaves.first(tenant, Queue::kFree)) {
    if (slot == spare) {
      leaves.remove(tenant, slot);
      has_spared = true;
    } else if (is_promised(index.at(slot), now_s)) {
      order(slot);  // the clock went back
    } else {
      break;
    }
  }
  if (has_spared) order(spare);
  if (slot == kNil) return false;
  const Entry entry = entry_of(slot);
  evicted.push_back({entry.facts.key, entry.place});
  ++classes[static_cast<std::size_t>(entry.facts.ttl)].evicted;
  const Slot parent = index.at(slot).parent;
  const std::uint32_t turn = leaves.turn_of_first(tenant, Queue::kFree);
  drop(slot, MissReason::kTenant);
  // Of one second, a whole chain goes before the end of the next one.
  if (parent != kNil && leaves.holds(tenant, Queue::kFree, parent))
    leaves.put(tenant, Queue::kFree, parent, index.at(parent).last_use, turn);
  return true;
}

// It was here, or was not taken, so a record that hangs on it could not be found.
bool Catalog::Impl::is_gone(const ChainKey& key) const {
  const Slot slot = index.find(short_key(key));
  const bool is_there = slot != kNil && index.at(slot).state() != NodeState::kPhantom;
  return !is_there && ghosts.find(short_key(key)) != MissReason::kNone;
}

bool Catalog::Impl::make_room_in_quota(
    const RecordFacts& facts, std::int64_t bytes, std::int64_t now_s
) {
  const int tenant = tenant_of_space(facts.space);
  const Tenant& of = tenants[static_cast<std::size_t>(tenant)];
  if (of.quota == 0 || of.bytes + bytes <= of.quota) return true;
  if (bytes > of.quota || is_gone(facts.parent)) return false;
  const Slot spare = index.find(short_key(facts.parent));
  while (of.bytes + bytes > of.quota) {
    if (evict_leaf(tenant, spare, now_s)) continue;
    if (unordered == 0) return false;
    order_rest();
    if (!evict_leaf(tenant, spare, now_s)) return false;
  }
  return true;
}

int Catalog::Impl::tenant_id(const std::string& name) {
  const auto [it, is_new] = tenant_ids.emplace(name, static_cast<int>(tenants.size()));
  if (is_new) tenants.emplace_back().name = name;
  return it->second;
}

void Catalog::set_quota(const std::string& tenant, std::int64_t quota_bytes) {
  Impl& m = *impl_;
  Tenant& of = m.tenants[static_cast<std::size_t>(m.tenant_id(tenant))];
  of.quota = std::max<std::int64_t>(0, quota_bytes);
  if (of.quota == 0 || of.is_ordered) return;
  of.is_ordered = true;
  m.unordered = m.index.end();
}

bool Catalog::enforce_quotas(std::int64_t now_s) {
  Impl& m = *impl_;
  if (m.unordered > 0) {
    m.order_rest();
    return true;
  }
  int count = 0;
  for (std::size_t i = 0; i < m.tenants.size(); ++i) {
    const Tenant& of = m.tenants[i];
    while (of.quota > 0 && of.bytes > of.quota) {
      if (count++ == kEvictedAtOnce) return true;
      if (!m.evict_leaf(static_cast<int>(i), kNil, now_s)) break;
    }
  }
  return false;
}

std::vector<Catalog::Evicted> Catalog::take_evicted() { return std::exchange(impl_->evicted, {}); }

bool Catalog::has_evicted() const { return !impl_->evicted.empty(); }

}  // namespace artery::kvstore
