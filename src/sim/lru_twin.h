#pragma once
// The yardstick of `simulate cache`: records one by one in a list by last use, the tail of a chain
// older than its head, the oldest one out. What no disk does; no segments, no copies. One thread.

#include <cstdint>
#include <span>
#include <vector>

#include "base/chain_key.h"
#include "kvstore/index.h"

namespace artery::sim {

class LruTwin {
 public:
  // At most `records_max` records, none unused for longer than `ttl_s`.
  LruTwin(std::int64_t records_max, std::int64_t ttl_s)
      : records_max_(records_max), ttl_s_(ttl_s) {}

  // Records from the first on that are there at `now_s`.
  std::int64_t find(std::span<const kvstore::Key16> keys, std::int64_t now_s) const;
  // All of them are used now, and there from now on. Those that were not: their number.
  std::int64_t use(std::span<const kvstore::Key16> keys, std::int64_t now_s);

  std::int64_t records() const { return index_.nodes(); }
  std::int64_t evicted() const { return evicted_; }

 private:
  struct Link {
    kvstore::Slot newer = kvstore::kNil, older = kvstore::kNil;
    std::int64_t last_use = 0;
  };
  void take_out(kvstore::Slot slot);
  void put_newest(kvstore::Slot slot);

  std::int64_t records_max_, ttl_s_, evicted_ = 0;
  kvstore::Index index_;
  std::vector<Link> links_;  // by slot
  kvstore::Slot newest_ = kvstore::kNil, oldest_ = kvstore::kNil;
};

}  // namespace artery::sim
