#pragma once
// DiskStore as the engine thread sees it: look-ups and placing in the catalog under its lock, bytes
// into slots, everything else posted to the store thread. Threads as store.h says.

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>

#include "kvstore/folder_guard.h"
#include "kvstore/folder_watch.h"
#include "kvstore/orders.h"
#include "kvstore/store.h"
#include "kvstore/store_core.h"
#include "kvstore/store_state.h"
#include "kvstore/store_thread.h"
#include "kvstore/tenant_keys.h"

namespace artery::kvstore {

// What open() has put together.
struct OpenedStore {
  std::unique_ptr<FileLock> lock;  // null: read-only
  std::unique_ptr<FolderGuard> files;
  std::unique_ptr<TenantKeys> keys;  // null: no encryption
  std::string secret;
  std::unique_ptr<StoreCore> core;
};

class DiskStoreImpl final : public DiskStore {
 public:
  explicit DiskStoreImpl(OpenedStore opened);
  ~DiskStoreImpl() override;

  SpaceId open_space(const SpaceSpec& spec) override;
  Found find(SpaceId space, std::span<const ChainKey> keys) override;
  bool contains(SpaceId space, const ChainKey& key) override;
  void touch(
      SpaceId space,
      std::span<const ChainKey> keys,
      std::int64_t pages,
      TtlClass ttl,
      std::int64_t guaranteed_until_s
  ) override;
  Offer offer(
      const RecordFacts& facts,
      std::span<const TokenId> ids,
      const std::function<void(std::span<std::byte>)>& fill
  ) override;
  std::int64_t guarantee(SpaceId space, std::int64_t bytes, TtlClass ttl) override;
  double load_seconds(std::int64_t bytes) const override;
  LoadId load(SpaceId space, std::vector<Wanted> wanted, std::int64_t deadline_ns) override;
  void cancel(LoadId load) override;
  void poll(std::int64_t bytes_max, const std::function<void(const Piece&)>& take) override;
  void set_notify(std::function<void()> notify) override;
  void set_on_erased(std::function<void(const std::string&)> on_erased) override;
  StoreStatus status() const override;

  const std::string& secret() const override { return secret_; }
  Result<> flush() override { return thread_.flush(); }
  Result<std::int64_t> drop_tenant(const std::string& tenant) override;
  Result<std::int64_t> collect() override { return thread_.collect(); }
  void set_quotas(const std::map<std::string, std::int64_t>& quotas) override;

 private:
  bool knows(SpaceId space) const;
  bool may_write(std::int64_t bytes);
  Offer refuse(std::int64_t StoreStatus::* counter);
  void promise(const RecordFacts& facts);
  std::optional<Offer> place(const RecordFacts& facts, WriteJob& job, std::int64_t bytes);
  std::optional<ReadyPiece> next_ready();
  void end_overdue(const std::function<void(const Piece&)>& take);

  const std::unique_ptr<FileLock> lock_;  // given back last
  const std::unique_ptr<FolderGuard> files_;
  const std::unique_ptr<TenantKeys> keys_;
  const std::string secret_;
  const Clock& clock_;
  const StoreConfig config_;
  Spaces& spaces_;
  const std::shared_ptr<StoreState> state_;
  // The engine thread's.
  std::unordered_map<LoadId, std::int64_t> loads_;  // deadlines of those that have not ended
  LoadId next_load_ = 1;
  StoreThread thread_;                  // stops first
  std::unique_ptr<OrderDesk> orders_;   // null: read-only. Asks the store thread
  std::unique_ptr<FolderWatch> watch_;  // null: not on the machine's own file system
};

}  // namespace artery::kvstore
