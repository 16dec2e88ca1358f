#pragma once
// The memory of Catalog: nodes of 56 bytes in a slab, found by the first 16 bytes of their key
// through an open-addressing table of 32-bit slots, linked as trees by their parents.
//
// A node whose record is not here, but whose children are, is a phantom: the root of a chain, or
// a record that comes later (recovery reads records in any order). The owner's lock; no I/O.

#include <array>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "base/chain_key.h"
#include "kvstore/record_store.h"
#include "kvstore/types.h"

namespace artery::kvstore {

struct Key16 {
  std::uint64_t a = 0, b = 0;
  friend bool operator==(const Key16&, const Key16&) = default;
};

inline Key16 short_key(const ChainKey& key) {
  Key16 out;
  std::memcpy(&out, key.data(), sizeof out);
  return out;
}
// The first 16 bytes, then zeros.
inline ChainKey padded_key(const Key16& key) {
  ChainKey out{};
  std::memcpy(out.data(), &key, sizeof key);
  return out;
}

using Slot = std::uint32_t;  // of a node
constexpr Slot kNil = 0xFFFFFFFF;
constexpr std::uint16_t kNoSegment = 0xFFFF;

enum class NodeState : std::uint8_t {
  kFree,
  kPhantom,  // no record: only children
  kPlaced,   // being written
  kDoomed,   // being written, but dropped meanwhile; goes when the write has ended
  kLive,
};

struct Node {
  Key16 key;
  std::uint32_t last_use = 0;  // unix seconds
  std::uint32_t space = 0;
  std::uint16_t blocks = 0;  // of kBlock bytes
  std::uint8_t pages = 0;
  std::uint8_t flags = 0;  // class, kind, state
  std::uint16_t segment = kNoSegment;
  std::uint16_t uses = 0;
  std::uint32_t block = 0;       // where it begins in the segment
  std::uint32_t guaranteed = 0;  // unix seconds
  Slot parent = kNil, child = kNil, next = kNil, prev = kNil;

  TtlClass ttl() const { return static_cast<TtlClass>(flags & 7); }
  RecordKind kind() const { return static_cast<RecordKind>((flags >> 3) & 1); }
  NodeState state() const { return static_cast<NodeState>(flags >> 4); }
  void set(TtlClass ttl, RecordKind kind, NodeState state) {
    flags = static_cast<std::uint8_t>(
        static_cast<unsigned>(ttl) | static_cast<unsigned>(kind) << 3 |
        static_cast<unsigned>(state) << 4
    );
  }
  void set_state(NodeState state) { set(ttl(), kind(), state); }
  void set_ttl(TtlClass ttl) { set(ttl, kind(), state()); }
};
static_assert(sizeof(Node) == 56);

class Index {
 public:
  Index();

  Node& at(Slot slot) { return chunks_[slot >> kChunkBits][slot & kChunkMask]; }
  const Node& at(Slot slot) const { return chunks_[slot >> kChunkBits][slot & kChunkMask]; }

  Slot find(const Key16& key) const;
  // A new phantom without links; kNil: the slab is full. The key must not be there.
  Slot insert(const Key16& key);
  // Takes a node without children out of its tree and frees it, with a phantom parent that has
  // no other child.
  void erase(Slot slot);
  // Hangs `slot`, which has no parent, below `parent`; left alone where that would close a circle.
  void link(Slot slot, Slot parent);
  void unlink(Slot slot);
  // The node and all below it, parents first.
  std::vector<Slot> subtree(Slot slot) const;

  Slot end() const { return end_; }  // slots are below it
  std::int64_t nodes() const { return nodes_; }
  std::int64_t bytes() const;
  // Fetch ahead what find() will read, first the table, then the node.
  void prefetch_table(const Key16& key) const;
  void prefetch_node(const Key16& key) const;

 private:
  static constexpr int kChunkBits = 15;
  static constexpr Slot kChunkMask = (1U << kChunkBits) - 1;
  static constexpr int kSlotBits = 26;  // of a table entry: slot + 1; the rest is a tag
  static constexpr Slot kSlotMask = (1U << kSlotBits) - 1;

  static std::uint64_t hash(const Key16& key) {
    return (key.a ^ (key.b << 32 | key.b >> 32)) * 0x9E3779B97F4A7C15ULL;
  }
  std::size_t home(std::uint64_t h) const { return static_cast<std::size_t>(h >> shift_); }
  static std::uint32_t tag(std::uint64_t h) {
    return static_cast<std::uint32_t>(h >> 8) & ~kSlotMask;
  }
  void put(std::uint32_t entry, std::uint64_t h);
  void take_out(const Key16& key);
  void grow();

  std::vector<std::unique_ptr<Node[]>> chunks_;
  std::vector<std::uint32_t> table_;
  int shift_ = 0;
  std::size_t mask_ = 0;
  Slot end_ = 0, free_ = kNil;  // free nodes are chained by `parent`
  std::int64_t nodes_ = 0;
};

// Why keys that are gone went: the latest of them, overwritten by others in time.
class Ghosts {
 public:
  Ghosts() : cells_(std::size_t{1} << kBits) {}
  void add(const Key16& key, MissReason why) {
    cells_[place(key)] = (key.a & ~kWhyMask) | static_cast<std::uint64_t>(why);
  }
  MissReason find(const Key16& key) const {  // kNone: unknown
    const std::uint64_t cell = cells_[place(key)];
    return (cell & ~kWhyMask) == (key.a & ~kWhyMask) ? static_cast<MissReason>(cell & kWhyMask)
                                                     : MissReason::kNone;
  }
  std::int64_t bytes() const { return static_cast<std::int64_t>(cells_.size() * 8); }

 private:
  static constexpr int kBits = 17;
  static constexpr std::uint64_t kWhyMask = 15;
  static_assert(kMissReasons <= 16);
  static std::size_t place(const Key16& key) {
    return static_cast<std::size_t>((key.a ^ key.b) * 0x9E3779B97F4A7C15ULL >> (64 - kBits));
  }
  std::vector<std::uint64_t> cells_;
};

}  // namespace artery::kvstore
