#pragma once
// What a store counts: for metrics, GET /artery/cache and `inspect`. Plain values. Counters count
// since the process started; gauges are of now.

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "kvstore/types.h"

namespace artery::kvstore {

struct ClassStatus {
  std::int64_t records = 0, bytes = 0, tokens = 0;  // live
  std::int64_t segments = 0;
  std::int64_t hits = 0, expired = 0, evicted = 0;  // records
  double oldest_s = 0, median_age_s = 0;            // since the last use of live records
};

struct TenantStatus {
  std::string tenant;
  std::int64_t records = 0, bytes = 0, guaranteed_bytes = 0;
  std::int64_t quota_bytes = 0;  // 0: none
  bool encrypted = false;
};

enum class Health : std::uint8_t { kOk, kReadOnly, kSick };
std::string_view name(Health health);

struct StoreStatus {
  std::string folder;
  std::string io;  // "io_uring, registered buffers", "io_uring", "threads"
  Health health = Health::kOk;
  std::string trouble;  // the last error, as a sentence; empty: none
  std::string unused;   // why the engine keeps nothing here; empty: it does (the engine's)
  std::array<ClassStatus, kTtlClasses> classes{};
  std::vector<TenantStatus> tenants;
  std::int64_t bytes_max = 0, bytes_used = 0;  // of the folder's own files
  std::int64_t bytes_live = 0;                 // of records that can be hit
  std::int64_t guaranteed_bytes = 0;
  std::int64_t records = 0, segments = 0;
  std::int64_t index_bytes = 0;  // memory
  std::uint64_t epoch = 0;       // counts the opens for writing
  double open_s = 0;             // what start-up took
  // Counters.
  std::int64_t records_written = 0, bytes_written = 0;  // records, new ones
  std::int64_t records_copied = 0, bytes_copied = 0;    // forward, at reclaim
  std::int64_t bytes_to_disk = 0;                       // everything: footers, journals, padding
  std::int64_t records_read = 0, bytes_read = 0;
  std::int64_t segments_expired = 0, segments_reclaimed = 0;
  std::int64_t writes_refused_budget = 0, writes_refused_quota = 0, writes_refused_room = 0;
  std::int64_t checksum_failures = 0, token_mismatches = 0, version_mismatches = 0;
  std::int64_t io_errors = 0, reads_slow = 0, breaker_opened = 0, segments_lost = 0;
  std::int64_t recovered_records = 0, recovery_cuts = 0;  // at the last open
  std::int64_t unknown_files = 0;
  std::int64_t writes_queued = 0, reads_queued = 0;                        // now
  double read_bytes_per_s = 0, write_bytes_per_s = 0, read_latency_s = 0;  // measured lately
  // Bytes that went to the disk for each byte of new records; 0: none yet.
  double write_amplification() const {
    return bytes_written > 0
               ? static_cast<double>(bytes_to_disk) / static_cast<double>(bytes_written)
               : 0;
  }
};

}  // namespace artery::kvstore
