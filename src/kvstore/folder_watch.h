#pragma once
// Looks twice a second, from a thread of its own, at what others do to a store's folder while it is
// open: whether it is still there and ours, which segments were deleted one by one, and, for a
// reader, which tenants its writer has dropped. Tells the store thread, and whoever keeps copies of
// a dropped tenant's records (RecordStore::set_on_erased()). What hangs in a stat holds up nobody.

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <thread>

#include "base/mutex.h"
#include "kvstore/folder_guard.h"
#include "kvstore/store_state.h"
#include "kvstore/store_thread.h"
#include "kvstore/tenant_keys.h"

namespace artery::kvstore {

class FolderWatch {
 public:
  // All outlive it. `keys`: null without encryption. Looks for dropped tenants where the store is
  // read-only.
  FolderWatch(StoreThread& store, const FolderGuard& folder, TenantKeys* keys);
  ~FolderWatch();
  FolderWatch(const FolderWatch&) = delete;
  FolderWatch& operator=(const FolderWatch&) = delete;

 private:
  void main();
  void look();
  void look_at_names();
  void look_at_tenants();
  std::set<std::string> tenants_in_file();

  StoreThread& store_;
  const FolderGuard& guard_;
  TenantKeys* const keys_;
  const std::string folder_;
  std::string trouble_;
  std::optional<ChangeMark> names_, keys_file_, spaces_file_;
  int lists_left_ = 0;
  std::set<std::string> tenants_;  // with lines in spaces.json
  Mutex mutex_;
  CondVar stopped_;
  bool is_stopping_ GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace artery::kvstore
