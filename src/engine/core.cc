#include "engine/core.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "base/check.h"

namespace artery::engine {
namespace {

double seconds_between(std::int64_t from_ns, std::int64_t to_ns) {
  return static_cast<double>(std::max<std::int64_t>(0, to_ns - from_ns)) * 1e-9;
}

// So that not even the first chunk of a large model takes seconds: as if this machine computed
// slowly. A few steps later the real speed is known.
double first_guess(const model::ModelInfo& info) {
  constexpr double kOpsPerSecond = 5e10;
  constexpr double kUnknown = 1e-3;
  if (info.ops_per_token <= 0) return kUnknown;
  return static_cast<double>(info.ops_per_token) / kOpsPerSecond;
}

std::int64_t total(const Choice& choice) { return static_cast<std::int64_t>(choice.tokens.size()); }

}  // namespace

Core::Core(
    model::Model& model,
    std::unique_ptr<KvPool> pool,
    Config config,
    const Clock& clock,
    Observer observer
)
    : model_(model),
      pool_(std::move(pool)),
      config_(std::move(config)),
      clock_(clock),
      observer_(std::move(observer)),
      cache_(*pool_),
      runner_(model_, *pool_),
      cost_(first_guess(model_.info())) {}

void Core::add(Submission submission) {
  const std::uint64_t id = submission.id.value;
  auto state = std::make_unique<RequestState>(std::move(submission));
  const Request& request = state->in.request;
  state->arrival = id;
  const std::int64_t room = config_.max_model_len - state->prompt_tokens();
  state->max_tokens = request.max_tokens < 0 ? room : std::min(request.max_tokens, room);
  state->miss = state->in.bypass;
  for (int number = 0; number < request.n; ++number) {
    auto choice = std::make_unique<Choice>(*pool_, number);
    choice->tokens = request.prompt;
    choice->tokens.insert(
        choice->tokens.end(), request.resume_tokens.begin(), request.resume_tokens.end()
    );
    choice->blocked = number > 0;
    choice->offering = state->in.use_cache;
    if (state->in.use_cache) choice->keys = request.chain_keys;
    if (!state->in.matchers.empty()) {
      choice->matcher = std::move(state->in.matchers[static_cast<std::size_t>(number)]);
    }
    if (uses_penalties(request.sampling)) choice->history.add_prompt(request.prompt);
    for (const TokenId token : request.resume_tokens) choice->history.add_generated(token);
    extend_keys(*state, *choice);
    state->choices.push_back(std::move(choice));
  }
  counters_.prompt_tokens += state->prompt_tokens();
  RequestState& added = *requests_.emplace(id, std::move(state)).first->second;
  // A resumed text may already be as long as asked for.
  if (!request.resume_tokens.empty() && added.generated(*added.choices[0]) >= added.max_tokens) {
    end({&added, added.choices[0].get()}, FinishReason::kLength);
  }
  remove_finished();
}

void Core::cancel(RequestId id) {
  const auto it = requests_.find(id.value);
  if (it == requests_.end()) return;
  ++counters_.aborted;
  for (const auto& choice : it->second->choices) {
    end({it->second.get(), choice.get()}, FinishReason::kCancelled);
  }
  remove_finished();
}

void Core::finish_choice(RequestId id, int choice) {
  const auto it = requests_.find(id.value);
  if (it == requests_.end() || choice < 0 || choice >= it->second->in.request.n) return;
  const auto index = static_cast<std::size_t>(choice);
  end({it->second.get(), it->second->choices[index].get()}, FinishReason::kStop);
  remove_finished();
}

void Core::cancel_all() {
  while (!requests_.empty()) cancel(RequestId{requests_.begin()->first});
}

void Core::step() {
  expire_deadlines();
  const std::vector<Live> live = live_by_rank();
  if (live.empty()) return;
  match_prefixes(live);
  Plan plan = make_plan(live);
  // Pages that several waiting ones share come free only when all of them gave them up. The plan
  // goes on from there at once: the next step would hand them the same pages again, for ever.
  while (plan.items.empty() && !plan.preempted.empty()) {
    apply(plan, live);
    plan = make_plan(live);
  }
  CHECK(
      !plan.items.empty(),
      "{} sequences wait and none can move: {} of {} pages are free",
      live.size(),
      pool_->pages_free(),
      pool_->pages_total()
  );
  apply(plan, live);
  run(plan, live);
  remove_finished();
}

void Core::expire_deadlines() {
  const std::int64_t now = clock_.monotonic_ns();
  for (const auto& [id, request] : requests_) {
    const std::int64_t deadline = request->in.request.deadline_ns;
    if (deadline == 0 || now < deadline) continue;
    for (const auto& choice : request->choices) {
      end({request.get(), choice.get()}, FinishReason::kDeadline);
    }
  }
  remove_finished();
}

std::vector<Core::Live> Core::live_by_rank() const {
  std::vector<Live> live;
  for (const auto& [id, request] : requests_) {
    for (const auto& choice : request->choices) {
      if (!choice->done) live.push_back({request.get(), choice.get()});
    }
  }
  std::sort(live.begin(), live.end(), [](const Live& a, const Live& b) {
    const auto rank = [](const Live& each) {
      const RequestState& request = *each.request;
      return std::tuple(request.in.request.priority, request.arrival, each.choice->choice);
    };
    return rank(a) < rank(b);
  });
  return live;
}

// Only those that could be admitted now look, so that a long queue costs nothing.
void Core::match_prefixes(const std::vector<Live>& live) {
  std::int64_t slots = config_.max_num_seqs;
  for (const Live& each : live) slots -= each.choice->running ? 1 : 0;
  std::int64_t rows = config_.max_num_batched_tokens;
  for (const Live& each : live) {
    if (slots <= 0 || rows <= 0) break;
    if (each.choice->running || each.choice->blocked) continue;
    if (each.request->in.use_cache) match_prefix(each);
    --slots;
    rows -= total(*each.choice) - each.choice->kv.computed();
  }
}

// Takes the pages that the cache knows beyond those held. The last token is always computed: its
// logits are needed.
void Core::match_prefix(const Live& live) {
  Choice& choice = *live.choice;
  const std::int64_t start = clock_.monotonic_ns();
  const auto held = static_cast<std::size_t>(choice.kv.page_count());
  const auto usable = static_cast<std::size_t>((total(choice) - 1) / kPageTokens);
  if (held >= usable) return;
  const auto keys = std::span(choice.keys).subspan(held, usable - held);
  const auto tokens = std::span<const TokenId>(choice.tokens).subspan(held * kPageTokens);
  for (const PageId page : cache_.match(keys, tokens).pages) {
    choice.kv.append(PageRef::adopt(*pool_, page));
  }
  choice.kv.set_computed(choice.kv.page_count() * kPageTokens);
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

Plan Core::make_plan(const std::vector<Live>& live) const {
  SchedulerState state;
  state.pages_available = pool_->pages_free() + pool_->pages_idle();
  // Who owns which pages alone matters only when pages are short.
  std::int64_t wanted = 2 * config_.max_num_seqs;
  for (const Live& each : live) {
    wanted += pages_for(total(*each.choice)) - each.choice->kv.page_count();
  }
  const bool pages_short = state.pages_available < wanted;
  std::vector<SequenceView> views;
  views.reserve(live.size());
  for (const Live& each : live) {
    const Choice& choice = *each.choice;
    SequenceView view;
    view.priority = each.request->in.request.priority;
    view.arrival = each.request->arrival;
    view.choice = choice.choice;
    view.running = choice.running;
    view.blocked = choice.blocked;
    view.all_logits = each.request->wants_prompt_logprobs(choice);
    view.tokens = total(choice);
    view.computed = choice.kv.computed();
    view.pages = choice.kv.page_count();
    view.pages_exclusive = pages_short ? choice.kv.exclusive_pages() : 0;
    views.push_back(view);
  }
  state.sequences = views;
  return plan(state, limits());
}

void Core::apply(const Plan& plan, const std::vector<Live>& live) {
  for (const int index : plan.preempted) preempt(live[static_cast<std::size_t>(index)]);
  for (const PlanItem& item : plan.items) {
    const Live& each = live[static_cast<std::size_t>(item.sequence)];
    if (!each.choice->running) admit(each);
    SequenceKv& kv = each.choice->kv;
    const std::int64_t need = pages_for(kv.computed() + item.tokens) - kv.page_count();
    if (pool_->pages_free() < need) cache_.reclaim(need - pool_->pages_free());
    for (std::int64_t i = 0; i < need; ++i) {
      PageRef page = pool_->allocate();
      CHECK(page, "the plan took more pages than there are");
      kv.append(std::move(page));
    }
  }
}

void Core::preempt(const Live& live) {
  Choice& choice = *live.choice;
  if (choice.running) {
    ++choice.preemptions;
    ++counters_.preemptions;
  }
  choice.running = false;
  choice.offering = live.request->in.use_cache;
  choice.kv.truncate(0);
}

void Core::admit(const Live& live) {
  RequestState& request = *live.request;
  Choice& choice = *live.choice;
  choice.running = true;
  if (choice.admitted_ns == 0)
    choice.admitted_ns = std::max<std::int64_t>(1, clock_.monotonic_ns());
  if (request.matched) return;
  request.matched = true;
  if (!request.in.use_cache) return;
  const std::int64_t usable = (request.prompt_tokens() - 1) / kPageTokens;
  const std::int64_t matched = std::min(choice.kv.page_count(), usable);
  request.cached_tokens = matched * kPageTokens;
  const auto keys = std::span(choice.keys).first(static_cast<std::size_t>(usable));
  request.miss =
      usable == 0 ? MissReason::kShort : cache_.why_missed(keys, static_cast<std::size_t>(matched));
  counters_.cached_tokens += request.cached_tokens;
  counters_.prefix_queries += request.prompt_tokens();
  counters_.prefix_hits += request.cached_tokens;
}

void Core::run(const Plan& plan, const std::vector<Live>& live) {
  const std::int64_t start = clock_.monotonic_ns();
  std::vector<Chunk> chunks;
  StepStats stats;
  std::int64_t context = 0;
  for (const PlanItem& item : plan.items) {
    const Live& each = live[static_cast<std::size_t>(item.sequence)];
    const Choice& choice = *each.choice;
    const std::int64_t computed = choice.kv.computed();
    const std::int64_t pending = total(choice) - computed;
    Chunk chunk{choice.tokens, &choice.kv, item.tokens, item.tokens};
    if (item.tokens == pending) chunk.logits_from = item.tokens - 1;
    if (each.request->wants_prompt_logprobs(choice)) chunk.logits_from = 0;
    chunks.push_back(chunk);
    context += item.tokens * computed + item.tokens * (item.tokens + 1) / 2;
    const bool decode = choice.first_token_ns != 0 && pending == 1;
    (decode ? stats.decode_tokens : stats.prefill_tokens) += static_cast<int>(item.tokens);
  }
  runner_.run(chunks);
  for (std::size_t i = 0; i < plan.items.size(); ++i) {
    commit(live[static_cast<std::size_t>(plan.items[i].sequence)], i, plan.items[i].tokens);
  }
  stats.seconds = seconds_between(start, clock_.monotonic_ns());
  cost_.observe(stats.prefill_tokens + stats.decode_tokens, context, stats.seconds);
  ++counters_.steps;
  counters_.busy_s += stats.seconds;
  counters_.step_s_max = std::max(counters_.step_s_max, stats.seconds);
  if (observer_.on_step) observer_.on_step(stats);
}

void Core::commit(const Live& live, std::size_t chunk, std::int64_t rows) {
  Choice& choice = *live.choice;
  if (choice.done) return;  // an earlier chunk of this step ended the request
  const std::int64_t before = choice.kv.computed();
  const bool complete = before + rows == total(choice);
  if (live.request->wants_prompt_logprobs(choice)) collect_prompt_logprobs(live, chunk, rows);
  choice.kv.set_computed(before + rows);
  offer_pages(live, before);
  if (!complete) return;
  if (!live.request->forked) prompt_ready(live);
  if (!choice.done) sample(live, runner_.logits(chunk, rows - 1));
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
  const std::int64_t end = choice.kv.computed() / kPageTokens;
  for (std::int64_t page = computed_before / kPageTokens; page < end && choice.offering; ++page) {
    const auto at = static_cast<std::size_t>(page);
    const ChainKey& parent = page == 0 ? live.request->in.root : choice.keys[at - 1];
    const auto ids = std::span<const TokenId>(choice.tokens).subspan(at * kPageTokens, kPageTokens);
    const PageId mine = choice.kv.pages()[at].page();
    const PageId kept = cache_.offer(choice.keys[at], parent, ids, mine);
    if (kept != mine) choice.kv.replace(page, kept);
    choice.offering = pool_->cached(kept);
  }
}

// Row i of the prompt predicts token i + 1. After a preemption the rows come again, with the same
// bits.
void Core::collect_prompt_logprobs(const Live& live, std::size_t chunk, std::int64_t rows) {
  RequestState& request = *live.request;
  const std::int64_t before = live.choice->kv.computed();
  for (std::int64_t row = 0; row < rows; ++row) {
    const std::int64_t next = before + row + 1;
    const auto known = static_cast<std::int64_t>(request.prompt_logprobs.size());
    if (next >= request.prompt_tokens() || next != known + 1) continue;
    request.prompt_logprobs.push_back(sampler_.logprobs(
        runner_.logits(chunk, row),
        live.choice->tokens[static_cast<std::size_t>(next)],
        request.in.request.prompt_logprobs
    ));
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
    request.in.events->push(std::move(event));
  }
  if (request.max_tokens == 0) {
    for (const auto& choice : request.choices) end({&request, choice.get()}, FinishReason::kLength);
    return;
  }
  const std::int64_t shared = (request.prompt_tokens() - 1) / kPageTokens;
  for (const auto& choice : request.choices) {
    if (!choice->blocked || choice->done) continue;
    choice->blocked = false;
    choice->offering = leader.offering;
    for (std::int64_t page = 0; page < shared; ++page) {
      choice->kv.append(leader.kv.pages()[static_cast<std::size_t>(page)].share());
    }
    choice->kv.set_computed(shared * kPageTokens);
  }
}

void Core::sample(const Live& live, std::span<const float> logits) {
  RequestState& request = *live.request;
  Choice& choice = *live.choice;
  const SamplingParams& params = request.in.request.sampling;
  const SampleContext context{
      params,
      choice.choice,
      static_cast<Position>(total(choice)),
      request.generated(choice),
      &choice.history,
      choice.matcher.get()
  };
  Result<Sampled> sampled = sampler_.sample(logits, context);
  if (choice.first_token_ns == 0) {
    choice.first_token_ns = std::max<std::int64_t>(1, clock_.monotonic_ns());
  }
  Event event;
  event.choice = choice.choice;
  event.first_position = context.position;
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
  choice.tokens.push_back(token);
  if (uses_penalties(params)) choice.history.add_generated(token);
  ++counters_.generated_tokens;
  event.token_ids.push_back(token);
  if (params.logprobs >= 0) event.logprobs.push_back(std::move(sampled->logprobs));
  if (request.generated(choice) >= request.max_tokens) {
    why.reason = FinishReason::kLength;
    return finish(live, std::move(event), std::move(why));
  }
  request.in.events->push(std::move(event));
}

Usage Core::usage(const RequestState& request, const Choice& choice) const {
  const std::int64_t now = clock_.monotonic_ns();
  const std::int64_t admitted = choice.admitted_ns == 0 ? now : choice.admitted_ns;
  const std::int64_t first = choice.first_token_ns == 0 ? now : choice.first_token_ns;
  Usage usage;
  usage.prompt_tokens = request.prompt_tokens();
  usage.cached_tokens = request.cached_tokens;
  usage.generated_tokens = request.generated(choice);
  usage.preemptions = choice.preemptions;
  usage.miss = request.miss;
  usage.timings.queue_s = seconds_between(request.in.submitted_ns, admitted);
  usage.timings.cache_lookup_s = request.cache_lookup_s;
  usage.timings.prefill_s = seconds_between(admitted, first);
  usage.timings.decode_s = seconds_between(first, now);
  return usage;
}

void Core::finish(const Live& live, Event event, Finish finish) {
  Choice& choice = *live.choice;
  finish.usage = usage(*live.request, choice);
  event.finish = std::move(finish);
  choice.done = true;
  choice.running = false;
  choice.kv.truncate(0);
  promote_leader(*live.request);
  live.request->in.events->push(std::move(event));
}

void Core::end(const Live& live, FinishReason reason) {
  if (live.choice->done) return;
  Event event;
  event.choice = live.choice->choice;
  event.first_position = static_cast<Position>(total(*live.choice));
  Finish why;
  why.reason = reason;
  finish(live, std::move(event), std::move(why));
}

// When the leader ends before the prompt is computed, the next choice takes its place.
void Core::promote_leader(RequestState& request) {
  if (request.forked || !request.choices[request.leader]->done) return;
  while (request.leader < request.choices.size() && request.choices[request.leader]->done) {
    ++request.leader;
  }
  if (request.leader < request.choices.size()) request.choices[request.leader]->blocked = false;
}

void Core::remove_finished() {
  for (auto it = requests_.begin(); it != requests_.end();) {
    const auto& choices = it->second->choices;
    if (std::all_of(choices.begin(), choices.end(), [](const auto& c) { return c->done; })) {
      finished_.push_back(RequestId{it->first});
      it = requests_.erase(it);
    } else {
      ++it;
    }
  }
}

int Core::waiting_requests() const {
  return static_cast<int>(std::count_if(requests_.begin(), requests_.end(), [](const auto& entry) {
    const auto& choices = entry.second->choices;
    return std::none_of(choices.begin(), choices.end(), [](const auto& c) {
      return c->admitted_ns != 0;
    });
  }));
}

bool Core::reset_prefix_cache() {
  cache_.reclaim(cache_.pages());
  return cache_.pages() == 0;
}

void Core::fill(Status& status) const {
  const Status old = std::exchange(status, counters_);
  status.waiting = 0;
  for (const auto& [id, request] : requests_) {
    for (const auto& choice : request->choices) {
      if (!choice->done) ++(choice->running ? status.running : status.waiting);
    }
  }
  status.pages_total = pool_->pages_total();
  status.pages_in_use = pool_->pages_in_use();
  status.pages_cached = pool_->pages_idle();
  status.max_model_len = config_.max_model_len;
  status.rejected = old.rejected;
  status.draining = old.draining;
  status.last_step_age_s = old.last_step_age_s;
}

void Core::check_integrity() const {
  pool_->check_integrity();
  cache_.check_integrity();
  std::int64_t held = 0;
  for (const auto& [id, request] : requests_) {
    for (const auto& choice : request->choices) held += choice->kv.page_count();
  }
  std::int64_t counted = -cache_.pages();
  for (PageId page = 0; page < static_cast<PageId>(pool_->pages_total()); ++page) {
    counted += pool_->references(page);
  }
  CHECK(held == counted, "sequences hold {} references, {} are counted", held, counted);
}

}  // namespace artery::engine
