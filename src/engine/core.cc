#include "engine/core.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "engine/core_parts.h"

namespace artery::engine {
namespace {

// So that not even the first chunk of a large model takes seconds: as if this machine computed
// slowly. A few steps later the real speed is known.
double first_guess(const model::ModelInfo& info) {
  constexpr double kOpsPerSecond = 5e10;
  constexpr double kUnknown = 1e-3;
  if (info.ops_per_token <= 0) return kUnknown;
  return static_cast<double>(info.ops_per_token) / kOpsPerSecond;
}

}  // namespace

Core::Core(
    model::Model& model,
    std::unique_ptr<KvSpaces> spaces,
    Config config,
    const Clock& clock,
    Observer observer
)
    : model_(model),
      spaces_(std::move(spaces)),
      pool_(spaces_->global()),
      config_(std::move(config)),
      clock_(clock),
      observer_(std::move(observer)),
      cache_(pool_),
      runner_(model_, *spaces_, clock_),
      cost_(first_guess(model_.info())) {
  connect_store();
  if (!spaces_->shape()) return;
  if (config_.swa_replay > 0) spaces_->set_replay(config_.swa_replay);
  windows_ = std::make_unique<WindowCache>(spaces_->window(), config_.window_ttl_s);
  cache_.set_on_evict([this](const ChainKey& key) { windows_->erase(key); });
  connect_window_store();
}

void Core::add(Submission submission) {
  const std::uint64_t id = submission.id.value;
  auto state = std::make_unique<RequestState>(std::move(submission));
  const Request& request = state->in.request;
  state->arrival = id;
  const std::int64_t room = config_.max_model_len - state->prompt_tokens();
  state->max_tokens = request.max_tokens < 0 ? room : std::min(request.max_tokens, room);
  state->miss = state->in.bypass;
  for (int number = 0; number < request.n; ++number) {
    auto choice = std::make_unique<Choice>(*spaces_, number);
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
    const bool follows_rules = choice->matcher != nullptr || uses_penalties(request.sampling);
    if (config_.speculation.mode != SpeculationMode::kOff && !follows_rules)
      choice->drafter = std::make_unique<Drafter>(config_.speculation);
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
  deliver();
}

void Core::cancel(RequestId id) {
  const auto it = requests_.find(id.value);
  if (it == requests_.end()) return;
  const auto& choices = it->second->choices;
  if (std::all_of(choices.begin(), choices.end(), [](const auto& c) { return c->done; })) return;
  ++counters_.aborted;
  for (const auto& choice : it->second->choices) {
    end({it->second.get(), choice.get()}, FinishReason::kCancelled);
  }
  remove_finished();
  deliver();
}

void Core::finish_choice(RequestId id, int choice) {
  const auto it = requests_.find(id.value);
  if (it == requests_.end() || choice < 0 || choice >= it->second->in.request.n) return;
  const auto index = static_cast<std::size_t>(choice);
  end({it->second.get(), it->second->choices[index].get()}, FinishReason::kStop);
  remove_finished();
  deliver();
}

void Core::cancel_all() {
  std::vector<RequestId> ids;
  for (const auto& [id, request] : requests_) ids.push_back(RequestId{id});
  for (const RequestId id : ids) cancel(id);
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

void Core::step() {
  std::unique_ptr<StepWork> work = prepare();
  if (work != nullptr) {
    arm(*work);
    runner_.forward(*work);
    runner_.sample(*work);
    complete(std::move(work));
  }
  deliver();
}

void Core::push(const RequestState& request, Event event) {
  outbox_.emplace_back(request.in.events, std::move(event));
}

void Core::deliver() {
  for (auto& [events, event] : outbox_) events->push(std::move(event));
  outbox_.clear();
}

Usage Core::usage(const RequestState& request, const Choice& choice) const {
  const std::int64_t now = clock_.monotonic_ns();
  const std::int64_t admitted = choice.admitted_ns == 0 ? now : choice.admitted_ns;
  const std::int64_t first = choice.first_token_ns == 0 ? now : choice.first_token_ns;
  Usage usage;
  usage.prompt_tokens = request.prompt_tokens();
  usage.cached_tokens = request.cached_tokens;
  usage.disk_tokens = request.disk_tokens;
  usage.generated_tokens = request.generated(choice);
  usage.preemptions = choice.preemptions;
  usage.miss = request.miss;
  // Kept only if all of the prompt is there to be kept.
  if (choice.stored.stored() >= request.prompt_tokens() / kPageTokens) {
    usage.guaranteed_until_s = request.guaranteed_until_s;
  }
  usage.timings.queue_s =
      std::max(0.0, seconds_between(request.in.submitted_ns, admitted) - request.load_s);
  usage.timings.load_s = request.load_s;
  usage.timings.cache_lookup_s = request.cache_lookup_s;
  usage.timings.prefill_s = seconds_between(admitted, first);
  usage.timings.decode_s = seconds_between(first, now);
  return usage;
}

void Core::finish(const Live& live, Event event, Finish finish) {
  Choice& choice = *live.choice;
  leave_load(live);
  leave_window_load(live);
  if (choice.running) write_through(live, true);
  finish.usage = usage(*live.request, choice);
  event.finish = std::move(finish);
  if (windows_ != nullptr) give_up_windows(live);
  choice.done = true;
  choice.running = false;
  release(choice);
  promote_leader(*live.request);
  push(*live.request, std::move(event));
}

// Gives the pages of an ended choice back, when no step computes with them: what such a step makes
// of them is kept in the prefix cache first.
void Core::release(Choice& choice) {
  if (!choice.done || choice.flights > 0) return;
  choice.kv.truncate(0);
  ++choice.kv_epoch;
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
    if (std::all_of(choices.begin(), choices.end(), [](const auto& c) {
          return c->done && c->flights == 0;
        })) {
      finished_.push_back(RequestId{it->first});
      if (windows_ != nullptr) forget_windows(*it->second);
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
  if (windows_ != nullptr) windows_->clear();
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
  status.pages_total = pool_.pages_total();
  status.pages_in_use = pool_.pages_in_use();
  status.pages_cached = pool_.pages_idle();
  if (windows_ != nullptr) {
    const KvPool& pool = spaces_->window();
    status.window_pages_total = pool.pages_total();
    status.window_pages_saved = windows_->pages_idle();
    status.window_pages_in_use = pool.pages_in_use() - status.window_pages_saved;
    status.windows_saved = windows_->windows();
  }
  status.max_model_len = config_.max_model_len;
  status.inbox_max = config_.inbox_max;
  status.rejected = old.rejected;
  status.draining = old.draining;
  status.last_step_age_s = old.last_step_age_s;
}

void Core::check_integrity() const {
  pool_.check_integrity();
  cache_.check_integrity();
  if (windows_ != nullptr) check_windows();
  std::int64_t held = 0;
  for (const auto& [id, request] : requests_) {
    for (const auto& choice : request->choices) {
      held += choice->kv.page_count() + pages_reserved(*choice);
    }
  }
  std::int64_t counted = -cache_.pages();
  for (PageId page = 0; page < static_cast<PageId>(pool_.pages_total()); ++page) {
    counted += pool_.references(page);
  }
  CHECK(held == counted, "sequences hold {} references, {} are counted", held, counted);
}

}  // namespace artery::engine
