#include "kvstore/folder_watch.h"

#include <chrono>
#include <utility>

namespace artery::kvstore {
namespace {

constexpr auto kLook = std::chrono::milliseconds(500);
constexpr int kLists = 3;  // after a change: a file system's clock may tick seldom
constexpr std::size_t kSpacesBytesMax = 256u << 20;

}  // namespace

FolderWatch::FolderWatch(StoreThread& store, const FolderGuard& folder, TenantKeys* keys)
    : store_(store), guard_(folder), keys_(keys), folder_(store.core().config.folder) {
  if (store.core().config.read_only) {
    // From what open() has read on; what changed since then is seen at the first look.
    for (SpaceId id = 0; id < store.core().spaces->count(); ++id)
      tenants_.insert(store.core().spaces->spec(id).tenant);
  }
  thread_ = std::thread([this] { main(); });
}

FolderWatch::~FolderWatch() {
  {
    const MutexLock lock(mutex_);
    is_stopping_ = true;
  }
  stopped_.notify_all();
  thread_.join();
}

void FolderWatch::main() {
  while (true) {
    look();
    const MutexLock lock(mutex_);
    if (!is_stopping_) stopped_.wait_for(mutex_, kLook);
    if (is_stopping_) return;
  }
}

void FolderWatch::look() {
  const FolderGuard::View view = guard_.look();
  if (view.trouble != trouble_) {
    trouble_ = view.trouble;
    store_.post([text = view.trouble](StoreThread& store) { store.folder_seen(text); });
  }
  if (view.state != FolderGuard::State::kOurs) return;
  look_at_names();
  if (store_.core().config.read_only) look_at_tenants();
}

void FolderWatch::look_at_names() {
  const auto mark = change_mark(folder_);
  if (mark != std::exchange(names_, mark)) lists_left_ = kLists;
  if (lists_left_ == 0) return;
  --lists_left_;
  auto names = guard_.list(folder_);
  if (!names) return;
  store_.post([list = names.take()](StoreThread& store) { store.names_seen(list); });
}

std::set<std::string> FolderWatch::tenants_in_file() {
  const auto text = guard_.read(folder_ + "/spaces.json", kSpacesBytesMax);
  if (!text) return tenants_;  // it will be there again
  std::set<std::string> out;
  int damaged = 0;
  for (const SpaceSpec& spec : parse_spaces(*text, damaged)) out.insert(spec.tenant);
  return damaged == 0 ? out : tenants_;
}

// A writer destroys the key first, and takes the tenant's lines away last.
void FolderWatch::look_at_tenants() {
  std::set<std::string> dropped;
  const auto keys_mark = keys_ != nullptr ? change_mark(folder_ + "/keys.json") : std::nullopt;
  if (keys_mark != std::exchange(keys_file_, keys_mark)) {
    dropped = keys_->reload();
    if (!dropped.empty())
      store_.post([](StoreThread& store) { store.core().cipher->forget_keys(); });
  }
  const auto spaces_mark = change_mark(folder_ + "/spaces.json");
  if (spaces_mark != std::exchange(spaces_file_, spaces_mark)) {
    std::set<std::string> now = tenants_in_file();
    for (const std::string& tenant : tenants_)
      if (!now.contains(tenant)) dropped.insert(tenant);
    tenants_ = std::move(now);
  }
  for (const std::string& tenant : dropped) {
    StoreState& state = *store_.core().state;
    {
      const MutexLock lock(state.mu);
      (void)state.catalog.drop_tenant(tenant);
    }
    state.tell_erased(tenant);
  }
}

}  // namespace artery::kvstore
