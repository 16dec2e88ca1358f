#pragma once
// What the store of prefix KV costs and gives on this machine: names, look-ups, checksums, a long
// prefix from RAM and from the disk beside a raw read of the same bytes, writes, and the start of a
// large store. Works in a folder of its own below the one it is given, and removes it. The calling
// thread does it, with the store's own.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/file_system.h"
#include "base/result.h"
#include "bench/spread.h"
#include "kvstore/store.h"

namespace artery::bench {

struct KvBenchConfig {
  std::string folder;                      // below it; is made
  int records = 391;                       // of the prefix: 100,096 tokens of 256 a record
  std::int64_t index_records = 1'000'000;  // among which the prefix is looked up
  std::int64_t open_bytes = std::int64_t{100} << 30;  // of sparse segments; 0: none
  int repetitions = 5;
  kvstore::StoreConfig::Io io = kvstore::StoreConfig::Io::kAuto;
  std::function<bool()> is_stopped = {};  // asked often, cheap; true: no more
};

// Records as large as DeepSeek-V4.1's: 890 bytes a token.
constexpr std::int64_t kKvBenchPageBytes = 14'240;
constexpr int kKvBenchRecordPages = 16;

struct KvBenchReport {
  std::int64_t tokens = 0, prefix_bytes = 0;
  Spread hash_tokens_per_s;  // chain keys
  Spread find_us;            // the longest match of the prefix, keys known
  std::int64_t index_records = 0, index_bytes = 0;
  Spread crc_gb_per_s;
  Spread ram_match_ms, ram_copy_ms;  // pages found and referenced; and copied out
  Spread write_mb_per_s;             // offered until all is synced and journaled
  Spread load_ms, raw_ms;            // taken in turns
  Spread load_over_raw;              // of each turn
  std::string io;
  double write_amplification = 0;
  Spread open_ms;
  std::int64_t open_bytes = 0, open_records = 0;
};

using KvBenchProgress = std::function<void(const std::string& what, int done, int total)>;

// kOutOfMemory: no room in the folder; kCancelled: config.is_stopped(); kIo, and what the store
// says. The folder is gone then too.
Result<KvBenchReport> bench_kv(
    const KvBenchConfig& config,
    FileSystem& files,
    const Clock& clock,
    const KvBenchProgress& progress
);

}  // namespace artery::bench
