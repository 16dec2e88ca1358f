#pragma once
// In which order a tenant's records go when it is over its quota: its leaves (records on which none
// hangs), those that are not promised by their last use, the promised ones apart, by the end of
// their promise. Equal seconds: who came here first. Heaps of 12 bytes a leaf, and 4 bytes a node
// where a tenant with a quota has one; nothing without quotas. The catalog's own, under its owner's
// lock; all in O(log leaves).

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "kvstore/index.h"

namespace artery::kvstore {

class LeafOrder {
 public:
  enum class Queue : std::uint8_t { kFree, kPromised };

  // Into one of the tenant's queues, or to another place in it, with `key` (unix seconds); after
  // all with this key, or at another one's `turn`.
  void put(int tenant, Queue queue, Slot slot, std::uint32_t key) {
    put(tenant, queue, slot, key, turn_++);
  }
  void put(int tenant, Queue queue, Slot slot, std::uint32_t key, std::uint32_t turn);
  // Nothing happens where it is in no queue.
  void remove(int tenant, Slot slot);
  // The one with the smallest key; kNil: none.
  Slot first(int tenant, Queue queue) const;
  bool holds(int tenant, Queue queue, Slot slot) const;
  std::uint32_t turn_of_first(int tenant, Queue queue) const;  // there must be one

  std::int64_t count(int tenant) const;
  std::int64_t bytes() const;
  void check_integrity() const;

 private:
  struct Item {
    std::uint32_t key = 0, turn = 0;
    Slot slot = kNil;
    bool operator<(const Item& other) const {
      return key != other.key ? key < other.key : turn < other.turn;
    }
  };
  using Heap = std::vector<Item>;  // the smallest first
  static constexpr std::uint32_t kNowhere = 0xFFFFFFFF;
  static constexpr int kChunkBits = 12;

  Heap& heap(int tenant, Queue queue);
  const Heap* find_heap(int tenant, Queue queue) const;
  std::uint32_t place(Slot slot) const;
  void set_place(Slot slot, std::uint32_t place);
  void take_out(Heap& heap, std::uint32_t at);
  void sift(Heap& heap, std::uint32_t at);

  std::vector<std::array<Heap, 2>> heaps_;                  // by tenant
  std::vector<std::unique_ptr<std::uint32_t[]>> places_{};  // in their heaps, by slot; in chunks
  std::int64_t chunks_ = 0;
  std::uint32_t turn_ = 0;
};

}  // namespace artery::kvstore
