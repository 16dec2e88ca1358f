// Windows in the store behind the RAM cache: written where they are saved, read for a waiting
// request whose hit has no window in RAM, when that takes less time than the rows that rebuild it.
// What comes is saved in RAM (window_cache.h), where choose_start() finds it. Nothing here runs
// without Config::windows_in_store.
//
// A model that has windows only has pages of no bytes, which the store does not keep: a window
// whose key the prompt leads to says that all pages before it are there, so that the prefix cache
// learns them with the window.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/hash.h"
#include "base/log.h"
#include "engine/core.h"
#include "engine/core_parts.h"
#include "engine/kv_namespace.h"
#include "engine/pool_size.h"
#include "engine/record_io.h"

namespace artery::engine {
namespace {

using kvstore::TtlClass;

constexpr std::int64_t kRecordBytes = 4 << 20;  // as records of global pages
constexpr int kRecordPagesMax = 128;
constexpr std::int64_t kWindowBytesMax = 64 << 20;  // copied in one go, and beside other reads
constexpr double kPatience = 3;                     // times the predicted time, and
constexpr double kPatienceBase = 0.25, kPatienceMax = 60;  // seconds
constexpr std::int64_t kGraceNs = 1'000'000'000;

int record_pages_of(std::int64_t page_bytes, int record_pages) {
  const std::int64_t pages = kRecordBytes / std::max<std::int64_t>(1, page_bytes);
  return static_cast<int>(
      std::clamp<std::int64_t>(pages, 1, std::clamp(record_pages, 1, kRecordPagesMax))
  );
}

double mebibytes(std::int64_t bytes) { return static_cast<double>(bytes) / (1 << 20); }

}  // namespace

ChainKey window_record_key(const ChainKey& boundary, std::size_t number) {
  constexpr std::string_view kName = "window";
  std::array<std::byte, kName.size() + std::tuple_size_v<ChainKey> + 4> text{};
  std::memcpy(text.data(), kName.data(), kName.size());
  std::memcpy(text.data() + kName.size(), boundary.data(), boundary.size());
  for (std::size_t i = 0; i < 4; ++i) {
    text[text.size() - 4 + i] = static_cast<std::byte>(number >> (8 * i) & 0xff);
  }
  return sha256(text);
}

std::int64_t window_record_bytes(const model::KvLayout& layout) {
  if (!WindowShape::of(layout)) return 0;
  const std::int64_t page = KvPool::page_bytes(layout, model::KvKind::kWindow);
  return page * record_pages_of(page, layout.record_pages);
}

// After connect_store(). Without windows_in_store too: what it would cost is told.
void Core::connect_window_store() {
  if (config_.store == nullptr || !config_.enable_prefix_caching || windows_ == nullptr) return;
  const WindowShape& shape = spaces_->shape();
  const model::KvLayout layout = model_.kv_layout();
  WindowLink& to = window_link_;
  to.page_bytes = payload_page_bytes(spaces_->window());
  to.record_pages = record_pages_of(to.page_bytes, layout.record_pages);
  to.identity = kv_namespace(model_.info(), layout, config_.swa_replay) + "|6:window";
  to.pages_spare =
      spaces_->window().pages_total() -
      window_pages_running(
          shape, config_.max_num_seqs, config_.max_num_batched_tokens, config_.max_model_len
      );
  if (config_.windows_in_store && fits_store(shape)) to.store = config_.store.get();
  if (link_.page_bytes == 0 && to.store == nullptr) note_store_unused();
}

bool Core::fits_store(const WindowShape& shape) const {
  return shape.pages() > 0 && shape.pages() * window_link_.page_bytes <= kWindowBytesMax;
}

void Core::note_store_unused() {
  const WindowShape& shape = spaces_->shape();
  const double size = mebibytes(shape.pages() * window_link_.page_bytes);
  store_unused_ = "this model has only sliding-window layers: the store is not used";
  store_unused_ += fits_store(shape)
                       ? fmt::format(" (--kv-windows store keeps windows, {:.1f} MiB each)", size)
                       : fmt::format(
                             " (a window takes {:.1f} MiB, more than the {:.0f} MiB it would keep)",
                             size,
                             mebibytes(kWindowBytesMax)
                         );
  log_info("{}", store_unused_);
}

// Once a run: rows ran that a window in the store would have spared.
void Core::hint_at_windows() {
  const WindowShape& shape = spaces_->shape();
  if (has_hinted_ || config_.store == nullptr || config_.windows_in_store || !fits_store(shape)) {
    return;
  }
  has_hinted_ = true;
  log_info(
      "a known prompt was computed because its sliding windows are gone: they are not stored; "
      "--kv-windows store keeps them, at {:.1f} MiB for each end of a prompt or an answer and each "
      "8,192 tokens",
      mebibytes(shape.pages() * window_link_.page_bytes)
  );
}

// Windows serve conversations that go on soon; they are large, and what they save is rows of a
// fixed number. Of a model that has nothing else they are the cache.
TtlClass Core::window_class(TtlClass asked) const {
  return has_only_windows() ? asked : std::min(asked, TtlClass::kHour);
}

kvstore::SpaceId Core::window_space(const std::string& tenant) {
  WindowLink& to = window_link_;
  if (const auto it = to.spaces.find(tenant); it != to.spaces.end()) return it->second;
  kvstore::SpaceSpec spec;
  spec.identity = to.identity;
  spec.tenant = tenant;
  spec.model = model_.info().name;
  spec.page_bytes = to.page_bytes;
  spec.record_pages = to.record_pages;
  return to.spaces[tenant] = to.store->open_space(spec);
}

// Pages of each record of a window of `pages`.
std::vector<int> Core::window_records(std::int64_t pages) const {
  std::vector<int> out;
  for (std::int64_t left = pages; left > 0; left -= out.back()) {
    out.push_back(static_cast<int>(std::min<std::int64_t>(left, window_link_.record_pages)));
  }
  return out;
}

// The last page's: what the boundary's key is compared by.
std::span<const TokenId> Core::window_ids(const Choice& choice, std::int64_t boundary) const {
  return std::span<const TokenId>(choice.tokens)
      .subspan(static_cast<std::size_t>(boundary - kPageTokens), kPageTokens);
}

// The window before `boundary`, which was just saved. Refused: it is rebuilt once more, some day.
void Core::store_window(const Live& live, std::int64_t boundary) {
  const RequestState& request = *live.request;
  const Choice& choice = *live.choice;
  const std::vector<PageRef> pages = choice.kv.share_window(boundary);
  kvstore::RecordFacts facts;
  facts.space = window_space(request.in.request.tenant);
  facts.kind = kvstore::RecordKind::kWindow;
  facts.ttl = window_class(request.in.request.ttl_class);
  facts.parent = choice.keys[static_cast<std::size_t>(boundary / kPageTokens) - 1];
  std::size_t first = 0;
  bool any_new = false;
  const std::vector<int> records = window_records(std::ssize(pages));
  for (std::size_t i = 0; i < records.size(); ++i) {
    facts.key = window_record_key(facts.parent, i);
    facts.pages = records[i];
    const auto part = std::span(pages).subspan(first, static_cast<std::size_t>(records[i]));
    first += part.size();
    const auto fill = [&](std::span<std::byte> payload) {
      gather_pages(spaces_->window(), part, payload);
    };
    const auto answer = window_link_.store->offer(facts, window_ids(choice, boundary), fill);
    if (answer == kvstore::Offer::kRefused) {
      ++counters_.records_refused;
      return;
    }
    if (answer == kvstore::Offer::kTaken) ++counters_.records_offered;
    any_new |= answer == kvstore::Offer::kTaken;
  }
  if (any_new) ++counters_.windows_stored;
}

bool Core::window_stored(const Live& live, std::int64_t boundary) {
  const Choice& choice = *live.choice;
  const kvstore::SpaceId space = window_space(live.request->in.request.tenant);
  const ChainKey& key = choice.keys[static_cast<std::size_t>(boundary / kPageTokens) - 1];
  const std::int64_t pages = boundary / kPageTokens - spaces_->shape().first_page(boundary);
  const std::size_t records = window_records(pages).size();
  // The last one first: it was written last.
  for (std::size_t i = records; i-- > 0;) {
    if (!window_link_.store->contains(space, window_record_key(key, i))) return false;
  }
  return true;
}

// Whoever goes on from a window keeps its records alive, wherever it came from.
void Core::touch_window(const Live& live, std::int64_t boundary) {
  const Choice& choice = *live.choice;
  const std::int64_t pages = boundary / kPageTokens - spaces_->shape().first_page(boundary);
  const ChainKey& key = choice.keys[static_cast<std::size_t>(boundary / kPageTokens) - 1];
  // As if they were a prefix: a key where each record ends.
  std::vector<ChainKey> keys(static_cast<std::size_t>(pages));
  std::size_t end = 0;
  std::size_t number = 0;
  for (const int record : window_records(pages)) {
    end += static_cast<std::size_t>(record);
    keys[end - 1] = window_record_key(key, number++);
  }
  const Request& request = live.request->in.request;
  window_link_.store->touch(
      window_space(request.tenant), keys, pages, window_class(request.ttl_class), 0
  );
}

// The last boundary after `from` and up to `to` whose window the store has; `from`: none.
std::int64_t Core::last_stored_window(const Live& live, std::int64_t from, std::int64_t to) {
  for (std::int64_t at = to; at > from; at -= kPageTokens) {
    if (window_stored(live, at)) return at;
  }
  return from;
}

std::int64_t Core::window_bytes(std::int64_t boundary) const {
  const std::int64_t pages = boundary / kPageTokens - spaces_->shape().first_page(boundary);
  std::int64_t bytes = 0;
  for (const int record : window_records(pages)) {
    bytes += kvstore::stored_bytes(kPageTokens, record * window_link_.page_bytes);
  }
  return bytes;
}

// Before a slot is free, for a few: what comes too early gives way to others.
void Core::look_for_windows() {
  constexpr int kAhead = 4;
  int waiting = 0;
  for (const Live& each : live_) {
    const Choice& choice = *each.choice;
    if (choice.running || choice.blocked || choice.awaited || choice.stored.load != 0) continue;
    if (waiting++ == kAhead) break;
    const bool may_hit = has_only_windows() || choice.kv.page_count() > 0;
    if (each.request->in.use_cache && may_hit) look_for_window(each);
  }
}

// For one that may be admitted soon and whose start choose_start() has found: the last window that
// the store has behind that. Looked for once for the pages it holds, or could hold.
void Core::look_for_window(const Live& live) {
  Choice& choice = *live.choice;
  std::int64_t pages = choice.kv.page_count();
  if (has_only_windows()) {
    pages = (total(choice) - 1) / kPageTokens;
    extend_keys(*live.request, choice);
  }
  const std::int64_t start = choice.kv.computed();
  const std::int64_t end = pages * kPageTokens;
  if (choice.window_load != 0 || choice.window_looked == pages || start == end) return;
  choice.window_looked = pages;
  choice.window_miss = MissReason::kNone;
  const std::int64_t at = last_stored_window(live, start, end);
  if (at == start) return;
  const ChainKey& key = choice.keys[static_cast<std::size_t>(at / kPageTokens) - 1];
  for (const auto& [id, load] : window_link_.loads) {
    if (load.key != key) continue;
    choice.window_load = id;
    choice.window_since_ns = clock_.monotonic_ns();
    return;
  }
  begin_window_load(live, start, at);
}

// When that is sooner done than the rows from `start` on.
void Core::begin_window_load(const Live& live, std::int64_t start, std::int64_t boundary) {
  Choice& choice = *live.choice;
  WindowLink& from = window_link_;
  const std::int64_t count = boundary / kPageTokens - spaces_->shape().first_page(boundary);
  choice.window_miss = MissReason::kBudget;
  if (from.pages_held() + count > from.pages_spare) return;
  const double seconds = from.store->load_seconds(window_bytes(boundary));
  choice.window_miss = why_not_load(seconds, start, boundary);
  if (choice.window_miss != MissReason::kNone) {
    ++counters_.loads_declined;
    return;
  }
  WindowLoad load;
  load.boundary = boundary;
  load.key = choice.keys[static_cast<std::size_t>(boundary / kPageTokens) - 1];
  load.records = window_records(count);
  load.safe_after = prepared_;
  windows_->reclaim(count);
  for (std::int64_t i = 0; i < count; ++i) {
    load.pages.push_back(spaces_->window().allocate());
    CHECK(load.pages.back(), "a load took more window pages than there are");
  }
  std::vector<kvstore::Wanted> wanted;
  for (std::size_t i = 0; i < load.records.size(); ++i) {
    kvstore::Wanted& one = wanted.emplace_back();
    one.key = window_record_key(load.key, i);
    one.kind = kvstore::RecordKind::kWindow;
    one.pages = load.records[i];
    const auto ids = window_ids(choice, boundary);
    one.ids.assign(ids.begin(), ids.end());
  }
  const std::int64_t now = clock_.monotonic_ns();
  const double patience = std::min(kPatienceBase + kPatience * seconds, kPatienceMax);
  const std::int64_t deadline = now + static_cast<std::int64_t>(patience * 1e9);
  load.deadline_ns = deadline + kGraceNs;
  choice.window_since_ns = now;
  choice.window_load =
      from.store->load(window_space(live.request->in.request.tenant), std::move(wanted), deadline);
  from.loads.emplace(choice.window_load, std::move(load));
  ++counters_.loads;
}

bool Core::window_pages_safe() const {
  const std::uint64_t completed = prepared_ - static_cast<std::uint64_t>(outstanding_);
  return outstanding_ == 0 ||
         std::all_of(window_link_.loads.begin(), window_link_.loads.end(), [&](const auto& entry) {
           return completed >= entry.second.safe_after;
         });
}

void Core::take_window_piece(const kvstore::Piece& piece) {
  const auto it = window_link_.loads.find(piece.load);
  if (it == window_link_.loads.end() || it->second.deadline_ns == 0) return;
  WindowLoad& load = it->second;
  if (!piece.payload.empty()) {
    const bool expected =
        piece.index == load.next && load.next < load.records.size() &&
        std::ssize(piece.payload) == load.records[load.next] * window_link_.page_bytes;
    if (!expected) {
      load.deadline_ns = 0;  // nothing that follows can be trusted; expire_window_loads() ends it
      return;
    }
    const auto bytes = static_cast<std::size_t>(window_link_.page_bytes);
    for (int i = 0; i < load.records[load.next]; ++i) {
      const std::size_t offset = static_cast<std::size_t>(i) * bytes;
      scatter_page(
          spaces_->window(),
          load.pages[load.next_page++].page(),
          piece.payload.subspan(offset, bytes)
      );
    }
    ++load.next;
  }
  if (piece.is_last) end_window_load(piece.load, piece.why);
}

// Whole or not: those that wait go on.
void Core::end_window_load(kvstore::LoadId id, MissReason why) {
  const auto it = window_link_.loads.find(id);
  WindowLoad load = std::move(it->second);
  window_link_.loads.erase(it);
  const bool whole = load.next == load.records.size();
  ++(whole ? counters_.loads_whole : counters_.loads_partial);
  if (!whole) {
    ++counters_.windows_load_failed;
  } else if (keep_window(load, id)) {
    ++counters_.windows_loaded;
  }
  for (const auto& [number, request] : requests_) {
    for (const auto& choice : request->choices) {
      if (choice->window_load != id) continue;
      stop_waiting({request.get(), choice.get()});
      if (!whole) choice->window_miss = why == MissReason::kNone ? MissReason::kSlow : why;
    }
  }
}

// Beside a page of the cache only: a hit compares that page's tokens.
bool Core::keep_window(WindowLoad& load, kvstore::LoadId id) {
  for (const auto& [number, request] : requests_) {
    if (!has_only_windows()) break;
    for (const auto& choice : request->choices) {
      if (choice->window_load != id || cache_.contains(load.key)) continue;
      learn_pages({request.get(), choice.get()}, load.boundary);
    }
  }
  if (!cache_.contains(load.key)) return false;
  windows_->save(load.key, std::move(load.pages), clock_.monotonic_ns());
  return true;
}

// Pages of no bytes before a window that came, whose key is theirs: they are held as those that a
// load brings (core_store.cc). Without room they stay unknown.
void Core::learn_pages(const Live& live, std::int64_t boundary) {
  Choice& choice = *live.choice;
  const std::int64_t end = boundary / kPageTokens;
  const std::int64_t held = choice.kv.page_count();
  if (pool_.pages_free() < end - held) cache_.reclaim(end - held - pool_.pages_free());
  if (pool_.pages_free() < end - held) return;
  for (std::int64_t page = held; page < end; ++page) {
    const auto at = static_cast<std::size_t>(page);
    const ChainKey& parent = page == 0 ? live.request->in.root : choice.keys[at - 1];
    const auto ids = std::span<const TokenId>(choice.tokens).subspan(at * kPageTokens, kPageTokens);
    const PageId kept = cache_.offer(choice.keys[at], parent, ids, pool_.allocate().release());
    choice.kv.append(PageRef::adopt(pool_, kept));
  }
  choice.kv.start_at(choice.kv.page_count() * kPageTokens, true);
  choice.start_pages = 0;  // choose_start finds the window
  choice.stored.disk_begin = held;
  choice.stored.disk_end = end;
}

void Core::stop_waiting(const Live& live) {
  const double waited = seconds_between(live.choice->window_since_ns, clock_.monotonic_ns());
  live.request->load_s += waited;
  counters_.load_wait_s += waited;
  live.choice->window_load = 0;
}

// It ends, or gives up what it holds. The load goes on while somebody waits for it.
void Core::leave_window_load(const Live& live) {
  const kvstore::LoadId id = live.choice->window_load;
  if (id == 0) return;
  stop_waiting(live);
  for (const auto& [number, request] : requests_) {
    for (const auto& choice : request->choices) {
      if (choice->window_load == id) return;
    }
  }
  window_link_.store->cancel(id);
  end_window_load(id, MissReason::kBudget);
}

bool Core::expire_window_loads(std::int64_t now_ns) {
  std::vector<kvstore::LoadId> late;
  for (const auto& [id, load] : window_link_.loads) {
    if (now_ns >= load.deadline_ns) late.push_back(id);
  }
  for (const kvstore::LoadId id : late) {
    const bool is_broken = window_link_.loads.at(id).deadline_ns == 0;
    window_link_.store->cancel(id);
    end_window_load(id, is_broken ? MissReason::kChecksum : MissReason::kSlow);
  }
  return !late.empty();
}

}  // namespace artery::engine
