// The store behind the prefix cache, reading: which waiting requests get pages from it, and how
// these come into the RAM cache. Nothing here runs without a store.
//
// A load belongs to one choice that waits. Its pages are taken from the pool when it begins, never
// from a running sequence, and each record that comes is offered to the prefix cache and held by
// that choice, so that nothing evicts it before the choice is admitted. Whatever ends a load, the
// choice goes on with what has come.

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/check.h"
#include "engine/core.h"
#include "engine/core_parts.h"
#include "engine/kv_namespace.h"
#include "engine/record_io.h"

namespace artery::engine {
namespace {

constexpr std::int64_t kPollBytes = 8 << 20;  // a millisecond or two of copying
constexpr int kPrefetched = 8;                // waiting choices whose pages may come before a slot
constexpr double kPatience = 3;               // times the predicted time, and
constexpr double kPatienceBase = 0.25, kPatienceMax = 60;  // seconds
constexpr std::int64_t kGraceNs = 1'000'000'000;           // for a store to end a load by itself

// With header and token ids: what a limit on reading counts.
std::int64_t disk_bytes(std::int64_t pages, std::int64_t page_bytes) {
  return kvstore::stored_bytes(pages * kPageTokens, pages * page_bytes);
}

std::int64_t nanoseconds(double seconds) { return static_cast<std::int64_t>(seconds * 1e9); }

std::int64_t end_of(const kvstore::Extent& extent) { return extent.first_page + extent.pages; }

}  // namespace

kvstore::SpaceId StoreLink::space_of(const std::string& tenant) {
  if (const auto it = spaces.find(tenant); it != spaces.end()) return it->second;
  kvstore::SpaceSpec spec;
  spec.identity = identity;
  spec.tenant = tenant;
  spec.model = model;
  spec.page_bytes = page_bytes;
  spec.record_pages = record_pages;
  return spaces[tenant] = store->open_space(spec);
}

// Pages of no bytes need no store: core_window_store.cc keeps what a model of windows only needs.
void Core::connect_store() {
  link_.page_bytes = payload_page_bytes(pool_);
  if (config_.store == nullptr || !config_.enable_prefix_caching || link_.page_bytes == 0) return;
  const model::KvLayout layout = model_.kv_layout();
  link_.identity = kv_namespace(model_.info(), layout, config_.swa_replay);
  link_.model = model_.info().name;
  link_.record_pages = layout.record_pages;
  link_.store = config_.store;
}

Core::~Core() {
  for (const auto& [id, load] : link_.loads) config_.store->cancel(id);
  for (const auto& [id, load] : window_link_.loads) config_.store->cancel(id);
}

// --- which loads begin

// The waiting ones that may be admitted now and a few more, in order of rank; all but the first as
// far as the pages suffice for those before them too.
void Core::look_for_loads() {
  std::int64_t room = pool_.pages_free() + pool_.pages_idle();
  int slots = config_.max_num_seqs;
  for (const Live& each : live_) {
    const Choice& choice = *each.choice;
    if (!choice.running) continue;
    --slots;
    room -= pages_for(total(choice)) - choice.kv.page_count() + 1;
  }
  int waiting = 0;
  for (const Live& each : live_) {
    Choice& choice = *each.choice;
    if (choice.running || choice.blocked || choice.awaited) continue;
    if (waiting++ >= std::max(slots, kPrefetched)) break;
    if (each.request->in.use_cache && choice.stored.load == 0 && !choice.stored.decided) {
      // The best one may take what is there; its pages count, whoever else grows meanwhile.
      look_in_store(each, waiting == 1 ? pool_.pages_free() + pool_.pages_idle() : room);
    }
    room -= pages_for(total(choice)) - choice.kv.page_count();
  }
}

kvstore::Found Core::find_stored(const Live& live) {
  Choice& choice = *live.choice;
  StoreUse& mine = choice.stored;
  const std::int64_t start = clock_.monotonic_ns();
  extend_keys(*live.request, choice);
  const kvstore::SpaceId space = link_.space_of(live.request->in.request.tenant);
  kvstore::Found found = link_.store->find(space, choice.keys);
  live.request->cache_lookup_s += seconds_between(start, clock_.monotonic_ns());
  mine.looked = true;
  mine.known_pages = found.pages;
  mine.miss = found.miss;
  mine.load_end = MissReason::kNone;
  mine.whole = found.pages / link_.record_pages * link_.record_pages;
  mine.tail = found.pages;
  return found;
}

void Core::look_in_store(const Live& live, std::int64_t pages_max) {
  Choice& choice = *live.choice;
  StoreUse& mine = choice.stored;
  const std::int64_t usable = (total(choice) - 1) / kPageTokens;
  // Whether the RAM cache, which has no gaps, has all that the store is known to have.
  const auto in_ram = [&] {
    const std::int64_t pages = std::min(mine.known_pages, usable);
    return pages == 0 || cache_.contains(choice.keys[static_cast<std::size_t>(pages - 1)]);
  };
  if (mine.looked && in_ram()) return;
  const kvstore::Found found = find_stored(live);
  if (in_ram()) return;
  mine.decided = true;
  std::int64_t end = std::min(found.pages, usable);
  match_prefix(live);
  const std::int64_t held = choice.kv.page_count();
  std::vector<kvstore::Extent> wanted;
  for (const kvstore::Extent& extent : found.extents) {
    if (end_of(extent) > held && extent.first_page < end) wanted.push_back(extent);
  }
  if (wanted.empty() || follow(live, wanted)) return;
  pages_max = std::min(pages_max, pool_.pages_free() + pool_.pages_idle());
  while (!wanted.empty() && std::min(end, end_of(wanted.back())) - held > pages_max) {
    end = wanted.back().first_page;
    wanted.pop_back();
    mine.load_end = MissReason::kBudget;
  }
  std::int64_t bytes = 0;
  for (const kvstore::Extent& extent : wanted) bytes += disk_bytes(extent.pages, link_.page_bytes);
  if (!wanted.empty() && worth_loading(live, end, bytes)) {
    begin_load(live, std::move(wanted), end);
  }
}

// When the next record it needs is on its way for another one, waiting for that costs nothing.
bool Core::follow(const Live& live, std::span<const kvstore::Extent> wanted) {
  StoreUse& mine = live.choice->stored;
  for (const kvstore::Extent& extent : wanted) {
    const auto it =
        link_.coming.find(live.choice->keys[static_cast<std::size_t>(end_of(extent) - 1)]);
    if (it == link_.coming.end() || (mine.load != 0 && it->second.first != mine.load)) break;
    mine.load = it->second.first;
    mine.until = it->second.second + 1;
  }
  if (mine.load == 0) return false;
  mine.waits_since_ns = clock_.monotonic_ns();
  return true;
}

// Seconds to compute the rows from `from` on, in steps of their own.
double Core::compute_seconds(std::int64_t from, std::int64_t to) const {
  const std::int64_t rows = to - from;
  if (rows <= 0) return 0;
  std::int64_t chunk = config_.max_num_batched_tokens;
  if (config_.prefill_chunk_max > 0)
    chunk = std::min<std::int64_t>(chunk, config_.prefill_chunk_max);
  const std::int64_t steps = (rows + chunk - 1) / chunk;
  const std::int64_t context = rows * from + rows * (rows + 1) / 2;
  return cost_.predict(rows, context) + static_cast<double>(steps - 1) * cost_.predict(0, 0);
}

// kNone: loading is sooner done than the rows. Until a step was measured, how long rows take is a
// careful guess, a few times too long on most machines: a wait that is felt is not judged by it.
MissReason Core::why_not_load(double load_s, std::int64_t from, std::int64_t to) const {
  constexpr double kGuessOver = 4;
  constexpr double kFelt = 0.05;
  double compute_s = compute_seconds(from, to);
  if (!cost_.has_observed() && load_s > kFelt) compute_s /= kGuessOver;
  if (load_s < compute_s) return MissReason::kNone;
  return std::isfinite(load_s) ? MissReason::kSlow : MissReason::kBudget;
}

// Where rows begin when the first `pages` pages are there: choose_start's rule.
std::int64_t Core::start_of(const Live& live, std::int64_t pages) const {
  if (windows_ == nullptr) return pages * kPageTokens;
  const std::int64_t rebuilt = spaces_->shape().rebuild_from(pages * kPageTokens);
  for (std::int64_t at = pages * kPageTokens; at > rebuilt; at -= kPageTokens) {
    const std::optional<ChainKey> key = window_key(*live.request, *live.choice, at);
    if (key && windows_->contains(*key)) return at;
  }
  return rebuilt;
}

bool Core::worth_loading(const Live& live, std::int64_t end_page, std::int64_t bytes) {
  std::int64_t start = start_of(live, end_page);
  if (window_link_.store != nullptr) {  // which then comes too
    const std::int64_t window = last_stored_window(live, start, end_page * kPageTokens);
    if (window > start) bytes += window_bytes(window);
    start = window;
  }
  const std::int64_t from = start_of(live, live.choice->kv.page_count());
  const MissReason why = why_not_load(link_.store->load_seconds(bytes), from, start);
  if (why == MissReason::kNone) return true;
  live.choice->stored.load_end = why;
  ++counters_.loads_declined;
  // What its window in the store would change.
  if (windows_ != nullptr && window_link_.store == nullptr && why == MissReason::kSlow) {
    const std::int64_t end = end_page * kPageTokens;
    const double with_it = link_.store->load_seconds(bytes + window_bytes(end));
    if (why_not_load(with_it, from, end) == MissReason::kNone) hint_at_windows();
  }
  return false;
}

void Core::begin_load(
    const Live& live, std::vector<kvstore::Extent> extents, std::int64_t end_page
) {
  Choice& choice = *live.choice;
  StoreLoad load;
  load.request = live.request;
  load.choice = live.choice;
  load.end_page = std::min(end_page, end_of(extents.back()));
  const std::int64_t need = load.end_page - choice.kv.page_count();
  if (pool_.pages_free() < need) cache_.reclaim(need - pool_.pages_free());
  for (std::int64_t i = 0; i < need; ++i) {
    load.pages.push_back(pool_.allocate());
    CHECK(load.pages.back(), "a load took more pages than there are");
  }
  load.safe_after = hazard_;
  std::vector<kvstore::Wanted> wanted;
  std::int64_t bytes = 0;
  for (const kvstore::Extent& extent : extents) {
    const auto ids = std::span<const TokenId>(choice.tokens)
                         .subspan(
                             static_cast<std::size_t>(extent.first_page * kPageTokens),
                             static_cast<std::size_t>(extent.pages) * kPageTokens
                         );
    kvstore::Wanted& one = wanted.emplace_back();
    one.key = choice.keys[static_cast<std::size_t>(end_of(extent) - 1)];
    one.pages = extent.pages;
    one.ids.assign(ids.begin(), ids.end());
    bytes += disk_bytes(extent.pages, link_.page_bytes);
  }
  const double patience = kPatienceBase + kPatience * link_.store->load_seconds(bytes);
  const std::int64_t now = clock_.monotonic_ns();
  std::int64_t deadline = now + nanoseconds(std::min(patience, kPatienceMax));
  if (const std::int64_t own = live.request->in.request.deadline_ns; own > 0) {
    deadline = std::min(deadline, own);
  }
  load.deadline_ns = deadline + kGraceNs;
  load.extents = std::move(extents);
  std::vector<ChainKey> keys;
  for (const kvstore::Wanted& one : wanted) keys.push_back(one.key);
  const kvstore::SpaceId space = link_.space_of(live.request->in.request.tenant);
  const kvstore::LoadId id = link_.store->load(space, std::move(wanted), deadline);
  for (std::size_t i = 0; i < keys.size(); ++i) link_.coming[keys[i]] = {id, i};
  choice.stored.load = id;
  choice.stored.until = 0;
  choice.stored.waits_since_ns = now;
  choice.stored.disk_begin = choice.stored.disk_end = choice.kv.page_count();
  link_.loads.emplace(id, std::move(load));
  ++counters_.loads;
}

// --- what comes of them

std::int64_t Core::pages_reserved(const Choice& choice) const {
  const auto it = link_.loads.find(choice.stored.load);
  return it != link_.loads.end() && it->second.choice == &choice ? std::ssize(it->second.pages) : 0;
}

bool Core::pages_safe(const StoreLoad& load) const {
  return outstanding_ == 0 ||
         prepared_ - static_cast<std::uint64_t>(outstanding_) >= load.safe_after;
}

bool Core::poll_store() {
  link_.more = false;
  if (!loading()) return false;
  const auto safe = [this](const auto& entry) { return pages_safe(entry.second); };
  if (!std::all_of(link_.loads.begin(), link_.loads.end(), safe)) return false;
  if (!window_pages_safe()) return false;
  const std::size_t before = link_.loads.size();
  const std::size_t windows_before = window_link_.loads.size();
  bool any = false;
  config_.store->poll(kPollBytes, [&](const kvstore::Piece& piece) {
    any = true;
    take_piece(piece);
  });
  const std::int64_t now = clock_.monotonic_ns();
  for (auto it = link_.loads.begin(); it != link_.loads.end();) {
    const kvstore::LoadId id = it->first;
    const bool broken = it->second.deadline_ns == 0;
    const bool late = now >= it->second.deadline_ns;
    ++it;
    if (!late) continue;
    link_.store->cancel(id);
    end_load(id, broken ? MissReason::kChecksum : MissReason::kSlow);
  }
  expire_window_loads(now);
  link_.more = any && loading();
  return (any && wake_followers()) || link_.loads.size() < before ||
         window_link_.loads.size() < windows_before;
}

// Those for whom enough has come.
bool Core::wake_followers() {
  bool woken = false;
  for (const auto& [number, request] : requests_) {
    for (const auto& choice : request->choices) {
      const StoreUse& mine = choice->stored;
      if (mine.until == 0 || mine.until > link_.loads.at(mine.load).next) continue;
      wake(*choice, *request, true);
      woken = true;
    }
  }
  return woken;
}

void Core::take_piece(const kvstore::Piece& piece) {
  const auto it = link_.loads.find(piece.load);
  if (it == link_.loads.end()) return take_window_piece(piece);
  if (it->second.deadline_ns == 0) return;
  StoreLoad& load = it->second;
  const bool is_record = !piece.payload.empty();
  const bool expected =
      is_record && piece.index == load.next && load.next < load.extents.size() &&
      std::ssize(piece.payload) == load.extents[load.next].pages * link_.page_bytes;
  if (expected) {
    take_record(load, piece.payload);
    ++load.next;
  } else if (is_record) {
    load.deadline_ns = 0;  // nothing that follows can be trusted; poll_store() ends it
    return;
  }
  if (piece.is_last) end_load(piece.load, piece.why);
}

void Core::take_record(StoreLoad& load, std::span<const std::byte> payload) {
  Choice& choice = *load.choice;
  const kvstore::Extent& extent = load.extents[load.next];
  CHECK(extent.first_page <= choice.kv.page_count(), "a record of a load leaves a gap");
  const auto page_bytes = static_cast<std::size_t>(link_.page_bytes);
  for (std::int64_t page = choice.kv.page_count(); page < std::min(end_of(extent), load.end_page);
       ++page) {
    const auto at = static_cast<std::size_t>(page);
    const auto offset = static_cast<std::size_t>(page - extent.first_page) * page_bytes;
    CHECK(!load.pages.empty(), "a load has no page left");
    PageRef mine = std::move(load.pages.back());
    load.pages.pop_back();
    scatter_page(pool_, mine.page(), payload.subspan(offset, page_bytes));
    const ChainKey& parent = page == 0 ? load.request->in.root : choice.keys[at - 1];
    const auto ids = std::span<const TokenId>(choice.tokens).subspan(at * kPageTokens, kPageTokens);
    const PageId kept = cache_.offer(choice.keys[at], parent, ids, mine.release());
    choice.kv.append(PageRef::adopt(pool_, kept));
  }
  choice.stored.disk_end = choice.kv.page_count();
  choice.kv.start_at(choice.kv.page_count() * kPageTokens, true);
  choice.start_pages = 0;  // choose_start: earlier with window groups
}

void Core::end_load(kvstore::LoadId id, MissReason why) {
  const auto it = link_.loads.find(id);
  if (it == link_.loads.end()) return;
  StoreLoad load = std::move(it->second);
  link_.loads.erase(it);
  std::erase_if(link_.coming, [id](const auto& entry) { return entry.second.first == id; });
  const bool whole = load.next == load.extents.size();
  ++(whole ? counters_.loads_whole : counters_.loads_partial);
  if (!whole) {
    StoreUse& mine = load.choice->stored;
    mine.load_end = why == MissReason::kNone ? MissReason::kSlow : why;
    // It may be gone, and what hung on it: all from there on is offered again.
    mine.tail = load.extents[load.next].first_page;
    mine.whole = mine.tail / link_.record_pages * link_.record_pages;
  }
  wake(*load.choice, *load.request, false);
  for (const auto& [number, request] : requests_) {
    for (const auto& choice : request->choices) {
      // What was slow once would be so again.
      if (choice->stored.load == id) wake(*choice, *request, why != MissReason::kSlow);
    }
  }
}

void Core::wake(Choice& choice, RequestState& request, bool look_again) {
  StoreUse& mine = choice.stored;
  const double waited = seconds_between(mine.waits_since_ns, clock_.monotonic_ns());
  request.load_s += waited;
  counters_.load_wait_s += waited;
  if (look_again) mine.looked = mine.decided = false;
  mine.load = 0;
  mine.until = 0;
}

// It ends, or has to give up what it holds.
void Core::leave_load(const Live& live) {
  const kvstore::LoadId id = live.choice->stored.load;
  if (id == 0) return;
  const auto it = link_.loads.find(id);
  if (it == link_.loads.end() || it->second.choice != live.choice) {
    return wake(*live.choice, *live.request, false);
  }
  link_.store->cancel(id);
  end_load(id, MissReason::kBudget);
}

}  // namespace artery::engine
