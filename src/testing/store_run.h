#pragma once
// A recorded run on a store: growing prefixes of several spaces and classes, offered, touched and
// loaded in an order that a seed decides. Payloads are a function of the record's key, so that any
// byte which belongs to another record, or to none, is seen. One thread.

#include <cstdint>
#include <string>
#include <vector>

#include "kvstore/record_store.h"
#include "testing/seq_random.h"
#include "testing/sim_clock.h"

namespace artery::testing {

void fill_payload(const ChainKey& key, std::span<std::byte> out);
bool is_payload_of(const ChainKey& key, std::span<const std::byte> payload);

// What came of looking for records.
struct StoreTally {
  std::int64_t wanted = 0;   // records asked for
  std::int64_t hits = 0;     // came whole, with their own bytes
  std::int64_t wrong = 0;    // came with other bytes: must stay 0
  std::int64_t unended = 0;  // loads without an end in time, or out of order
  std::int64_t silent = 0;   // misses without a reason
  std::vector<std::int64_t> misses = std::vector<std::int64_t>(kvstore::kMissReasons);
  void add(const StoreTally& other);
  std::int64_t missed(kvstore::MissReason why) const {
    return misses[static_cast<std::size_t>(why)];
  }
  std::string text() const;
};

class StoreRun {
 public:
  struct Record {
    kvstore::RecordKind kind = kvstore::RecordKind::kGlobal;
    kvstore::Extent extent;  // kWindow: pages of its payload
    bool taken = false;      // by offer()
    bool durable = false;    // flushed after that
    bool expected = false;   // see expect_durable()
  };
  struct Prefix {
    std::size_t space = 0;
    kvstore::TtlClass ttl = kvstore::TtlClass::kHour;
    std::uint64_t seed = 0;  // of its token ids
    std::vector<TokenId> ids;
    std::vector<ChainKey> keys;
    std::vector<Record> records;
  };

  StoreRun(std::uint64_t seed, SimClock& clock);
  // Before the first step, and again for every store that is opened: ids of spaces, and keys, which
  // hang on the store's secret.
  void bind(kvstore::RecordStore& store, const std::string& secret);
  // One verb of the run: new prefix, growth, touch, load, or time passing.
  void step(kvstore::RecordStore& store);
  void steps(kvstore::RecordStore& store, int count) {
    for (int i = 0; i < count; ++i) step(store);
  }
  // A prefix of `pages` pages, offered whole. Its index.
  std::size_t add(
      kvstore::RecordStore& store, std::size_t space, kvstore::TtlClass ttl, std::int64_t pages
  );
  // After a flush that went well: everything taken so far must survive a crash.
  void mark_durable();
  // Of what is durable, expect what `store` says is alive; returns how many records.
  std::int64_t expect_durable(kvstore::RecordStore& store);
  std::int64_t expect_all(kvstore::RecordStore& store);  // of everything taken
  // Finds and loads every prefix and window; counts into `hits` and so on all records, and returns
  // how many of the expected ones came.
  std::int64_t check(kvstore::RecordStore& store, StoreTally& tally);
  StoreTally load(kvstore::RecordStore& store, const Prefix& prefix);
  StoreTally loads() const { return loads_; }  // made by step()

  static std::size_t spaces();
  static kvstore::SpaceSpec spec(std::size_t space);
  static std::int64_t record_payload_max();
  ChainKey key_of(const Prefix& prefix, const Record& record) const;
  const std::vector<Prefix>& prefixes() const { return prefixes_; }
  std::int64_t taken() const { return taken_; }
  std::int64_t refused() const { return refused_; }
  std::string digest() const;  // of everything offered: equal runs, equal texts

 private:
  void grow(kvstore::RecordStore& store, Prefix& prefix, std::int64_t pages);
  void offer(kvstore::RecordStore& store, const Prefix& prefix, Record& record);
  void offer_window(kvstore::RecordStore& store, Prefix& prefix);
  void load_records(
      kvstore::RecordStore& store,
      const Prefix& prefix,
      const std::vector<const Record*>& records,
      StoreTally& tally,
      std::vector<const Record*>& came
  );
  void load_prefix(
      kvstore::RecordStore& store,
      const Prefix& prefix,
      StoreTally& tally,
      std::vector<const Record*>& came
  );
  template <typename Match>
  std::int64_t expect(kvstore::RecordStore& store, Match match);

  SeqRandom random_;
  SimClock& clock_;
  std::vector<kvstore::SpaceId> space_ids_;
  std::vector<ChainKey> roots_;
  std::vector<Prefix> prefixes_;
  StoreTally loads_;
  std::int64_t taken_ = 0, refused_ = 0;
};

}  // namespace artery::testing
