#include "testing/mem_record_store.h"

#include <algorithm>
#include <limits>

#include "base/check.h"

namespace artery::testing {

using kvstore::Extent;
using kvstore::Found;
using kvstore::LoadId;
using kvstore::MissReason;
using kvstore::Offer;
using kvstore::Piece;
using kvstore::RecordKind;
using kvstore::SpaceId;
using kvstore::TtlClass;
using kvstore::Wanted;

SpaceId MemRecordStore::open_space(const kvstore::SpaceSpec& spec) {
  const MutexLock lock(mu_);
  for (std::size_t i = 0; i < spaces_.size(); ++i) {
    if (spaces_[i].identity == spec.identity && spaces_[i].tenant == spec.tenant) {
      return static_cast<SpaceId>(i);
    }
  }
  spaces_.push_back(spec);
  return static_cast<SpaceId>(spaces_.size() - 1);
}

const MemRecordStore::Record* MemRecordStore::at(SpaceId space, const ChainKey& key) const {
  const auto it = records_.find(key);
  return it != records_.end() && it->second.facts.space == space ? &it->second : nullptr;
}

std::vector<Extent> MemRecordStore::group_chain(
    SpaceId space, std::span<const ChainKey> keys, std::int64_t begin
) const {
  const std::int64_t group = spaces_[static_cast<std::size_t>(space)].record_pages;
  const std::int64_t end = std::min<std::int64_t>(std::ssize(keys), (begin / group + 1) * group);
  std::vector<Extent> best;
  std::int64_t reach = begin;
  for (std::int64_t stop = end; stop > begin; --stop) {
    const Record* record = at(space, keys[static_cast<std::size_t>(stop - 1)]);
    if (record == nullptr || record->facts.kind != RecordKind::kGlobal) continue;
    if (record->facts.pages != stop - begin) continue;
    std::vector<Extent> chain = {{begin, record->facts.pages}};
    if (stop % group != 0) {
      for (const Extent& more : group_chain(space, keys, stop)) chain.push_back(more);
    }
    if (const std::int64_t last = chain.back().first_page + chain.back().pages; last > reach) {
      reach = last;
      best = std::move(chain);
    }
  }
  return best;
}

Found MemRecordStore::find(SpaceId space, std::span<const ChainKey> keys) {
  const MutexLock lock(mu_);
  ++counts_.finds;
  Found found;
  while (found.pages < std::ssize(keys)) {
    const std::vector<Extent> more = group_chain(space, keys, found.pages);
    for (const Extent& extent : more) {
      found.extents.push_back(extent);
      found.pages += extent.pages;
    }
    if (more.empty() || found.pages % spaces_[static_cast<std::size_t>(space)].record_pages != 0) {
      break;
    }
  }
  if (found.pages == std::ssize(keys)) return found;
  found.miss = MissReason::kCold;
  for (auto page = static_cast<std::size_t>(found.pages); page < keys.size(); ++page) {
    const auto it = gone_.find(keys[page]);
    if (it == gone_.end()) continue;
    found.miss = it->second;
    break;
  }
  return found;
}

bool MemRecordStore::contains(SpaceId space, const ChainKey& key) {
  const MutexLock lock(mu_);
  return at(space, key) != nullptr;
}

void MemRecordStore::touch(
    SpaceId space,
    std::span<const ChainKey> keys,
    std::int64_t pages,
    TtlClass ttl,
    std::int64_t guaranteed_until_s
) {
  const MutexLock lock(mu_);
  ++counts_.touches;
  for (std::int64_t page = std::min<std::int64_t>(pages, std::ssize(keys)); page > 0; --page) {
    const auto it = records_.find(keys[static_cast<std::size_t>(page - 1)]);
    if (it == records_.end() || it->second.facts.space != space) continue;
    Record& record = it->second;
    record.last_use = ++tick_;
    record.facts.ttl = std::max(record.facts.ttl, ttl);
    record.facts.guaranteed_until_s = std::max(record.facts.guaranteed_until_s, guaranteed_until_s);
  }
}

Offer MemRecordStore::offer(
    const kvstore::RecordFacts& facts,
    std::span<const TokenId> ids,
    const std::function<void(std::span<std::byte>)>& fill
) {
  const MutexLock lock(mu_);
  ++counts_.offers;
  const kvstore::SpaceSpec& space = spaces_[static_cast<std::size_t>(facts.space)];
  CHECK(facts.pages > 0);
  if (facts.kind == RecordKind::kGlobal) {
    CHECK(facts.pages <= space.record_pages && std::ssize(ids) == facts.pages * kPageTokens);
  }
  if (at(facts.space, facts.key) != nullptr) {
    kvstore::RecordFacts& known = records_.at(facts.key).facts;
    known.ttl = std::max(known.ttl, facts.ttl);
    known.guaranteed_until_s = std::max(known.guaranteed_until_s, facts.guaranteed_until_s);
    ++counts_.known;
    return Offer::kKnown;
  }
  if (behaviour_.refuses || behaviour_.refusals > 0) {
    --behaviour_.refusals;
    ++counts_.refused;
    return Offer::kRefused;
  }
  Record record;
  record.facts = facts;
  record.ids.assign(ids.begin(), ids.end());
  record.payload.resize(static_cast<std::size_t>(facts.pages * space.page_bytes));
  fill(record.payload);
  record.last_use = ++tick_;
  bytes_ += std::ssize(record.payload);
  gone_.erase(facts.key);
  records_.emplace(facts.key, std::move(record));
  ++counts_.taken;
  evict();
  return Offer::kTaken;
}

void MemRecordStore::erase(const ChainKey& key, MissReason why) {
  const auto it = records_.find(key);
  if (it == records_.end()) return;
  bytes_ -= std::ssize(it->second.payload);
  gone_[key] = why;
  records_.erase(it);
}

void MemRecordStore::evict() {
  const std::int64_t now_s = clock_.unix_ms() / 1000;
  while (behaviour_.capacity_bytes > 0 && bytes_ > behaviour_.capacity_bytes) {
    const Record* oldest = nullptr;
    for (const auto& [key, record] : records_) {
      if (record.facts.guaranteed_until_s > now_s) continue;
      if (oldest == nullptr || record.last_use < oldest->last_use) oldest = &record;
    }
    if (oldest == nullptr) return;
    erase(ChainKey(oldest->facts.key), MissReason::kEvicted);
  }
}

std::int64_t MemRecordStore::guarantee(SpaceId /*space*/, std::int64_t bytes, TtlClass ttl) {
  const MutexLock lock(mu_);
  if (promised_ + bytes > behaviour_.guaranteed_bytes) return 0;
  promised_ += bytes;
  return clock_.unix_ms() / 1000 + kvstore::ttl_seconds(ttl);
}

double MemRecordStore::load_seconds(std::int64_t bytes) const {
  const MutexLock lock(mu_);
  for (const auto& [id, load] : loads_) {
    const std::int64_t page = spaces_[static_cast<std::size_t>(load.space)].page_bytes;
    for (std::size_t i = load.next; i < load.wanted.size(); ++i) {
      const Wanted& one = load.wanted[i];
      bytes += kvstore::stored_bytes(std::ssize(one.ids), one.pages * page);
    }
  }
  return behaviour_.seconds_per_load + behaviour_.seconds_per_byte * static_cast<double>(bytes);
}

LoadId MemRecordStore::load(SpaceId space, std::vector<Wanted> wanted, std::int64_t deadline_ns) {
  LoadId id = 0;
  bool held = false;
  {
    const MutexLock lock(mu_);
    CHECK(!wanted.empty());
    ++counts_.loads;
    id = next_load_++;
    loads_[id] = {space, std::move(wanted), deadline_ns, 0, 0};
    held = behaviour_.held;
  }
  if (!held) {
    const MutexLock lock(notify_mu_);
    if (notify_) notify_();
  }
  return id;
}

void MemRecordStore::cancel(LoadId load) {
  const MutexLock lock(mu_);
  counts_.cancels += static_cast<std::int64_t>(loads_.erase(load));
}

MemRecordStore::Handed MemRecordStore::next_piece(LoadId id, Load& load) {
  Handed out;
  out.piece.load = id;
  out.piece.index = load.next + (behaviour_.disorder ? 1 : 0);
  const auto end = [&](MissReason why) {
    out.piece.is_last = true;
    out.piece.why = why;
    return out;
  };
  if (clock_.monotonic_ns() >= load.deadline_ns) return end(MissReason::kSlow);
  if (behaviour_.pieces_max > 0 && std::ssize(load.wanted) > behaviour_.pieces_max &&
      static_cast<std::int64_t>(load.next) >= behaviour_.pieces_max) {
    return end(behaviour_.early);
  }
  const Wanted& wanted = load.wanted[load.next];
  const auto it = records_.find(wanted.key);
  if (it == records_.end() || it->second.facts.space != load.space) {
    return end(MissReason::kEvicted);
  }
  Record& record = it->second;
  ++record.reads;
  if (record.damaged || record.ids != wanted.ids || record.facts.pages != wanted.pages) {
    erase(wanted.key, MissReason::kChecksum);
    return end(MissReason::kChecksum);
  }
  out.bytes = record.payload;
  ++load.next;
  ++counts_.pieces;
  out.piece.is_last = load.next == load.wanted.size();
  return out;
}

void MemRecordStore::poll(std::int64_t bytes_max, const std::function<void(const Piece&)>& take) {
  std::vector<Handed> ready;
  bool more = false;
  {
    const MutexLock lock(mu_);
    std::int64_t bytes = 0;
    for (auto it = loads_.begin(); it != loads_.end() && bytes < bytes_max;) {
      Load& load = it->second;
      const bool late = clock_.monotonic_ns() >= load.deadline_ns;
      if ((behaviour_.held || load.waited++ < behaviour_.delay_polls) && !late) {
        ++it;
        continue;
      }
      load.waited = 0;
      ready.push_back(next_piece(it->first, load));
      bytes += std::ssize(ready.back().bytes);
      if (ready.back().piece.is_last) ++counts_.ends;
      it = ready.back().piece.is_last ? loads_.erase(it) : std::next(it);
    }
    more = !loads_.empty() && !behaviour_.held;
  }
  for (Handed& each : ready) {
    each.piece.payload = each.bytes;
    take(each.piece);
  }
  if (!more) return;
  const MutexLock lock(notify_mu_);
  if (notify_) notify_();
}

void MemRecordStore::set_notify(std::function<void()> notify) {
  const MutexLock lock(notify_mu_);
  notify_ = std::move(notify);
}

kvstore::StoreStatus MemRecordStore::status() const {
  const MutexLock lock(mu_);
  kvstore::StoreStatus out;
  out.io = "memory";
  out.records = std::ssize(records_);
  out.bytes_used = out.bytes_live = bytes_;
  out.records_written = counts_.taken;
  return out;
}

void MemRecordStore::behave(const MemStoreBehaviour& behaviour) {
  {
    const MutexLock lock(mu_);
    behaviour_ = behaviour;
    evict();
  }
  const MutexLock lock(notify_mu_);
  if (notify_) notify_();
}

MemStoreCounts MemRecordStore::counts() const {
  const MutexLock lock(mu_);
  return counts_;
}

std::vector<MemRecordStore::Record> MemRecordStore::records() const {
  const MutexLock lock(mu_);
  std::vector<Record> out;
  for (const auto& [key, record] : records_) out.push_back(record);
  return out;
}

std::vector<kvstore::SpaceSpec> MemRecordStore::spaces() const {
  const MutexLock lock(mu_);
  return spaces_;
}

bool MemRecordStore::damage(const ChainKey& key) {
  const MutexLock lock(mu_);
  const auto it = records_.find(key);
  if (it == records_.end()) return false;
  it->second.damaged = true;
  return true;
}

void MemRecordStore::damage_all() {
  const MutexLock lock(mu_);
  for (auto& [key, record] : records_) record.damaged = true;
}

void MemRecordStore::forget(const ChainKey& key, MissReason why) {
  const MutexLock lock(mu_);
  erase(key, why);
}

int MemRecordStore::loads_under_way() const {
  const MutexLock lock(mu_);
  return static_cast<int>(loads_.size());
}

}  // namespace artery::testing
