#pragma once
// A tier of stored KV behind the RAM prefix cache, as the engine sees it: opaque records named by
// chain keys (base/chain_key.h). kvstore::DiskStore is the NVMe tier, testing::MemRecordStore the
// fake; shared stores and peers come behind the same interface.
//
// A record holds the global KV of `pages` consecutive whole pages; `key` is the chain key at its
// end, `parent` the one at its begin (the root for the first). Records of record_pages pages begin
// at multiples of record_pages; a shorter one, a tail record, ends a prefix unit. Whatever fails is
// a miss with a reason, never an error of a request (invariant 3).
//
// Called by the engine thread only, but for status(), which any thread may call.

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/chain_key.h"
#include "base/ids.h"
#include "kvstore/status.h"
#include "kvstore/types.h"

namespace artery::kvstore {

// Everything of one namespace: what decides the bytes, and whom they belong to. Chain keys of two
// spaces never meet, because the namespace is in their root; a tenant's spaces are dropped
// together.
struct SpaceSpec {
  std::string
      identity;  // canonical text: weights, config, layout version, KV type, numerics, adapter
  std::string tenant;  // "": the one tenant of a server without keys
  std::string model;   // to show
  std::int64_t page_bytes = 0;
  int record_pages = 16;
};
using SpaceId = std::int32_t;  // of one process

enum class RecordKind : std::uint8_t {
  kGlobal,
  kWindow,  // the window pages before a page boundary, under a key of their own
};

struct RecordFacts {
  SpaceId space = 0;
  RecordKind kind = RecordKind::kGlobal;
  TtlClass ttl = TtlClass::kHour;
  ChainKey key{};
  ChainKey parent{};  // kWindow: the key of the boundary, so that it goes with what it belongs to
  int pages = 0;
  std::int64_t guaranteed_until_s = 0;  // unix seconds, as guarantee() gave it; 0: no promise
};

// A part of a prompt that is one record.
struct Extent {
  std::int64_t first_page = 0;
  int pages = 0;
};

struct Found {
  std::vector<Extent> extents;          // from page 0 on, without a gap
  std::int64_t pages = 0;               // sum
  MissReason miss = MissReason::kNone;  // of the page after them; kNone: all pages asked for
};

// One record to load, with the token ids it must hold.
struct Wanted {
  ChainKey key{};
  RecordKind kind = RecordKind::kGlobal;
  int pages = 0;
  std::vector<TokenId> ids;  // pages * kPageTokens; kWindow: the last page's
};
using LoadId = std::uint64_t;

// What poll() hands over: a record read, compared and verified, or the end of its load.
struct Piece {
  LoadId load = 0;
  std::size_t index = 0;               // of Wanted; pieces of a load come in order
  std::span<const std::byte> payload;  // pages * page_bytes, until the call returns; empty: the end
  bool is_last = false;                // nothing more comes of this load
  MissReason why = MissReason::kNone;  // of the end: what stopped it early
};

// What a record takes on a disk, as guarantee() counts it: header, ids, payload, whole blocks
// (docs/formats/kv_segment.md).
constexpr std::int64_t stored_bytes(std::int64_t ids, std::int64_t payload_bytes) {
  constexpr std::int64_t kHeader = 512, kBlockBytes = 4096;
  return (kHeader + 4 * ids + payload_bytes + kBlockBytes - 1) / kBlockBytes * kBlockBytes;
}

enum class Offer : std::uint8_t {
  kTaken,    // will be written in the background
  kKnown,    // is there, or on its way
  kRefused,  // budget, quota, no room, read-only, or a sick disk; counted
};

class RecordStore {
 public:
  virtual ~RecordStore() = default;

  // The same spec gives the same id. Cheap when known; a new one may cost a small file.
  virtual SpaceId open_space(const SpaceSpec& spec) = 0;

  // The longest prefix of `keys` (chain keys of consecutive pages from page 0 on) that is there.
  // Does not read the disk.
  virtual Found find(SpaceId space, std::span<const ChainKey> keys) = 0;
  virtual bool contains(SpaceId space, const ChainKey& key) = 0;
  // The first `pages` pages were used now: they live on from here, at least as `ttl`, as far as
  // they are there. `guaranteed_until_s` as guarantee() gave it raises their promise, never lowers
  // it (0: none): a promise covers the records that a prompt finds as well as those it adds. Cheap.
  virtual void touch(
      SpaceId space,
      std::span<const ChainKey> keys,
      std::int64_t pages,
      TtlClass ttl,
      std::int64_t guaranteed_until_s
  ) = 0;

  // `fill` is called before this returns, at most once, with pages * page_bytes bytes to write.
  virtual Offer offer(
      const RecordFacts& facts,
      std::span<const TokenId> ids,
      const std::function<void(std::span<std::byte>)>& fill
  ) = 0;
  // Promises that `bytes` of the space's records, offered or touched with the answer, are kept
  // until the end of `ttl` from now, whatever else comes (but a lost disk). Unix seconds, or 0:
  // refused, because promises would take more than their share of the store or of the tenant's
  // quota.
  virtual std::int64_t guarantee(SpaceId space, std::int64_t bytes, TtlClass ttl) = 0;

  // Predicted seconds until `bytes` are loaded, from what was measured and what waits. Infinite
  // while the tier is out of service.
  virtual double load_seconds(std::int64_t bytes) const = 0;
  // Reads records in order, in the background. `deadline_ns` (Clock::monotonic_ns): it ends then
  // with kSlow, with what has come so far. Every load ends with a piece that is_last.
  virtual LoadId load(SpaceId space, std::vector<Wanted> wanted, std::int64_t deadline_ns) = 0;
  // No more pieces of this load come. Unknown ids are ignored.
  virtual void cancel(LoadId load) = 0;
  // Hands over what has come, until about `bytes_max` of payload.
  virtual void poll(std::int64_t bytes_max, const std::function<void(const Piece&)>& take) = 0;
  // Called from any thread, without locks held, when poll() has something new. Set once, before the
  // first load; cleared with {}: no call is under way when this returns.
  virtual void set_notify(std::function<void()> notify) = 0;

  // Called from any thread, without locks held, once what a tenant had here has been erased: copies
  // of it are to go as well. Set once; cleared with {}: no call is under way when this returns.
  virtual void set_on_erased(std::function<void(const std::string& tenant)> /*on_erased*/) {}

  virtual StoreStatus status() const = 0;
};

}  // namespace artery::kvstore
