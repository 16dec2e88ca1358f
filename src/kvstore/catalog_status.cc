// What a catalog tells of itself, and the check of all its links and sums.

#include <algorithm>

#include "base/check.h"
#include "kvstore/catalog_impl.h"

namespace artery::kvstore {

namespace {
constexpr std::uint64_t kAgeSamples = 4096;
}

void Catalog::fill(StoreStatus& status, std::int64_t now_s) const {
  const Impl& m = *impl_;
  status.bytes_max = m.limits.bytes_max;
  status.bytes_used = m.bytes_used;
  status.guaranteed_bytes = m.promised;
  status.segments = static_cast<std::int64_t>(m.numbers.size());
  status.records = status.bytes_live = 0;
  std::array<std::vector<std::int64_t>, kTtlClasses> ages;
  const std::uint64_t end = m.index.end();
  const std::uint64_t step = std::max<std::uint64_t>(1, end / kAgeSamples);
  for (std::uint64_t slot = 0; slot < end; slot += step) {
    const Node& node = m.index.at(static_cast<Slot>(slot));
    if (node.state() == NodeState::kLive)
      ages[static_cast<std::size_t>(node.ttl())].push_back(
          std::max<std::int64_t>(0, now_s - std::int64_t{node.last_use})
      );
  }
  for (std::size_t i = 0; i < m.classes.size(); ++i) {
    const ClassCount& of = m.classes[i];
    ClassStatus& out = status.classes[i];
    out = {};
    out.records = of.records;
    out.bytes = of.bytes;
    out.tokens = of.pages * kPageTokens;
    out.hits = of.hits;
    out.expired = of.expired;
    out.evicted = of.evicted;
    status.records += of.records;
    status.bytes_live += of.bytes;
    if (ages[i].empty()) continue;
    std::sort(ages[i].begin(), ages[i].end());
    out.oldest_s = static_cast<double>(ages[i].back());
    out.median_age_s = static_cast<double>(ages[i][ages[i].size() / 2]);
  }
  for (const auto& [id, number] : m.numbers)
    ++status.classes[static_cast<std::size_t>(m.table[number].ttl)].segments;
  std::int64_t lists = 0;
  for (const Segment& segment : m.table)
    lists += static_cast<std::int64_t>(segment.slots.capacity() * sizeof(Slot));
  status.tenants.clear();
  for (const Tenant& tenant : m.tenants) {
    TenantStatus& out = status.tenants.emplace_back();
    out.tenant = tenant.name;
    out.records = tenant.records;
    out.bytes = tenant.bytes;
    out.guaranteed_bytes = tenant.promised;
    out.quota_bytes = tenant.quota;
  }
  status.index_bytes = m.index.bytes() + m.ghosts.bytes() + m.leaves.bytes() + lists;
}

namespace {

struct Sums {
  std::int64_t records = 0, bytes = 0;
  std::int64_t leaves = 0;  // that have to be in the order
};

void check_links(const Index& index, Slot slot) {
  const Node& node = index.at(slot);
  CHECK(index.find(node.key) == slot, "node {} is not found by its key", slot);
  if (node.parent != kNil) {
    const Slot before = node.prev;
    CHECK(
        before == kNil ? index.at(node.parent).child == slot : index.at(before).next == slot,
        "node {} is not among its parent's children",
        slot
    );
  }
  for (Slot child = node.child; child != kNil; child = index.at(child).next)
    CHECK(index.at(child).parent == slot, "a child of node {} has another parent", slot);
  if (node.state() == NodeState::kPhantom)
    CHECK(node.child != kNil && node.parent == kNil, "node {} is there for nothing", slot);
}

}  // namespace

void Catalog::check_integrity() const {
  const Impl& m = *impl_;
  std::vector<Sums> segments(m.table.size()), tenants(m.tenants.size());
  std::array<Sums, kTtlClasses> classes{};
  std::int64_t nodes = 0;
  for (Slot slot = 0; slot < m.index.end(); ++slot) {
    const Node& node = m.index.at(slot);
    if (node.state() == NodeState::kFree) continue;
    ++nodes;
    check_links(m.index, slot);
    if (node.state() != NodeState::kLive && node.state() != NodeState::kPlaced) continue;
    const std::int64_t bytes = std::int64_t{node.blocks} * kBlock;
    CHECK(
        node.segment < m.table.size() && m.table[node.segment].exists, "node {}: no segment", slot
    );
    const Segment& in = m.table[node.segment];
    CHECK(
        std::int64_t{node.block} * kBlock + bytes <= in.fill && in.fill <= in.bytes,
        "node {} lies outside segment {}",
        slot,
        in.id
    );
    const std::int64_t until = std::int64_t{node.last_use} + ttl_seconds(node.ttl());
    CHECK(
        in.alive_until >= until && in.alive_until >= std::int64_t{node.guaranteed},
        "segment {} goes before its records",
        in.id
    );
    for (Sums* sums :
         {&segments[node.segment], &tenants[static_cast<std::size_t>(m.spaces[node.space].tenant)]
         }) {
      ++sums->records;
      sums->bytes += bytes;
    }
    if (node.state() != NodeState::kLive) continue;
    const int owner = m.spaces[node.space].tenant;
    if (node.child == kNil && m.tenants[static_cast<std::size_t>(owner)].is_ordered)
      ++tenants[static_cast<std::size_t>(owner)].leaves;
    ++classes[static_cast<std::size_t>(node.ttl())].records;
    classes[static_cast<std::size_t>(node.ttl())].bytes += bytes;
  }
  m.leaves.check_integrity();
  CHECK(nodes == m.index.nodes(), "{} nodes counted as {}", nodes, m.index.nodes());
  std::int64_t used = 0;
  for (const auto& [id, number] : m.numbers) {
    const Segment& segment = m.table[number];
    CHECK(segment.id == id && segment.pending >= 0, "segment {}", id);
    CHECK(segment.live == segments[number].records, "records of segment {}", id);
    CHECK(segment.live_bytes == segments[number].bytes, "bytes of segment {}", id);
    CHECK(m.records(segment).size() == static_cast<std::size_t>(segment.live), "list of {}", id);
    used += segment.bytes;
  }
  CHECK(used == m.bytes_used, "{} bytes used, counted as {}", used, m.bytes_used);
  for (std::size_t i = 0; i < m.tenants.size(); ++i) {
    CHECK(m.tenants[i].bytes == tenants[i].bytes, "bytes of tenant {}", m.tenants[i].name);
    CHECK(m.tenants[i].records == tenants[i].records, "records of {}", m.tenants[i].name);
    const std::int64_t ordered = m.leaves.count(static_cast<int>(i));
    CHECK(m.unordered > 0 || ordered == tenants[i].leaves, "leaves of {}", m.tenants[i].name);
  }
  for (std::size_t i = 0; i < classes.size(); ++i)
    CHECK(
        m.classes[i].records == classes[i].records && m.classes[i].bytes == classes[i].bytes,
        "class {}",
        name(kAllTtlClasses[i])
    );
}

}  // namespace artery::kvstore
