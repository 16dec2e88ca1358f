#pragma once
// The KV store behind the RAM prefix cache: its flags, what they mean together, and how it is
// opened for a model. Main thread, or the one that loads.

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/file_system.h"
#include "base/result.h"
#include "cli/flags.h"
#include "cli/options.h"
#include "kvstore/store.h"
#include "model/kv_layout.h"
#include "server/api_key.h"

namespace artery::cli {

// Of `serve`; the first two of `doctor` too.
std::vector<Flag> kv_flags();
Flag kv_dir_flag();
Flag kv_max_bytes_flag();

struct KvWish {
  // Without sizes that are to be chosen; no folder: no store. record_bytes_max comes from the
  // model.
  kvstore::StoreConfig store;
  bool is_default = false;  // nobody named the folder: what is wrong with it is no error
  std::optional<kvstore::TtlClass> ttl;  // of requests that ask for none; empty: by behaviour
  bool windows_in_store = false;
  double window_ttl_s = 180;
  int swa_replay = -1;

  bool on() const { return !store.folder.empty(); }
};
// kInvalidArgument: flags that contradict each other.
Result<KvWish> kv_wish(const Options& options);

// The folder that --kv-dir names; empty: none. kInvalidArgument: it names nothing.
Result<std::string> kv_folder(const Options& options);

// Bytes of each tenant's records at most, the largest of its keys; 0: no limit, which takes back an
// earlier one.
std::map<std::string, std::int64_t> kv_quotas(const std::vector<server::ApiKey>& keys);

// What is left to choose: of `free_bytes` on the disk and `held_bytes` in the folder already a
// tenth, at most 32 GiB; of a disk of `disk_bytes` a twentieth is left free, at least 1 GiB.
std::int64_t kv_bytes_max(std::int64_t free_bytes, std::int64_t held_bytes);
std::int64_t kv_free_floor(std::int64_t disk_bytes);
// Fills in those two where they are 0. Looks at the folder, or at where it will be.
void choose_sizes(kvstore::StoreConfig& config);

// Memory that the store will take: buffers, and the index of a folder that is full.
std::int64_t kv_memory_bytes(const kvstore::StoreConfig& config, const model::KvLayout& layout);
// Payload of a model's largest record.
std::int64_t record_bytes_max(const model::KvLayout& layout);

// Null, and a line in the log that says why, when the default folder cannot be used. Errors of
// DiskStore::open() otherwise, naming the flag; kOutOfMemory too where what is free on the disk is
// too little for a cap that nobody has named.
Result<std::shared_ptr<kvstore::DiskStore>> open_kv_store(
    const KvWish& wish, const model::KvLayout& layout, FileSystem& files, const Clock& clock
);

}  // namespace artery::cli
