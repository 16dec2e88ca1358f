#pragma once
// The NVMe tier: records in append-only segment files of one folder (docs/formats/kv_segment.md),
// an index of them in memory, one thread that reads, writes, verifies, expires and reclaims.
//
// RecordStore's methods belong to the engine thread; status(), the maintenance verbs and the
// destructor to any one other. The folder's lock admits one writer. Disk errors never reach the
// caller: they are misses, and the tier goes out of service while they last (breaker: 3 failures,
// then 5 s, doubling to 300 s).

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "base/clock.h"
#include "base/file_system.h"
#include "base/result.h"
#include "kvstore/record_store.h"

namespace artery::kvstore {

class TenantKeys;  // tenant_keys.h: a key a tenant, for encryption at rest

struct StoreConfig {
  std::string folder;                    // made when absent, open to its owner only
  std::int64_t bytes_max = 0;            // cap of the folder's own files
  std::int64_t free_floor_bytes = 0;     // of the file system: below, nothing new is written
  std::int64_t record_bytes_max = 0;     // the largest record's payload; sizes buffers and segments
  std::int64_t segment_bytes = 0;        // 0: segment_bytes_for()
  std::int64_t buffer_bytes = 64 << 20;  // memory for reads and writes under way
  std::int64_t write_bytes_per_s = 0;    // 0: no limit but the queue's
  std::int64_t read_bytes_per_s = 0;
  double write_queue_s = 1;  // writes that would wait longer are refused
  bool read_only = false;
  bool encrypt = false;             // with tenant_keys
  std::string encryption_key_file;  // 32 bytes, or 64 hexadecimal digits
  // Maintenance of an encrypted folder without its key file: erasing and collecting need none.
  // Records offered all the same would be in plain text; without this, open() refuses.
  bool keyless = false;
  enum class Io { kAuto, kUring, kThreads } io = Io::kAuto;
  std::map<std::string, std::int64_t> quotas;  // tenant -> bytes
};

class DiskStore : public RecordStore {
 public:
  // Locks, recovers and opens the folder. kUnavailable: another process has it open for writing
  // (the message names its process id and the read-only flag); kBadFile: it is not a store, or of a
  // later version, or encrypted and no key file is given; kOutOfMemory: no room on the disk for the
  // cap's first segment; kIo.
  static Result<std::unique_ptr<DiskStore>> open(
      const StoreConfig& config, FileSystem& files, const Clock& clock
  );
  ~DiskStore() override = default;  // writes what is queued, footers or journal, and unlocks

  // The secret at the root of every chain key in this folder: made with the store, 32 bytes.
  virtual const std::string& secret() const = 0;
  // Waits until everything offered so far is on the disk, synced and journaled.
  virtual Result<> flush() = 0;
  // Erases: forgets the tenant's records, destroys its key, overwrites the bytes where there is
  // none. Returns the bytes freed.
  virtual Result<std::int64_t> drop_tenant(const std::string& tenant) = 0;
  // Expires and reclaims now; returns the bytes freed.
  virtual Result<std::int64_t> collect() = 0;
  virtual void set_quotas(const std::map<std::string, std::int64_t>& quotas) = 0;
};

}  // namespace artery::kvstore
