// What window groups add to a step: where a prefix hit starts, which windows are saved, and who
// holds window pages. Nothing here runs for a model without them.

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "engine/core.h"
#include "engine/core_parts.h"
#include "engine/scheduler.h"

namespace artery::engine {
namespace {

constexpr std::int64_t kUnit = 8192;  // positions; long texts save their window this often

std::int64_t whole_pages(std::int64_t tokens) { return tokens / kPageTokens * kPageTokens; }

// Where all choices of a request begin, and the longest prefix that an equal prompt can be served.
std::int64_t prompt_boundary(const RequestState& request) {
  return whole_pages(request.prompt_tokens() - 1);
}

// Names the window at the prompt's end of a request that must not meet the prefix cache: no SHA-256
// ends like this.
ChainKey private_key(const RequestState& request) {
  ChainKey key{};
  for (std::size_t i = 0; i < 8; ++i) {
    key[i] = static_cast<std::uint8_t>(request.in.id.value >> (8 * i) & 0xff);
  }
  return key;
}

}  // namespace

std::optional<ChainKey> Core::window_key(
    const RequestState& request, const Choice& choice, std::int64_t boundary
) const {
  if (request.in.use_cache)
    return choice.keys[static_cast<std::size_t>(boundary / kPageTokens) - 1];
  if (request.choices.size() < 2 || boundary != prompt_boundary(request)) return std::nullopt;
  return private_key(request);
}

// What nobody used for its class time. Also while nothing is looked for: pages come free.
void Core::expire_windows() {
  counters_.windows_expired += windows_->expire(clock_.monotonic_ns());
}

// The fewest rows that give exact windows where the matched pages end: from the last window that is
// saved, or those that rebuild it (with Config::swa_replay as many as that says).
void Core::choose_start(const Live& live) {
  Choice& choice = *live.choice;
  const std::int64_t pages = choice.kv.page_count();
  if (choice.start_pages == pages && choice.start_generation == windows_->generation()) return;
  choice.start_pages = pages;
  choice.start_generation = windows_->generation();
  const std::int64_t rebuilt = spaces_->shape().rebuild_from(pages * kPageTokens);
  choice.start_saved = false;
  for (std::int64_t at = pages * kPageTokens; at > rebuilt; at -= kPageTokens) {
    const std::optional<ChainKey> key = window_key(*live.request, choice, at);
    if (!key || !windows_->contains(*key)) continue;
    choice.start_saved = true;
    return choice.kv.start_at(at, true);
  }
  choice.kv.start_at(rebuilt, rebuilt == 0);
}

// The pages that choose_start found are taken before any page of this step is.
void Core::admit_windows(const Live& live) {
  Choice& choice = *live.choice;
  const std::int64_t start = choice.kv.computed();
  if (choice.start_saved) {
    const ChainKey key = *window_key(*live.request, choice, start);
    choice.kv.restore_window(windows_->restore(key, clock_.monotonic_ns()));
    choice.start_saved = false;
    ++counters_.windows_restored;
    if (window_link_.store != nullptr && live.request->in.use_cache) touch_window(live, start);
  } else if (const std::int64_t end = choice.kv.ready(); end > start) {
    const WindowShape& shape = spaces_->shape();
    const std::int64_t exact = shape.exact_from(end);
    ++(start > exact ? counters_.windows_replayed : counters_.windows_rebuilt);
    counters_.window_rows_spared += std::max<std::int64_t>(0, start - exact);
  }
  counters_.window_rows += choice.kv.ready() - start;
}

// Window pages for rows up to `end`. Saved windows make room: sequences that run never hold more
// than there are (pool_size.h).
void Core::take_window_pages(Choice& choice, std::int64_t end) {
  const std::int64_t need = pages_for(end) - choice.kv.window_end();
  windows_->reclaim(need);
  for (std::int64_t i = 0; i < need; ++i) {
    PageRef page = spaces_->window().allocate();
    CHECK(page, "running sequences took more window pages than there are");
    choice.kv.append_window(std::move(page));
  }
}

void Core::save_window(const Live& live, std::int64_t boundary) {
  const RequestState& request = *live.request;
  Choice& choice = *live.choice;
  if (boundary <= 0 || !choice.kv.window_exact(boundary)) return;
  if (request.in.use_cache) {
    extend_keys(request, choice);
    const ChainKey& key = choice.keys[static_cast<std::size_t>(boundary / kPageTokens) - 1];
    // Only beside a page that the cache keeps: a hit compares its tokens.
    if (choice.offering && cache_.contains(key)) {
      windows_->save(key, choice.kv.share_window(boundary), clock_.monotonic_ns());
      if (window_link_.store != nullptr) store_window(live, boundary);
    }
  } else if (!request.forked) {
    const std::optional<ChainKey> key = window_key(request, choice, boundary);
    if (key) windows_->save(*key, choice.kv.share_window(boundary), clock_.monotonic_ns());
  }
}

// Rows from `before` on have landed: what ends a prefix unit among them is saved, and the pages
// behind are given back.
void Core::land_windows(const Live& live, std::int64_t before) {
  Choice& choice = *live.choice;
  const std::int64_t now = choice.kv.computed();
  for (std::int64_t unit = now / kUnit * kUnit; unit > before; unit -= kUnit)
    save_window(live, unit);
  // Where a hit ended other prompts may branch off too.
  for (const std::int64_t boundary : {choice.kv.hit_end(), prompt_boundary(*live.request)}) {
    if (boundary > before && boundary <= now) save_window(live, boundary);
  }
  choice.kv.release_behind();
}

// The choice ends or gives its pages up. A step that is still computing may read and write its
// window pages: whoever gets them writes them in a later one.
void Core::give_up_windows(const Live& live) {
  save_window(live, whole_pages(live.choice->kv.computed()));
  live.choice->kv.drop_windows();
}

// The request is over: nobody else can know its private window.
void Core::forget_windows(const RequestState& request) {
  if (!request.in.use_cache) windows_->erase(private_key(request));
}

void Core::check_windows() const {
  windows_->check_integrity();
  spaces_->window().check_integrity();
  std::int64_t held = 0;
  for (const auto& [id, request] : requests_) {
    for (const auto& choice : request->choices) {
      const std::int64_t count = choice->kv.window_count();
      CHECK(choice->running || count == 0, "one that does not run holds window pages");
      held += count;
    }
  }
  for (PageId page = 0; page < static_cast<PageId>(spaces_->window().pages_total()); ++page) {
    held -= spaces_->window().references(page) - windows_->references(page);
  }
  held += window_link_.pages_held();
  CHECK(held == 0, "sequences hold {} window pages more than are counted", held);
}

}  // namespace artery::engine
