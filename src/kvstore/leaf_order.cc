#include "kvstore/leaf_order.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace artery::kvstore {

LeafOrder::Heap& LeafOrder::heap(int tenant, Queue queue) {
  const auto at = static_cast<std::size_t>(tenant);
  if (heaps_.size() <= at) heaps_.resize(at + 1);
  return heaps_[at][static_cast<std::size_t>(queue)];
}

const LeafOrder::Heap* LeafOrder::find_heap(int tenant, Queue queue) const {
  const auto at = static_cast<std::size_t>(tenant);
  return at < heaps_.size() ? &heaps_[at][static_cast<std::size_t>(queue)] : nullptr;
}

std::uint32_t LeafOrder::place(Slot slot) const {
  const std::size_t chunk = slot >> kChunkBits;
  if (chunk >= places_.size() || places_[chunk] == nullptr) return kNowhere;
  return places_[chunk][slot & ((1U << kChunkBits) - 1)];
}

void LeafOrder::set_place(Slot slot, std::uint32_t place) {
  const std::size_t chunk = slot >> kChunkBits;
  if (chunk >= places_.size()) places_.resize(chunk + 1);
  if (places_[chunk] == nullptr) {
    places_[chunk] = std::make_unique<std::uint32_t[]>(std::size_t{1} << kChunkBits);
    std::fill_n(places_[chunk].get(), std::size_t{1} << kChunkBits, kNowhere);
    ++chunks_;
  }
  places_[chunk][slot & ((1U << kChunkBits) - 1)] = place;
}

bool LeafOrder::holds(int tenant, Queue queue, Slot slot) const {
  const Heap* in = find_heap(tenant, queue);
  const std::uint32_t at = place(slot);
  return in != nullptr && at < in->size() && (*in)[at].slot == slot;
}

void LeafOrder::put(int tenant, Queue queue, Slot slot, std::uint32_t key, std::uint32_t turn) {
  const Queue other = queue == Queue::kFree ? Queue::kPromised : Queue::kFree;
  if (holds(tenant, other, slot)) take_out(heap(tenant, other), place(slot));
  Heap& into = heap(tenant, queue);
  std::uint32_t at = place(slot);
  if (!holds(tenant, queue, slot)) {
    CHECK(at == kNowhere, "node {} is in another tenant's order", slot);
    at = static_cast<std::uint32_t>(into.size());
    into.push_back({.slot = slot});
  }
  into[at].key = key;
  into[at].turn = turn;
  sift(into, at);
}

void LeafOrder::remove(int tenant, Slot slot) {
  const std::uint32_t at = place(slot);
  if (at == kNowhere) return;
  const bool is_free = holds(tenant, Queue::kFree, slot);
  CHECK(is_free || holds(tenant, Queue::kPromised, slot), "node {} is another tenant's", slot);
  take_out(heap(tenant, is_free ? Queue::kFree : Queue::kPromised), at);
}

void LeafOrder::take_out(Heap& heap, std::uint32_t at) {
  set_place(heap[at].slot, kNowhere);
  const Item last = heap.back();
  heap.pop_back();
  if (at == heap.size()) return;
  heap[at] = last;
  sift(heap, at);
}

// Up, then down, to where it belongs.
void LeafOrder::sift(Heap& heap, std::uint32_t at) {
  const Item item = heap[at];
  while (at > 0 && item < heap[(at - 1) / 2]) {
    heap[at] = heap[(at - 1) / 2];
    set_place(heap[at].slot, at);
    at = (at - 1) / 2;
  }
  const auto size = static_cast<std::uint32_t>(heap.size());
  for (std::uint32_t child = 2 * at + 1; child < size; child = 2 * at + 1) {
    if (child + 1 < size && heap[child + 1] < heap[child]) ++child;
    if (!(heap[child] < item)) break;
    heap[at] = heap[child];
    set_place(heap[at].slot, at);
    at = child;
  }
  heap[at] = item;
  set_place(item.slot, at);
}

Slot LeafOrder::first(int tenant, Queue queue) const {
  const Heap* of = find_heap(tenant, queue);
  return of == nullptr || of->empty() ? kNil : of->front().slot;
}

std::uint32_t LeafOrder::turn_of_first(int tenant, Queue queue) const {
  return find_heap(tenant, queue)->front().turn;
}

std::int64_t LeafOrder::count(int tenant) const {
  std::int64_t out = 0;
  for (const Queue queue : {Queue::kFree, Queue::kPromised})
    if (const Heap* of = find_heap(tenant, queue)) out += static_cast<std::int64_t>(of->size());
  return out;
}

std::int64_t LeafOrder::bytes() const {
  std::int64_t out = chunks_ * static_cast<std::int64_t>(sizeof(std::uint32_t) << kChunkBits);
  for (const auto& pair : heaps_)
    for (const Heap& of : pair) out += static_cast<std::int64_t>(of.capacity() * sizeof(Item));
  return out;
}

void LeafOrder::check_integrity() const {
  for (const auto& pair : heaps_)
    for (const Heap& of : pair)
      for (std::uint32_t at = 0; at < of.size(); ++at) {
        CHECK(place(of[at].slot) == at, "node {} is not at its place in the order", of[at].slot);
        CHECK(at == 0 || !(of[at] < of[(at - 1) / 2]), "the order of leaves is broken");
      }
}

}  // namespace artery::kvstore
