#pragma once
// A RecordStore in memory for tests of the engine: keeps bytes like the real one, hands them over
// when and as far as a test says, and counts what was asked of it. Outlives engines, so a "restart"
// is a second engine on the same store. Any thread; one lock.

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "kvstore/record_store.h"

namespace artery::testing {

struct MemStoreBehaviour {
  int delay_polls = 0;  // polls without anything, before each piece of a load
  bool held = false;    // nothing comes before release() or the deadline
  // What load_seconds() predicts; bytes of loads under way count too.
  double seconds_per_byte = 0, seconds_per_load = 0;
  bool refuses = false;               // offers
  int refusals = 0;                   // so many offers are refused, then no more
  std::int64_t capacity_bytes = 0;    // of payload; the least recently used go. 0: no limit
  std::int64_t guaranteed_bytes = 0;  // that guarantee() gives away at most
  std::int64_t pieces_max = 0;        // a load ends after so many, for `early`; 0: whole
  kvstore::MissReason early = kvstore::MissReason::kSlow;
  bool disorder = false;  // pieces have another place than theirs: a broken store
};

struct MemStoreCounts {
  std::int64_t offers = 0, taken = 0, known = 0, refused = 0;
  std::int64_t finds = 0, touches = 0;
  std::int64_t loads = 0, cancels = 0, pieces = 0, ends = 0;
};

class MemRecordStore final : public kvstore::RecordStore {
 public:
  // `clock`: of deadlines and promises; outlives the store.
  explicit MemRecordStore(const Clock& clock = system_clock()) : clock_(clock) {}

  kvstore::SpaceId open_space(const kvstore::SpaceSpec& spec) override;
  kvstore::Found find(kvstore::SpaceId space, std::span<const ChainKey> keys) override;
  bool contains(kvstore::SpaceId space, const ChainKey& key) override;
  void touch(
      kvstore::SpaceId space,
      std::span<const ChainKey> keys,
      std::int64_t pages,
      kvstore::TtlClass ttl,
      std::int64_t guaranteed_until_s
  ) override;
  kvstore::Offer offer(
      const kvstore::RecordFacts& facts,
      std::span<const TokenId> ids,
      const std::function<void(std::span<std::byte>)>& fill
  ) override;
  std::int64_t guarantee(kvstore::SpaceId space, std::int64_t bytes, kvstore::TtlClass ttl)
      override;
  double load_seconds(std::int64_t bytes) const override;
  kvstore::LoadId load(
      kvstore::SpaceId space, std::vector<kvstore::Wanted> wanted, std::int64_t deadline_ns
  ) override;
  void cancel(kvstore::LoadId load) override;
  void poll(std::int64_t bytes_max, const std::function<void(const kvstore::Piece&)>& take)
      override;
  void set_notify(std::function<void()> notify) override;
  kvstore::StoreStatus status() const override;

  // --- for tests.
  void behave(const MemStoreBehaviour& behaviour);  // also lets go what was held, unless `held`
  MemStoreCounts counts() const;
  struct Record {
    kvstore::RecordFacts facts;
    std::vector<TokenId> ids;
    std::vector<std::byte> payload;
    std::uint64_t last_use = 0;
    int reads = 0;
    bool damaged = false;
  };
  std::vector<Record> records() const;
  std::vector<kvstore::SpaceSpec> spaces() const;
  // The next read of this record finds it damaged. False: there is none.
  bool damage(const ChainKey& key);
  void damage_all();
  void forget(const ChainKey& key, kvstore::MissReason why);
  int loads_under_way() const;

 private:
  struct Load {
    kvstore::SpaceId space = 0;
    std::vector<kvstore::Wanted> wanted;
    std::int64_t deadline_ns = 0;
    std::size_t next = 0;
    int waited = 0;
  };
  struct Handed {
    kvstore::Piece piece;
    std::vector<std::byte> bytes;
  };

  const Record* at(kvstore::SpaceId space, const ChainKey& key) const REQUIRES(mu_);
  // Pages from `begin` on that lead furthest, within one group of record_pages.
  std::vector<kvstore::Extent> group_chain(
      kvstore::SpaceId space, std::span<const ChainKey> keys, std::int64_t begin
  ) const REQUIRES(mu_);
  Handed next_piece(kvstore::LoadId id, Load& load) REQUIRES(mu_);
  void erase(const ChainKey& key, kvstore::MissReason why) REQUIRES(mu_);
  void evict() REQUIRES(mu_);

  const Clock& clock_;
  mutable Mutex mu_;
  MemStoreBehaviour behaviour_ GUARDED_BY(mu_);
  MemStoreCounts counts_ GUARDED_BY(mu_);
  std::vector<kvstore::SpaceSpec> spaces_ GUARDED_BY(mu_);
  std::unordered_map<ChainKey, Record, ChainKeyHash> records_ GUARDED_BY(mu_);
  std::unordered_map<ChainKey, kvstore::MissReason, ChainKeyHash> gone_ GUARDED_BY(mu_);
  std::map<kvstore::LoadId, Load> loads_ GUARDED_BY(mu_);
  kvstore::LoadId next_load_ GUARDED_BY(mu_) = 1;
  std::uint64_t tick_ GUARDED_BY(mu_) = 0;
  std::int64_t bytes_ GUARDED_BY(mu_) = 0;
  std::int64_t promised_ GUARDED_BY(mu_) = 0;
  Mutex notify_mu_;  // held during a call, so that set_notify waits for it
  std::function<void()> notify_ GUARDED_BY(notify_mu_);
};

}  // namespace artery::testing
