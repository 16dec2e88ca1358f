#pragma once
// What a cache of this size and these rules would have hit on a recorded workload: the store's own
// Catalog under a virtual clock, with segments that exist only in it, or the LRU twin it is
// measured by. Pure functions of their input.

#include <array>
#include <cstdint>
#include <functional>
#include <optional>

#include "base/result.h"
#include "kvstore/types.h"
#include "sim/cache_trace.h"

namespace artery::sim {

enum class Policy { kSegments, kLru };

struct CacheSimConfig {
  Policy policy = Policy::kSegments;
  std::int64_t record_tokens = 0;  // multiple of the trace's blocks; 0: 256, or a block
  std::int64_t bytes_per_token = 890;
  std::int64_t capacity_bytes = 0;       // 0: unlimited
  std::int64_t segment_bytes = 0;        // 0: segment_bytes_for()
  std::optional<kvstore::TtlClass> ttl;  // nullopt: agents 72 h, known chats 7 d, others 1 h
  bool tails = false;                    // also writes the tail record at a prompt's end
};

struct CacheSimResult {
  std::int64_t requests = 0, input_tokens = 0, hit_tokens = 0;
  std::array<std::int64_t, kvstore::kMissReasons> missed{};         // requests by reason
  std::array<std::int64_t, kvstore::kMissReasons> missed_tokens{};  // all that was not hit
  std::int64_t records_written = 0, bytes_written = 0;
  std::int64_t records_copied = 0, bytes_copied = 0;
  std::int64_t records_refused = 0;
  std::int64_t segment_bytes = 0, peak_bytes = 0;
  std::int64_t segments_expired = 0, segments_reclaimed = 0, records_evicted = 0;

  double hit_share() const { return share(hit_tokens); }
  double write_amplification() const {
    return bytes_written > 0 ? static_cast<double>(bytes_written + bytes_copied) /
                                   static_cast<double>(bytes_written)
                             : 0;
  }
  // Of what the input tokens cost, where a hit costs 1/50.
  double saved_share() const { return share(hit_tokens) * (1 - 1.0 / 50); }

 private:
  double share(std::int64_t tokens) const {
    return input_tokens > 0 ? static_cast<double>(tokens) / static_cast<double>(input_tokens) : 0;
  }
};

// Tokens of a record as `config` wants them, or kInvalidArgument.
Result<std::int64_t> record_tokens(const CacheTrace& trace, const CacheSimConfig& config);
// On the disk, with its header and padding.
std::int64_t record_disk_bytes(std::int64_t tokens, std::int64_t bytes_per_token);

// Bytes on the disk of all different whole records of the trace.
Result<std::int64_t> distinct_bytes(const CacheTrace& trace, const CacheSimConfig& config);

// `progress(done, total)` in requests. kInvalidArgument: sizes that do not go together.
Result<CacheSimResult> simulate_cache(
    const CacheTrace& trace,
    const CacheSimConfig& config,
    const std::function<void(std::uint64_t, std::uint64_t)>& progress = {}
);

}  // namespace artery::sim
