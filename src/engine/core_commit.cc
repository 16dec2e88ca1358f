// The last third of a step: what the computed rows and samples change.

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "engine/core.h"
#include "engine/core_parts.h"

namespace artery::engine {

void Core::arm(StepWork& work) {
  const auto words = static_cast<std::size_t>((model_.info().vocab_size + 31) / 32);
  for (StepItem& item : work.items) {
    item.wanted = !item.choice->done;
    item.mask.clear();
    if (!item.wanted || !item.samples || item.choice->matcher == nullptr) continue;
    item.mask.resize(words);
    item.choice->matcher->fill_mask(item.mask);
  }
}

void Core::complete(std::unique_ptr<StepWork> work) {
  for (StepItem& item : work->items) land(item);
  count(*work);
  recycle(std::move(work));
  remove_finished();
  if (idle()) last_forward_end_ns_ = last_end_ns_ = 0;
}

void Core::land(StepItem& item) {
  const Live live{item.request, item.choice};
  Choice& choice = *item.choice;
  if (!item.drafts.empty()) return land_verified(item);
  const bool same_pages = item.kv_epoch == choice.kv_epoch;
  // A row of a token that the choice did not live to take is of no use.
  if (same_pages && !item.dropped && item.first + item.rows <= total(choice)) {
    CHECK(choice.kv.computed() == item.first, "rows of another place land");
    choice.kv.set_computed(item.first + item.rows);
    offer_pages(live, item.first);
    if (!choice.done) write_through(live, false);
    if (windows_ != nullptr) land_windows(live, item.first);
  }
  take_back(item);
  if (choice.done) return;
  if (item.prompt_logprobs) collect_prompt_logprobs(item);
  if (!item.completes) return;
  if (!item.request->forked) prompt_ready(live);
  if (choice.done || !item.samples) return;
  CHECK(item.sampled, "a row without a sample");
  take_sample(live, item.next_position(), *item.sampled);
}

void Core::count(const StepWork& work) {
  StepStats stats;
  stats.prefill_tokens = static_cast<int>(work.prefill_rows);
  stats.decode_tokens = static_cast<int>(work.decode_rows);
  stats.seconds = seconds_between(work.begin_ns, work.end_ns);
  stats.sampling_seconds = static_cast<double>(work.sampling_ns) * 1e-9;
  if (last_end_ns_ != 0) {
    stats.gap_seconds = seconds_between(last_forward_end_ns_, work.begin_ns);
    stats.idle_seconds = seconds_between(last_end_ns_, work.begin_ns);
  }
  // The wait of sampling for what this thread prepares counts as well.
  stats.idle_seconds +=
      std::max(0.0, seconds_between(work.forward_end_ns, work.end_ns) - stats.sampling_seconds);
  last_forward_end_ns_ = work.forward_end_ns;
  last_end_ns_ = work.end_ns;
  learn_draft_cost(work, stats.seconds);
  cost_.observe(static_cast<std::int64_t>(work.tokens.size()), work.context, stats.seconds);
  ++counters_.steps;
  counters_.busy_s += stats.seconds;
  counters_.gap_s += stats.gap_seconds;
  counters_.idle_s += stats.idle_seconds;
  counters_.sampling_s += stats.sampling_seconds;
  const double whole = stats.seconds + stats.idle_seconds;
  constexpr double kRemembered = 10;  // seconds
  const double weight = whole / (kRemembered + whole);
  if (whole > 0) {
    counters_.idle_share += weight * (stats.idle_seconds / whole - counters_.idle_share);
  }
  counters_.step_s_max = std::max(counters_.step_s_max, stats.seconds);
  if (observer_.on_step) observer_.on_step(stats);
}

void Core::extend_keys(const RequestState& request, Choice& choice) const {
  if (!request.in.use_cache) return;
  while (choice.keys.size() < choice.tokens.size() / kPageTokens) {
    const ChainKey& last = choice.keys.empty() ? request.in.root : choice.keys.back();
    const auto page = std::span<const TokenId>(choice.tokens)
                          .subspan(choice.keys.size() * kPageTokens, kPageTokens);
    choice.keys.push_back(chain_next(last, page));
  }
}

void Core::offer_pages(const Live& live, std::int64_t computed_before) {
  Choice& choice = *live.choice;
  if (!choice.offering) return;
  extend_keys(*live.request, choice);
  // Rows that rebuilt windows made no page.
  const std::int64_t begin = std::max(computed_before, choice.kv.hit_end()) / kPageTokens;
  const std::int64_t end = choice.kv.computed() / kPageTokens;
  for (std::int64_t page = begin; page < end && choice.offering; ++page) {
    const auto at = static_cast<std::size_t>(page);
    const ChainKey& parent = page == 0 ? live.request->in.root : choice.keys[at - 1];
    const auto ids = std::span<const TokenId>(choice.tokens).subspan(at * kPageTokens, kPageTokens);
    const PageId mine = choice.kv.pages()[at].page();
    const PageId kept = cache_.offer(choice.keys[at], parent, ids, mine);
    if (kept != mine) {
      choice.kv.replace(page, kept);
      hazard_ = prepared_;  // a step on its way may have the page in its table
    }
    choice.offering = pool_.cached(kept);
  }
}

// Row i of the prompt predicts token i + 1. After a preemption the rows come again, with the same
// bits.
void Core::collect_prompt_logprobs(StepItem& item) {
  std::vector<PositionLogprobs>& known = item.request->prompt_logprobs;
  for (std::size_t i = 0; i < item.prompt.size(); ++i) {
    const std::int64_t next = item.first + item.logits_from + static_cast<std::int64_t>(i) + 1;
    if (next == static_cast<std::int64_t>(known.size()) + 1) {
      known.push_back(std::move(item.prompt[i]));
    }
  }
}

// The leader has computed the whole prompt: the other choices start with its whole pages and
// compute the rest themselves, since they write there.
void Core::prompt_ready(const Live& live) {
  RequestState& request = *live.request;
  Choice& leader = *live.choice;
  request.forked = true;
  if (request.in.request.prompt_logprobs >= 0) {
    Event event;
    event.choice = leader.choice;
    event.first_position = static_cast<Position>(total(leader));
    event.prompt_logprobs = std::move(request.prompt_logprobs);
    push(request, std::move(event));
  }
  if (request.max_tokens == 0) {
    for (const auto& choice : request.choices) end({&request, choice.get()}, FinishReason::kLength);
    return;
  }
  // Fewer when the leader was preempted meanwhile.
  const std::int64_t shared =
      std::min((request.prompt_tokens() - 1) / kPageTokens, leader.kv.computed() / kPageTokens);
  for (const auto& choice : request.choices) {
    if (!choice->blocked || choice->done) continue;
    choice->blocked = false;
    choice->offering = leader.offering;
    choice->stored.whole = leader.stored.whole;
    choice->stored.tail = leader.stored.tail;
    choice->stored.looked = choice->stored.decided = true;
    for (std::int64_t page = 0; page < shared; ++page) {
      choice->kv.append(leader.kv.pages()[static_cast<std::size_t>(page)].share());
    }
    choice->kv.start_at(shared * kPageTokens, true);  // choose_start: earlier with window groups
  }
}

void Core::take_sample(const Live& live, Position position, Result<Sampled>& sampled) {
  Choice& choice = *live.choice;
  const SamplingParams& params = live.request->in.request.sampling;
  if (choice.first_token_ns == 0) {
    choice.first_token_ns = std::max<std::int64_t>(1, clock_.monotonic_ns());
  }
  Event event;
  event.choice = choice.choice;
  event.first_position = position;
  Finish why;
  if (!sampled) {
    why.reason = FinishReason::kError;
    why.message = sampled.error().message;
    return finish(live, std::move(event), std::move(why));
  }
  const TokenId token = sampled->token;
  if (std::find(params.stop_ids.begin(), params.stop_ids.end(), token) != params.stop_ids.end()) {
    why.stop_token = token;
    return finish(live, std::move(event), std::move(why));
  }
  if (choice.matcher != nullptr && !choice.matcher->accept(token)) {
    why.reason = FinishReason::kError;
    why.message = fmt::format("the grammar allowed token {} and then refused it", token);
    return finish(live, std::move(event), std::move(why));
  }
  if (params.logprobs >= 0) event.logprobs.push_back(std::move(sampled->logprobs));
  take_token(live, token, std::move(event));
}

void Core::take_token(const Live& live, TokenId token, Event event) {
  RequestState& request = *live.request;
  Choice& choice = *live.choice;
  choice.tokens.push_back(token);
  if (uses_penalties(request.in.request.sampling)) choice.history.add_generated(token);
  ++counters_.generated_tokens;
  if (choice.drafter != nullptr) look_for_draft(live);
  event.token_ids.push_back(token);
  event.cached_tokens = request.cached_tokens;
  if (request.generated(choice) < request.max_tokens) return push(request, std::move(event));
  Finish why;
  why.reason = FinishReason::kLength;
  finish(live, std::move(event), std::move(why));
}

}  // namespace artery::engine
