#include "kvstore/index.h"

#include <bit>

#include "base/check.h"

namespace artery::kvstore {

namespace {
constexpr std::size_t kTableMin = 1024;
}

Index::Index() {
  table_.resize(kTableMin);
  mask_ = kTableMin - 1;
  shift_ = 64 - std::countr_zero(kTableMin);
}

Slot Index::find(const Key16& key) const {
  const std::uint64_t h = hash(key);
  const std::uint32_t wanted = tag(h);
  for (std::size_t i = home(h);; i = (i + 1) & mask_) {
    const std::uint32_t entry = table_[i];
    if (entry == 0) return kNil;
    if ((entry & ~kSlotMask) != wanted) continue;
    const Slot slot = (entry & kSlotMask) - 1;
    if (at(slot).key == key) return slot;
  }
}

void Index::prefetch_table(const Key16& key) const { __builtin_prefetch(&table_[home(hash(key))]); }

void Index::prefetch_node(const Key16& key) const {
  const std::uint64_t h = hash(key);
  const std::uint32_t wanted = tag(h);
  for (std::size_t i = home(h);; i = (i + 1) & mask_) {
    const std::uint32_t entry = table_[i];
    if (entry == 0) return;
    if ((entry & ~kSlotMask) != wanted) continue;
    __builtin_prefetch(&at((entry & kSlotMask) - 1));
    return;
  }
}

void Index::put(std::uint32_t entry, std::uint64_t h) {
  std::size_t i = home(h);
  while (table_[i] != 0) i = (i + 1) & mask_;
  table_[i] = entry;
}

void Index::grow() {
  const std::size_t size = table_.size() * 2;
  table_.assign(size, 0);
  table_.shrink_to_fit();
  mask_ = size - 1;
  shift_ = 64 - std::countr_zero(size);
  for (Slot slot = 0; slot < end_; ++slot) {
    if (at(slot).state() == NodeState::kFree) continue;
    const std::uint64_t h = hash(at(slot).key);
    put(tag(h) | (slot + 1), h);
  }
}

Slot Index::insert(const Key16& key) {
  Slot slot = free_;
  if (slot != kNil) {
    free_ = at(slot).parent;
  } else {
    if (end_ >= kSlotMask - 1) return kNil;
    if ((end_ & kChunkMask) == 0)
      chunks_.push_back(std::make_unique<Node[]>(std::size_t{1} << kChunkBits));
    slot = end_++;
  }
  Node& node = at(slot);
  node = Node{};
  node.key = key;
  ++nodes_;
  // Growing walks the slab, so the node must not look used before.
  if (static_cast<std::size_t>(nodes_) > table_.size() - table_.size() / 4) grow();
  node.set_state(NodeState::kPhantom);
  const std::uint64_t h = hash(key);
  put(tag(h) | (slot + 1), h);
  return slot;
}

// Linear probing without tombstones: what follows in the run moves up into the hole.
void Index::take_out(const Key16& key) {
  const std::uint64_t h = hash(key);
  std::size_t hole = home(h);
  while (table_[hole] == 0 || at((table_[hole] & kSlotMask) - 1).key != key) {
    CHECK(table_[hole] != 0, "a node is missing in the key table");
    hole = (hole + 1) & mask_;
  }
  for (std::size_t i = (hole + 1) & mask_; table_[i] != 0; i = (i + 1) & mask_) {
    const std::size_t want = home(hash(at((table_[i] & kSlotMask) - 1).key));
    // Stays where its home lies behind the hole, on the ring, up to i.
    if (((i - want) & mask_) < ((i - hole) & mask_)) continue;
    table_[hole] = table_[i];
    hole = i;
  }
  table_[hole] = 0;
}

void Index::link(Slot slot, Slot parent) {
  Node& node = at(slot);
  CHECK(node.parent == kNil, "a node has one parent");
  if (node.child != kNil)
    for (Slot up = parent; up != kNil; up = at(up).parent)
      if (up == slot) return;
  Node& above = at(parent);
  node.parent = parent;
  node.prev = kNil;
  node.next = above.child;
  if (above.child != kNil) at(above.child).prev = slot;
  above.child = slot;
}

void Index::unlink(Slot slot) {
  Node& node = at(slot);
  if (node.parent == kNil) return;
  const Slot parent = node.parent;
  if (node.prev != kNil)
    at(node.prev).next = node.next;
  else
    at(parent).child = node.next;
  if (node.next != kNil) at(node.next).prev = node.prev;
  node.parent = node.next = node.prev = kNil;
  if (at(parent).state() == NodeState::kPhantom && at(parent).child == kNil) erase(parent);
}

void Index::erase(Slot slot) {
  CHECK(at(slot).child == kNil, "a node with children cannot go");
  unlink(slot);
  take_out(at(slot).key);
  Node& node = at(slot);
  node = Node{};
  node.parent = free_;
  free_ = slot;
  --nodes_;
}

std::vector<Slot> Index::subtree(Slot slot) const {
  std::vector<Slot> out{slot};
  for (std::size_t i = 0; i < out.size(); ++i)
    for (Slot child = at(out[i]).child; child != kNil; child = at(child).next) out.push_back(child);
  return out;
}

std::int64_t Index::bytes() const {
  return static_cast<std::int64_t>(
      chunks_.size() * (sizeof(Node) << kChunkBits) + table_.capacity() * sizeof table_[0]
  );
}

}  // namespace artery::kvstore
