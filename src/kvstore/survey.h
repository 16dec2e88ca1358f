#pragma once
// A store's folder as its files tell it, for `inspect`, `kv verify` and tests: read only, also
// beside a server that has it open. Built on what a server does at its start (recovery.h) and on
// the production index; nothing is parsed twice. One thread.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/file_system.h"
#include "base/result.h"
#include "kvstore/recovery.h"
#include "kvstore/spaces.h"
#include "kvstore/status.h"
#include "kvstore/tenant_keys.h"

namespace artery::kvstore {

struct SpaceLine {
  SpaceSpec spec;
  std::int64_t records = 0, bytes = 0;  // alive, on disk
};

struct Survey {
  // Gauges only, of records that a request can hit now; counters stay 0.
  StoreStatus status;
  std::vector<SpaceLine> spaces;
  SuperBlock super;
  bool is_live = false;       // a process has it open for writing
  std::string holder;         // what that one's lock says
  bool is_encrypted = false;  // there is a keys.json
  std::int64_t sealed_segments = 0;
  std::int64_t disk_records = 0;                            // whole and in segments, hit or expired
  std::int64_t encrypted_records = 0;                       // of them
  std::int64_t expired_records = 0, expired_bytes = 0;      // still in segments
  std::int64_t unknown_records = 0, unknown_bytes = 0;      // of spaces that spaces.json lacks
  std::int64_t index_files_bytes = 0;                       // journals and super block
  std::int64_t oldest_written_s = 0, newest_written_s = 0;  // unix seconds; 0: no records
  std::int64_t disk_free_bytes = 0;                         // of the file system
  bool is_disk_read_only = false;
  std::vector<std::string> troubles;       // sentences: damage that its files show
  std::vector<std::string> unknown_files;  // names
};

// Has what a store's folder has: a super block, a segment or a journal.
bool is_store_folder(const std::string& folder, const FileSystem& files);

// kBadFile: not a store, or of a later version; kNotFound, kIo. `now_s`: unix seconds.
Result<Survey> survey_store(const std::string& folder, FileSystem& files, std::int64_t now_s);

struct VerifyOptions {
  std::int64_t now_s = 0;      // unix seconds
  TenantKeys* keys = nullptr;  // null: encrypted records are checked by their checksums only
  // Called now and then with bytes; false: stop, kCancelled.
  std::function<bool(std::int64_t done, std::int64_t total)> progress = {};
  // Waits about 2 s: what a running server changed under the reader is looked at again after it.
  std::function<void()> pause = {};
};

struct Damage {
  SegmentId segment = 0;
  std::int64_t offset = 0;  // of the record, bytes
  std::string what;         // half a sentence
};

struct Verified {
  Survey survey;
  std::int64_t records = 0, bytes = 0;   // read and checked, expired ones too
  std::int64_t records_without_key = 0;  // encrypted for a tenant that has no key any more
  std::int64_t records_unopened = 0;     // encrypted, and no keys were given to try
  std::vector<Damage> damaged;           // records
  bool is_clean() const { return damaged.empty() && survey.troubles.empty(); }
};

// Reads every record of the index: header against footer or journal, both checksums, sizes, with
// keys the tag of the encryption. Records that an erasure which was cut off has overwritten are
// damage that names the tenant. Errors as survey_store().
Result<Verified> verify_store(
    const std::string& folder, FileSystem& files, const VerifyOptions& options
);

}  // namespace artery::kvstore
