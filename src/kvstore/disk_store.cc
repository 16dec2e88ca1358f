#include "kvstore/disk_store.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "kvstore/record_format.h"

namespace artery::kvstore {
namespace {

constexpr std::int64_t kOverdueNs = 1'000'000'000;

std::int64_t unix_s(const Clock& clock) { return clock.unix_ms() / 1000; }

}  // namespace

DiskStoreImpl::DiskStoreImpl(OpenedStore opened)
    : lock_(std::move(opened.lock)),
      files_(std::move(opened.files)),
      keys_(std::move(opened.keys)),
      secret_(std::move(opened.secret)),
      clock_(opened.core->clock),
      config_(opened.core->config),
      spaces_(*opened.core->spaces),
      state_(opened.core->state),
      thread_(std::move(opened.core)) {
  thread_.start();
  if (files_->is_holding()) watch_ = std::make_unique<FolderWatch>(thread_, *files_, keys_.get());
  if (config_.read_only) return;
  orders_ = std::make_unique<OrderDesk>(
      config_.folder,
      thread_.core().files,
      clock_,
      [this](const Order& order) {
        return order.verb == Order::Verb::kCollect ? collect() : drop_tenant(order.tenant);
      }
  );
}

// First, so that an order under way gets its answer and the desk can close.
DiskStoreImpl::~DiskStoreImpl() { thread_.stop(); }

bool DiskStoreImpl::knows(SpaceId space) const { return space >= 0 && space < spaces_.count(); }

SpaceId DiskStoreImpl::open_space(const SpaceSpec& spec) {
  const SpaceId space = spaces_.add(spec);
  const MutexLock lock(state_->mu);
  state_->catalog.add_space(space, spec.tenant, spec.record_pages);
  return space;
}

Found DiskStoreImpl::find(SpaceId space, std::span<const ChainKey> keys) {
  Found found;
  if (!knows(space) || state_->is_out.load(std::memory_order_relaxed)) {
    found.miss = keys.empty() ? MissReason::kNone : MissReason::kBudget;
    return found;
  }
  const MutexLock lock(state_->mu);
  return state_->catalog.find(space, keys, unix_s(clock_));
}

bool DiskStoreImpl::contains(SpaceId space, const ChainKey& key) {
  if (!knows(space)) return false;
  const MutexLock lock(state_->mu);
  return state_->catalog.contains(key, unix_s(clock_));
}

void DiskStoreImpl::touch(
    SpaceId space,
    std::span<const ChainKey> keys,
    std::int64_t pages,
    TtlClass ttl,
    std::int64_t guaranteed_until_s
) {
  if (!knows(space) || pages <= 0) return;
  keys = keys.first(std::min(keys.size(), static_cast<std::size_t>(pages)));
  const std::int64_t now = unix_s(clock_);
  const MutexLock lock(state_->mu);
  state_->catalog.touch(space, keys, pages, ttl, guaranteed_until_s, now);
  if (config_.read_only) return;
  for (const Extent& extent : state_->catalog.find(space, keys, now).extents) {
    state_->touched.insert(keys[static_cast<std::size_t>(extent.first_page + extent.pages - 1)]);
  }
}

Offer DiskStoreImpl::refuse(std::int64_t StoreStatus::* counter) {
  const MutexLock lock(state_->mu);
  ++(state_->counts.*counter);
  return Offer::kRefused;
}

// The queue of writes holds what the disk takes in write_queue_s, but always one record.
bool DiskStoreImpl::may_write(std::int64_t bytes) {
  if (state_->is_out.load(std::memory_order_relaxed)) return false;
  if (state_->writes_out.load(std::memory_order_relaxed)) return false;
  double speed = state_->write_bytes_per_s.load(std::memory_order_relaxed);
  if (config_.write_bytes_per_s > 0) {
    speed = std::min(speed, static_cast<double>(config_.write_bytes_per_s));
  }
  const std::int64_t queued = state_->bytes_to_write.load(std::memory_order_relaxed);
  return queued == 0 || static_cast<double>(queued + bytes) <= config_.write_queue_s * speed;
}

// A promise covers what was there before, too.
void DiskStoreImpl::promise(const RecordFacts& facts) {
  if (config_.read_only || facts.guaranteed_until_s == 0) return;
  const MutexLock lock(state_->mu);
  if (state_->catalog.promise(facts.key, facts.guaranteed_until_s, unix_s(clock_))) {
    state_->touched.insert(facts.key);
  }
}

// nullopt: it has a place.
std::optional<Offer> DiskStoreImpl::place(
    const RecordFacts& facts, WriteJob& job, std::int64_t bytes
) {
  const MutexLock lock(state_->mu);
  job.placed = state_->catalog.place(facts, bytes, unix_s(clock_));
  switch (job.placed.refusal) {
    case Catalog::Refusal::kNone:
      return std::nullopt;
    case Catalog::Refusal::kKnown:  // on its way: the journal gets it with its promise
      return Offer::kKnown;
    case Catalog::Refusal::kQuota:
      ++state_->counts.writes_refused_quota;
      break;
    case Catalog::Refusal::kRoom:
      ++state_->counts.writes_refused_room;
      state_->wants_room.store(true, std::memory_order_relaxed);
      break;
  }
  return Offer::kRefused;
}

Offer DiskStoreImpl::offer(
    const RecordFacts& facts,
    std::span<const TokenId> ids,
    const std::function<void(std::span<std::byte>)>& fill
) {
  if (!knows(facts.space) || facts.pages <= 0 ||
      ids.size() > static_cast<std::size_t>(kRecordIdsMax)) {
    return refuse(&StoreStatus::writes_refused_room);
  }
  if (contains(facts.space, facts.key)) {
    promise(facts);
    return Offer::kKnown;
  }
  WriteJob job{.facts = facts, .placed = {}, .ids = static_cast<int>(ids.size())};
  job.payload_bytes = facts.pages * spaces_.spec(facts.space).page_bytes;
  const std::int64_t bytes = record_bytes(job.ids, job.payload_bytes);
  if (bytes > state_->slots.slot_bytes()) return refuse(&StoreStatus::writes_refused_room);
  if (!may_write(bytes)) return refuse(&StoreStatus::writes_refused_budget);
  if (state_->no_room.load(std::memory_order_relaxed)) {
    return refuse(&StoreStatus::writes_refused_room);
  }
  job.slot = state_->slots.take(SlotPool::Use::kWrite);
  if (job.slot < 0) return refuse(&StoreStatus::writes_refused_budget);
  if (const auto refused = place(facts, job, bytes)) {
    state_->slots.give(SlotPool::Use::kWrite, job.slot);
    return *refused;
  }
  const auto record = state_->slots.slot(job.slot);
  put_ids(ids, record);
  fill(record.subspan(
      static_cast<std::size_t>(payload_offset(job.ids)), static_cast<std::size_t>(job.payload_bytes)
  ));
  state_->bytes_to_write.fetch_add(bytes, std::memory_order_relaxed);
  thread_.post([job](StoreThread& store) { store.writer().add(job); });
  return Offer::kTaken;
}

std::int64_t DiskStoreImpl::guarantee(SpaceId space, std::int64_t bytes, TtlClass ttl) {
  if (config_.read_only || !knows(space)) return 0;
  const MutexLock lock(state_->mu);
  return state_->catalog.guarantee(space, bytes, ttl, unix_s(clock_));
}

double DiskStoreImpl::load_seconds(std::int64_t bytes) const {
  if (state_->is_out.load(std::memory_order_relaxed)) {
    return std::numeric_limits<double>::infinity();
  }
  double speed = state_->read_bytes_per_s.load(std::memory_order_relaxed);
  if (config_.read_bytes_per_s > 0) {
    speed = std::min(speed, static_cast<double>(config_.read_bytes_per_s));
  }
  // What another load of the same step asked for waits as well, seen by the store thread or not.
  const std::int64_t queued = state_->bytes_posted.load() + state_->bytes_to_read.load();
  return state_->read_latency_s.load(std::memory_order_relaxed) +
         static_cast<double>(queued + bytes) / speed;
}

LoadId DiskStoreImpl::load(SpaceId space, std::vector<Wanted> wanted, std::int64_t deadline_ns) {
  const LoadId id = next_load_++;
  loads_[id] = deadline_ns;
  LoadJob job{.id = id, .space = space, .wanted = {}, .deadline_ns = deadline_ns};
  if (knows(space)) job.wanted = std::move(wanted);
  for (const Wanted& one : job.wanted) {
    job.bytes += stored_bytes(std::ssize(one.ids), one.pages * spaces_.spec(space).page_bytes);
  }
  state_->bytes_posted.fetch_add(job.bytes);
  thread_.post([job = std::move(job)](StoreThread& store) { store.reader().start(job); });
  return id;
}

void DiskStoreImpl::cancel(LoadId load) {
  if (loads_.erase(load) == 0) return;
  {
    const MutexLock lock(state_->ready_mu);
    std::erase_if(state_->ready, [&](const ReadyPiece& piece) {
      if (piece.load != load) return false;
      if (piece.slot >= 0) state_->slots.give(SlotPool::Use::kRead, piece.slot);
      return true;
    });
  }
  thread_.post([load](StoreThread& store) { store.reader().cancel(load); });
}

std::optional<ReadyPiece> DiskStoreImpl::next_ready() {
  const MutexLock lock(state_->ready_mu);
  if (state_->ready.empty()) return std::nullopt;
  const ReadyPiece piece = state_->ready.front();
  state_->ready.pop_front();
  return piece;
}

void DiskStoreImpl::poll(std::int64_t bytes_max, const std::function<void(const Piece&)>& take) {
  std::int64_t given = 0;
  bool has_given_slots = false;
  while (given < std::max<std::int64_t>(bytes_max, 1)) {
    const auto ready = next_ready();
    if (!ready) break;
    const bool is_end = ready->slot < 0;
    // `take` may cancel; a piece that came across its cancel() is nobody's.
    if (loads_.contains(ready->load)) {
      if (is_end) loads_.erase(ready->load);
      take({
          .load = ready->load,
          .index = ready->index,
          .payload = ready->payload,
          .is_last = is_end,
          .why = ready->why,
      });
      given += static_cast<std::int64_t>(ready->payload.size());
    }
    if (!is_end) {
      state_->slots.give(SlotPool::Use::kRead, ready->slot);
      has_given_slots = true;
    }
  }
  if (has_given_slots) thread_.wake();
  end_overdue(take);
}

// The store thread ends loads at their deadlines. Where it hangs itself, in the kernel, this does.
void DiskStoreImpl::end_overdue(const std::function<void(const Piece&)>& take) {
  const std::int64_t now = clock_.monotonic_ns();
  std::vector<LoadId> overdue;
  for (const auto& [load, deadline] : loads_) {
    if (deadline < now - kOverdueNs) overdue.push_back(load);
  }
  for (const LoadId load : overdue) {
    {
      // What is ready of it is handed over first, by the next poll().
      const MutexLock lock(state_->ready_mu);
      if (std::ranges::any_of(state_->ready, [&](const auto& piece) {
            return piece.load == load;
          })) {
        continue;
      }
    }
    cancel(load);
    take({.load = load, .payload = {}, .is_last = true, .why = MissReason::kSlow});
  }
}

void DiskStoreImpl::set_notify(std::function<void()> notify) {
  const MutexLock lock(state_->notify_mu);
  state_->notify = std::move(notify);
}

void DiskStoreImpl::set_on_erased(std::function<void(const std::string&)> on_erased) {
  const MutexLock lock(state_->erased_mu);
  state_->erased = std::move(on_erased);
}

StoreStatus DiskStoreImpl::status() const {
  StoreStatus status;
  {
    const MutexLock lock(state_->mu);
    status = state_->counts;
    state_->catalog.fill(status, unix_s(clock_));
  }
  status.folder = config_.folder;
  status.bytes_max = config_.bytes_max;
  status.bytes_used += state_->other_bytes.load(std::memory_order_relaxed);
  for (TenantStatus& tenant : status.tenants) {
    tenant.encrypted = keys_ != nullptr && keys_->has(tenant.tenant);
  }
  status.writes_queued = state_->slots.used(SlotPool::Use::kWrite);
  status.reads_queued = state_->slots.used(SlotPool::Use::kRead);
  status.read_bytes_per_s = state_->read_bytes_per_s.load(std::memory_order_relaxed);
  status.write_bytes_per_s = state_->write_bytes_per_s.load(std::memory_order_relaxed);
  status.read_latency_s = state_->read_latency_s.load(std::memory_order_relaxed);
  return status;
}

void DiskStoreImpl::set_quotas(const std::map<std::string, std::int64_t>& quotas) {
  {
    const MutexLock lock(state_->mu);
    for (const auto& [tenant, bytes] : quotas) state_->catalog.set_quota(tenant, bytes);
  }
  thread_.post([](StoreThread& store) { store.reclaimer().enforce_quotas(); });
}

Result<std::int64_t> DiskStoreImpl::drop_tenant(const std::string& tenant) {
  // Copies go first, so that nothing of them is written again, and again at the end: a request may
  // have loaded something meanwhile.
  state_->tell_erased(tenant);
  auto erased = thread_.drop_tenant(tenant);
  if (erased) state_->tell_erased(tenant);
  return erased;
}

}  // namespace artery::kvstore
