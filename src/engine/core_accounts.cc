// Where the tokens of a prompt came from, told once, when its request is first admitted: hits by
// tier and misses by reason add up to the prompt.

#include <algorithm>

#include "engine/core.h"
#include "engine/core_parts.h"

namespace artery::engine {

// Of the page after `matched` ones. A tier that had it and lost it knows more than one that never
// did; what kept a load from bringing it knows most.
MissReason Core::why_missed(const Live& live, std::int64_t matched, std::int64_t usable) const {
  if (matched >= usable) return MissReason::kNone;
  const Choice& choice = *live.choice;
  const auto keys = std::span(choice.keys).first(static_cast<std::size_t>(usable));
  const MissReason ram = cache_.why_missed(keys, static_cast<std::size_t>(matched));
  const StoreUse& stored = choice.stored;
  // Of a model that has windows only, all that is stored.
  if (has_only_windows() && choice.window_miss != MissReason::kNone) return choice.window_miss;
  if (!stored.looked) return ram;
  if (matched < stored.known_pages) {
    return stored.load_end == MissReason::kNone ? MissReason::kEvicted : stored.load_end;
  }
  const bool store_knows = matched == stored.known_pages && stored.miss != MissReason::kNone &&
                           stored.miss != MissReason::kCold;
  return store_knows ? stored.miss : ram;
}

// Of pages that are there, but not the window before their end: rows from `cached` on run again.
// Where a window was never saved, as many as rebuild it are cheaper than any other way: slow.
MissReason Core::why_no_window(const Live& live, std::int64_t cached, std::int64_t matched) const {
  const Choice& choice = *live.choice;
  if (choice.window_miss != MissReason::kNone) return choice.window_miss;
  for (std::int64_t page = matched; page * kPageTokens > cached; --page) {
    const MissReason why = windows_->why_gone(choice.keys[static_cast<std::size_t>(page - 1)]);
    if (why != MissReason::kNone) return why;
  }
  return MissReason::kSlow;
}

void Core::account(const Live& live) {
  RequestState& request = *live.request;
  const Choice& choice = *live.choice;
  const std::int64_t prompt = request.prompt_tokens();
  const auto missed = [this](MissReason why, std::int64_t tokens) {
    counters_.miss_tokens[static_cast<std::size_t>(why)] += tokens;
  };
  if (!request.in.use_cache) {
    return missed(
        request.in.bypass == MissReason::kNone ? MissReason::kBypassed : request.in.bypass, prompt
    );
  }
  const std::int64_t usable = (prompt - 1) / kPageTokens;
  const std::int64_t matched = std::min(choice.kv.page_count(), usable);
  const std::int64_t cached = std::min(choice.kv.computed(), usable * kPageTokens);
  const auto upto = [cached](std::int64_t page) { return std::min(page * kPageTokens, cached); };
  request.cached_tokens = cached;
  request.disk_tokens = upto(choice.stored.disk_end) - upto(choice.stored.disk_begin);
  request.miss = usable == 0 ? MissReason::kShort : why_missed(live, matched, usable);
  // Text that goes on where the known one ends was not seen before.
  missed(
      request.miss == MissReason::kNone ? MissReason::kCold : request.miss,
      (usable - matched) * kPageTokens
  );
  if (cached < matched * kPageTokens) {
    request.miss = why_no_window(live, cached, matched);
    missed(request.miss, matched * kPageTokens - cached);
    if (request.miss == MissReason::kExpired) hint_at_windows();
  }
  missed(usable == 0 ? MissReason::kShort : MissReason::kBoundary, prompt - usable * kPageTokens);
  counters_.hit_tokens_ram += cached - request.disk_tokens;
  counters_.hit_tokens_disk += request.disk_tokens;
  counters_.cached_tokens += cached;
  counters_.prefix_queries += prompt;
  counters_.prefix_hits += cached;
  if (link_.store != nullptr) note_use(live, matched);
}

}  // namespace artery::engine
