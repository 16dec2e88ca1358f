// The first third of a step: what to run next, given what is known while the step before computes.

#include <algorithm>
#include <tuple>
#include <utility>

#include "base/check.h"
#include "engine/core.h"
#include "engine/core_parts.h"

namespace artery::engine {

std::unique_ptr<StepWork> Core::prepare() {
  CHECK(outstanding_ <= 1, "{} steps are outstanding", outstanding_);
  expire_deadlines();
  if (windows_ != nullptr) expire_windows();
  poll_store();
  stalled_ = false;
  list_live();
  if (live_.empty() || drafts_wait()) return nullptr;
  propose_drafts();
  match_prefixes();
  const Plan plan = plan_what_moves();
  if (plan.items.empty()) {
    stalled_ = outstanding_ == 0;
    CHECK(
        outstanding_ > 0 || loading(),
        "{} sequences wait and none can move: {} of {} pages are free",
        live_.size(),
        pool_.pages_free(),
        pool_.pages_total()
    );
    return nullptr;
  }
  apply(plan);
  return make_work(plan);
}

void Core::list_live() {
  live_.clear();
  for (const auto& [id, request] : requests_) {
    for (const auto& choice : request->choices) {
      if (!choice->done) live_.push_back({request.get(), choice.get()});
    }
  }
  std::sort(live_.begin(), live_.end(), [](const Live& a, const Live& b) {
    const auto rank = [](const Live& each) {
      const RequestState& request = *each.request;
      return std::tuple(request.in.request.priority, request.arrival, each.choice->choice);
    };
    return rank(a) < rank(b);
  });
}

// Only those that could be admitted now look, so that a long queue costs nothing.
void Core::match_prefixes() {
  std::int64_t slots = config_.max_num_seqs;
  for (const Live& each : live_) slots -= each.choice->running ? 1 : 0;
  std::int64_t rows = config_.max_num_batched_tokens;
  for (const Live& each : live_) {
    if (slots <= 0 || rows <= 0) break;
    if (each.choice->running || each.choice->blocked || each.choice->awaited) continue;
    if (each.choice->stored.load != 0 || each.choice->window_load != 0) continue;
    if (each.request->in.use_cache) match_prefix(each);
    --slots;
    rows -= total(*each.choice) - each.choice->kv.computed();
  }
  if (link_.store != nullptr) look_for_loads();
  if (windows_ == nullptr) return;
  // All of them: a saved window may be gone, and the plan may admit one that was not looked at.
  for (const Live& each : live_) {
    if (!each.choice->running && each.choice->kv.page_count() > 0) choose_start(each);
  }
  if (window_link_.store != nullptr) look_for_windows();
}

// Takes the pages that the cache knows beyond those held. The last token is always computed: its
// logits are needed.
void Core::match_prefix(const Live& live) {
  Choice& choice = *live.choice;
  const std::int64_t start = clock_.monotonic_ns();
  const auto held = static_cast<std::size_t>(choice.kv.page_count());
  const auto usable = static_cast<std::size_t>((total(choice) - 1) / kPageTokens);
  if (held >= usable) return;
  extend_keys(*live.request, choice);
  const auto keys = std::span(choice.keys).subspan(held, usable - held);
  const auto tokens = std::span<const TokenId>(choice.tokens).subspan(held * kPageTokens);
  const std::vector<PageId> found = cache_.match(keys, tokens).pages;
  for (const PageId page : found) choice.kv.append(PageRef::adopt(pool_, page));
  if (!found.empty()) {
    choice.kv.start_at(choice.kv.page_count() * kPageTokens, true);
    choice.start_pages = 0;  // choose_start: earlier with window groups
  }
  live.request->cache_lookup_s += seconds_between(start, clock_.monotonic_ns());
}

Limits Core::limits() const {
  Limits limits;
  limits.seqs_max = config_.max_num_seqs;
  limits.tokens_max = config_.max_num_batched_tokens;
  limits.chunk_max = config_.prefill_chunk_max;
  limits.step_seconds_max = kStepAim * config_.step_seconds_max;
  // Weights unpacked anew in every step can make even one row too dear. No chunk holds the limit
  // then, and going row by row would only pay that price for each: take the rows that cost no more
  // than the step itself.
  if (cost_.predict(1, 0) > config_.step_seconds_max) {
    limits.step_seconds_max = 2 * cost_.predict(0, 0);
  }
  limits.cost = &cost_;
  return limits;
}

// A choice as it will be when the outstanding step is done. One that has nothing to run then, or of
// which that is not known, is blocked: its last token is on the way, or it was preempted in flight.
SequenceView Core::view_of(const Live& live, bool pages_short) const {
  const RequestState& request = *live.request;
  const Choice& choice = *live.choice;
  SequenceView view;
  view.priority = request.in.request.priority;
  view.arrival = request.arrival;
  view.choice = choice.choice;
  view.running = choice.running;
  view.tokens = total(choice) + choice.flight_tokens;
  view.computed = choice.kv.computed() + choice.flight_rows;
  view.all_logits =
      request.wants_prompt_logprobs(choice) && view.computed < request.prompt_tokens();
  view.drafts = static_cast<int>(choice.drafts.size());
  view.loading = choice.stored.load != 0 || choice.window_load != 0;
  view.pages = choice.kv.page_count();
  view.pages_exclusive = pages_short ? choice.kv.exclusive_pages() : 0;
  if (view.loading) {
    const std::int64_t reserved = pages_reserved(choice);
    view.pages += reserved;
    view.pages_exclusive += reserved;
  }
  const bool ending = choice.flight_tokens > 0 &&
                      request.generated(choice) + choice.flight_tokens >= request.max_tokens;
  view.blocked = choice.blocked || choice.awaited || ending || view.computed >= view.tokens;
  return view;
}

Plan Core::make_plan() {
  SchedulerState state;
  state.pages_available = pool_.pages_free() + pool_.pages_idle();
  // Who owns which pages alone matters only when pages are short.
  std::int64_t wanted = 2 * config_.max_num_seqs;
  for (const Live& each : live_) {
    wanted += pages_for(total(*each.choice)) - each.choice->kv.page_count();
  }
  const bool pages_short = state.pages_available < wanted;
  views_.clear();
  for (const Live& each : live_) views_.push_back(view_of(each, pages_short));
  state.sequences = views_;
  Limits within = limits();
  if (windows_ != nullptr) {
    // One whose last row is on its way still holds its window pages, and so its slot.
    within.seqs_max -=
        static_cast<int>(std::count_if(views_.begin(), views_.end(), [](const auto& view) {
          return view.running && view.blocked;
        }));
    if (within.seqs_max <= 0) return {};
  }
  return plan(state, within);
}

// Pages that several waiting ones share come free only when all of them gave them up. The plan goes
// on from there at once: the next step would hand them the same pages again, for ever.
Plan Core::plan_what_moves() {
  Plan plan = make_plan();
  while (plan.items.empty() && !plan.preempted.empty()) {
    apply(plan);
    plan = make_plan();
  }
  return plan;
}

void Core::apply(const Plan& plan) {
  for (const int index : plan.preempted) preempt(live_[static_cast<std::size_t>(index)]);
  for (const PlanItem& item : plan.items) {
    const Live& each = live_[static_cast<std::size_t>(item.sequence)];
    if (!each.choice->running) admit(each);
  }
  for (const PlanItem& item : plan.items) {
    const Live& each = live_[static_cast<std::size_t>(item.sequence)];
    SequenceKv& kv = each.choice->kv;
    const std::int64_t end = kv.computed() + each.choice->flight_rows + item.tokens;
    const std::int64_t need = pages_for(end) - kv.page_count();
    if (pool_.pages_free() < need) cache_.reclaim(need - pool_.pages_free());
    for (std::int64_t i = 0; i < need; ++i) {
      PageRef page = pool_.allocate();
      CHECK(page, "the plan took more pages than there are");
      kv.append(std::move(page));
    }
    if (windows_ != nullptr) take_window_pages(*each.choice, end);
  }
}

// Also while a step computes with the pages: whoever gets them writes them in a later one.
void Core::preempt(const Live& live) {
  Choice& choice = *live.choice;
  leave_load(live);
  leave_window_load(live);
  choice.window_looked = 0;
  if (choice.running) {
    ++choice.preemptions;
    ++counters_.preemptions;
    if (windows_ != nullptr) give_up_windows(live);
    choice.stored.looked = choice.stored.decided = false;
  }
  choice.stored.disk_begin = choice.stored.disk_end = 0;
  if (choice.flights > 0) hazard_ = prepared_;
  choice.running = false;
  choice.offering = live.request->in.use_cache;
  choice.awaited = choice.flights > 0;
  choice.start_pages = 0;
  choice.start_saved = false;
  choice.flight_rows = 0;
  ++choice.kv_epoch;
  choice.kv.truncate(0);
}

void Core::admit(const Live& live) {
  RequestState& request = *live.request;
  Choice& choice = *live.choice;
  choice.running = true;
  if (choice.admitted_ns == 0)
    choice.admitted_ns = std::max<std::int64_t>(1, clock_.monotonic_ns());
  if (windows_ != nullptr) admit_windows(live);
  if (request.matched) return;
  request.matched = true;
  account(live);
}

StepItem Core::make_item(const Live& live, std::int64_t rows) const {
  const RequestState& request = *live.request;
  const Choice& choice = *live.choice;
  StepItem item;
  item.request = live.request;
  item.choice = live.choice;
  item.first = choice.kv.computed() + choice.flight_rows;
  item.rows = rows;
  item.kv_epoch = choice.kv_epoch;
  const std::int64_t known = total(choice) + choice.flight_tokens;
  const std::int64_t drafts = std::max<std::int64_t>(0, item.first + rows - known);
  CHECK(drafts <= std::ssize(choice.drafts), "{} rows of no token", drafts);
  item.drafts.assign(choice.drafts.begin(), choice.drafts.begin() + drafts);
  item.completes = item.first + rows >= known;
  item.samples = item.completes && request.max_tokens > 0;
  item.decode = item.completes && rows == 1 + drafts && item.first >= request.prompt_tokens();
  item.prompt_logprobs =
      request.wants_prompt_logprobs(choice) && item.first < request.prompt_tokens();
  item.logits_from = item.samples ? rows - 1 - drafts : rows;
  if (item.prompt_logprobs) item.logits_from = 0;
  item.late = item.completes && choice.flight_tokens > 0;
  item.late_from = choice.flight_item;
  return item;
}

std::unique_ptr<StepWork> Core::make_work(const Plan& plan) {
  std::unique_ptr<StepWork> work;
  if (spare_.empty()) {
    work = std::make_unique<StepWork>();
  } else {
    work = std::move(spare_.back());
    spare_.pop_back();
  }
  for (const PlanItem& planned : plan.items) {
    const Live& each = live_[static_cast<std::size_t>(planned.sequence)];
    work->items.push_back(make_item(each, planned.tokens));
    const StepItem& item = work->items.back();
    (item.decode ? work->decode_rows : work->prefill_rows) += item.rows;
    work->draft_rows += std::ssize(item.drafts);
    work->context += item.rows * item.first + item.rows * (item.rows + 1) / 2;
  }
  if (work->draft_rows > 0) {
    const std::int64_t rows = work->decode_rows + work->prefill_rows;
    work->seconds_predicted = cost_.predict(rows, work->context);
  }
  draft_rows_ += work->draft_rows;
  runner_.fill(*work);
  for (std::size_t i = 0; i < work->items.size(); ++i) {
    const StepItem& item = work->items[i];
    Choice& choice = *item.choice;
    ++choice.flights;
    choice.flight_rows += item.rows;
    choice.flight_tokens += item.samples ? 1 : 0;
    if (item.samples) choice.flight_item = i;
  }
  ++outstanding_;
  ++prepared_;
  return work;
}

void Core::unprepare(std::unique_ptr<StepWork> work) {
  for (const StepItem& item : work->items) {
    if (item.late) item.choice->flight_item = item.late_from;
    take_back(item);
    if (windows_ != nullptr && !item.choice->done) {
      item.choice->kv.trim_windows(item.choice->kv.computed() + item.choice->flight_rows);
    }
  }
  recycle(std::move(work));
  --prepared_;
  remove_finished();
}

// The item is no longer on its way.
void Core::take_back(const StepItem& item) {
  Choice& choice = *item.choice;
  --choice.flights;
  choice.flight_tokens -= item.samples ? 1 : 0;
  if (item.kv_epoch == choice.kv_epoch) choice.flight_rows -= item.rows;
  if (choice.flights == 0) choice.awaited = false;
  release(choice);
}

void Core::recycle(std::unique_ptr<StepWork> work) {
  --outstanding_;
  draft_rows_ -= work->draft_rows;
  work->items.clear();
  work->prefill_rows = work->decode_rows = work->context = work->draft_rows = 0;
  work->armed = false;
  spare_.push_back(std::move(work));
}

}  // namespace artery::engine
