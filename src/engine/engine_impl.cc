#include "engine/engine_impl.h"

#include <chrono>
#include <exception>

#if defined(__SSE__)
#include <xmmintrin.h>
#endif

#include "base/check.h"
#include "base/log.h"
#include "base/memory_limit.h"
#include "base/random.h"
#include "engine/check_request.h"
#include "engine/kv_namespace.h"
#include "engine/pool_size.h"

namespace artery::engine {
namespace {

constexpr std::chrono::milliseconds kResetIdle{1000}, kResetBusy{20}, kResetPause{2};

std::string random_secret() {
  std::string secret;
  for (int i = 0; i < 4; ++i) {
    const std::uint64_t bits = system_random().next();
    for (int byte = 0; byte < 8; ++byte) secret += static_cast<char>(bits >> (8 * byte) & 0xff);
  }
  return secret;
}

void warn_of_replay(const model::KvLayout& layout, int rows) {
  if (rows < 0) return;
  const WindowShape shape = WindowShape::of(layout);
  if (!shape) {
    log_info("--swa-replay has no effect: this model has no sliding-window layers");
  } else if (effective_replay(layout, rows) < 0) {
    log_info("--swa-replay {} has no effect: {} rows are exact already", rows, shape.reach);
  } else {
    log_warn(
        "--swa-replay {}: a hit whose windows are gone runs {} rows again, {} would be exact: "
        "answers after it may differ from those of a cold run",
        rows,
        rows,
        shape.reach
    );
  }
}

}  // namespace

EngineImpl::EngineImpl(
    std::unique_ptr<model::Model> model,
    std::unique_ptr<KvSpaces> spaces,
    Config config,
    const Clock& clock,
    Observer observer
)
    : model_(std::move(model)),
      info_(model_->info()),
      numerics_id_(kv_numerics_id(model_->kv_layout(), config.swa_replay)),
      config_(std::move(config)),
      clock_(clock),
      secret_(config_.cache_secret.empty() ? random_secret() : config_.cache_secret),
      space_(kv_namespace(info_, model_->kv_layout(), config_.swa_replay)),
      core_(*model_, std::move(spaces), config_, clock, std::move(observer)) {
  core_.fill(status_);
  alive_ns_ = clock_.monotonic_ns();
  thread_ = std::thread([this] { thread_main(); });
  if (config_.store == nullptr) return;
  // Pages know their tenant by their keys only: the RAM tier is emptied as a whole.
  config_.store->set_on_erased([this](const std::string&) { reset_prefix_cache(); });
}

EngineImpl::~EngineImpl() {
  if (config_.store != nullptr) config_.store->set_on_erased({});
  {
    MutexLock lock(mu_);
    stop_ = true;
    orders_cv_.notify_all();
  }
  thread_.join();
}

ChainKey EngineImpl::root_of(const Request& request) const {
  return kv_root(secret_, space_, request.tenant, request.salt);
}

Result<Submission> EngineImpl::prepare(Request request, std::shared_ptr<EventStream> events) const {
  TRY(check_request(request, info_.vocab_size, config_.max_model_len));
  Submission out;
  if (request.make_matcher) {
    for (int choice = 0; choice < request.n; ++choice) {
      auto matcher = request.make_matcher(choice);
      if (matcher == nullptr) return fail(Code::kInternal, "the grammar gave no matcher");
      for (const TokenId token : request.resume_tokens) {
        if (!matcher->accept(token)) {
          return fail_field("resume_tokens", "the grammar does not allow the resumed tokens");
        }
      }
      out.matchers.push_back(std::move(matcher));
    }
  }
  if (!config_.enable_prefix_caching) {
    out.bypass = MissReason::kDisabled;
  } else if (!request.use_prefix_cache || request.prompt_logprobs >= 0) {
    out.bypass = MissReason::kBypassed;
  } else {
    out.use_cache = true;
    out.root = root_of(request);
    if (request.chain_keys.size() != request.prompt.size() / kPageTokens) {
      request.chain_keys = chain_keys(out.root, request.prompt);
    }
  }
  out.request = std::move(request);
  out.events = std::move(events);
  out.submitted_ns = clock_.monotonic_ns();
  return out;
}

Result<RequestId> EngineImpl::submit(Request request, std::shared_ptr<EventStream> events) {
  Submission submission = TRY(prepare(std::move(request), std::move(events)));
  MutexLock lock(mu_);
  if (status_.draining || stop_) {
    ++status_.rejected;
    return fail(Code::kUnavailable, "the server is shutting down and takes no new requests");
  }
  if (static_cast<int>(inbox_.size()) + core_waiting_ >= config_.inbox_max) {
    ++status_.rejected;
    return fail(
        Code::kOverloaded, "{} requests are waiting already; try again later", config_.inbox_max
    );
  }
  submission.id = RequestId{next_id_++};
  const RequestId id = submission.id;
  live_.insert(id.value);
  inbox_.push_back(std::move(submission));
  orders_cv_.notify_one();
  return id;
}

void EngineImpl::cancel(RequestId id) {
  MutexLock lock(mu_);
  if (!live_.contains(id.value)) return;
  cancels_.insert(id.value);
  orders_cv_.notify_one();
}

void EngineImpl::finish_choice(RequestId id, int choice) {
  MutexLock lock(mu_);
  if (!live_.contains(id.value) || choice < 0) return;
  choice_ends_.insert({id.value, choice});
  orders_cv_.notify_one();
}

Status EngineImpl::status() const {
  MutexLock lock(mu_);
  Status out = status_;
  out.waiting += static_cast<int>(inbox_.size());
  const double age = static_cast<double>(clock_.monotonic_ns() - alive_ns_) * 1e-9;
  out.last_step_age_s = idle_ ? 0 : std::max(0.0, age);
  return out;
}

std::optional<kvstore::StoreStatus> EngineImpl::store_status() const {
  if (config_.store == nullptr) return std::nullopt;
  kvstore::StoreStatus status = config_.store->status();
  status.unused = core_.store_unused();
  return status;
}

// A request's end is told before the step after it, which may hold its pages, has landed. So what
// does not go at once is asked for again: for a moment, and without running requests for longer.
bool EngineImpl::reset_prefix_cache() {
  const auto begun = std::chrono::steady_clock::now();
  MutexLock lock(mu_);
  while (true) {
    const std::uint64_t mine = ++resets_asked_;
    orders_cv_.notify_one();
    while (resets_done_ < mine) changes_cv_.wait(mu_);
    const auto patience = live_.empty() ? kResetIdle : kResetBusy;
    if (reset_clean_ || std::chrono::steady_clock::now() > begun + patience) return reset_clean_;
    changes_cv_.wait_for(mu_, kResetPause);
  }
}

void EngineImpl::begin_drain() {
  MutexLock lock(mu_);
  status_.draining = true;
}

bool EngineImpl::drain(double timeout_s) {
  begin_drain();
  const auto until = std::chrono::steady_clock::now() + std::chrono::duration<double>(timeout_s);
  MutexLock lock(mu_);
  while (!live_.empty()) {
    if (changes_cv_.wait_until(mu_, until) == std::cv_status::timeout) break;
  }
  return live_.empty();
}

// Library exceptions (out of memory among them) end here, with a message: the engine's state is
// unknown then, and a supervisor restarts a clean process.
void EngineImpl::thread_main() {
#if defined(__SSE__)
  _mm_setcsr(0x1f80);  // round to nearest, no flush to zero: bits must not depend on the starter
#endif
  try {
    if (config_.store != nullptr) {
      config_.store->set_notify([this] {
        {
          const MutexLock lock(mu_);
          store_ready_ = true;
        }
        orders_cv_.notify_one();
      });
    }
    if (config_.async_scheduling) {
      run_ahead();
    } else {
      run_in_turn();
    }
    core_.cancel_all();
    publish();
    if (config_.store != nullptr) config_.store->set_notify({});
  } catch (const std::exception& error) {
    CHECK(false, "the engine thread failed: {}", error.what());
  }
}

void EngineImpl::run_in_turn() {
  while (take_orders(nullptr)) {
    publish();  // a first step may be long, and what waits for it is to be seen
    core_.step();
    publish();
  }
}

// One step computes, one is planned, and this thread has the time of a step to commit the one
// before. What comes first is what the computing thread waits for: the masks of the step it runs,
// then the next step; consumers get their events after that.
void EngineImpl::run_ahead() {
  StepThread steps(core_.runner(), [this] {
    {
      const MutexLock lock(mu_);
      step_done_ = true;
    }
    orders_cv_.notify_one();  // without the lock: a thread stopped here holds up nobody
  });
  while (take_orders(&steps)) {
    post_step(steps);
    core_.deliver();
    publish();
  }
  take_back_step(&steps);
  core_.cancel_all();
  while (!posted_.empty()) {
    land_steps(steps);
    std::this_thread::yield();
  }
}

// A step that has not begun is planned anew.
void EngineImpl::take_back_step(StepThread* steps) {
  if (steps == nullptr) return;
  if (auto waiting = steps->retract()) {
    posted_.pop_back();
    core_.unprepare(std::move(waiting));
  }
}

void EngineImpl::land_steps(StepThread& steps) {
  while (auto done = steps.take_done()) {
    CHECK(done.get() == posted_.front(), "steps came back in another order");
    posted_.pop_front();
    core_.complete(std::move(done));
    if (posted_.empty()) continue;
    core_.arm(*posted_.front());
    steps.allow_sampling(*posted_.front());
  }
}

void EngineImpl::post_step(StepThread& steps) {
  while (posted_.size() < 2) {
    std::unique_ptr<StepWork> work = core_.prepare();
    if (work == nullptr) return;
    StepWork* raw = work.get();
    if (posted_.empty()) {
      core_.arm(*work);
      work->armed = true;
    }
    posted_.push_back(raw);
    steps.post(std::move(work));
  }
}

bool EngineImpl::has_orders() const {
  return stop_ || !inbox_.empty() || !cancels_.empty() || !choice_ends_.empty() ||
         resets_asked_ != resets_done_;
}

// Returns when there is something to do. While loads are under way it looks now and then: deadlines
// pass meanwhile, and a step may have pages that what has come waits for.
void EngineImpl::wait_for_work(bool may_run_on) {
  constexpr auto kLook = std::chrono::milliseconds(20);
  while (!may_run_on && !has_orders() && !step_done_ && !store_ready_) {
    if (!core_.loading()) {
      orders_cv_.wait(mu_);
    } else if (orders_cv_.wait_for(mu_, kLook) == std::cv_status::timeout) {
      break;
    }
  }
  store_ready_ = false;
}

// Waits while there is nothing to do, then takes what was asked and loaded into the core. With a
// computing thread, a step that has not begun is planned anew when there was any. False: stop.
bool EngineImpl::take_orders(StepThread* steps) {
  Orders orders;
  bool landed = false;
  {
    MutexLock lock(mu_);
    idle_ = core_.idle();
    const bool runs = steps == nullptr && !core_.idle() && !core_.stalled();
    wait_for_work(runs || core_.store_has_more());
    idle_ = false;
    alive_ns_ = clock_.monotonic_ns();
    orders.inbox.swap(inbox_);
    core_waiting_ += static_cast<int>(orders.inbox.size());
    orders.cancels.swap(cancels_);
    orders.choice_ends.swap(choice_ends_);
    if (resets_asked_ != resets_done_) orders.resets = resets_asked_;
    orders.stop = stop_;
    landed = std::exchange(step_done_, false);
  }
  // Before a step lands: it would let the next one sample, for a request that nobody wants any
  // more. What has only just been submitted is not known yet; carry_out() comes to it.
  if (!orders.cancels.empty()) {
    take_back_step(steps);
    for (const std::uint64_t id : orders.cancels) core_.cancel(RequestId{id});
  }
  if (landed && steps != nullptr) land_steps(*steps);
  const bool loaded = core_.poll_store();
  if (!orders.any() && !loaded) return true;
  take_back_step(steps);
  const bool stop = orders.stop;
  carry_out(std::move(orders));
  return !stop;
}

void EngineImpl::carry_out(Orders orders) {
  for (Submission& submission : orders.inbox) core_.add(std::move(submission));
  for (const std::uint64_t id : orders.cancels) core_.cancel(RequestId{id});
  for (const auto& [id, choice] : orders.choice_ends) core_.finish_choice(RequestId{id}, choice);
  if (orders.resets == 0) return;
  const bool clean = core_.reset_prefix_cache();
  const MutexLock lock(mu_);
  resets_done_ = orders.resets;
  reset_clean_ = clean;
  changes_cv_.notify_all();
}

void EngineImpl::publish() {
  const std::vector<RequestId> finished = core_.take_finished();
  MutexLock lock(mu_);
  core_.fill(status_);
  core_waiting_ = core_.waiting_requests();
  idle_ = core_.idle();
  alive_ns_ = clock_.monotonic_ns();
  for (const RequestId id : finished) live_.erase(id.value);
  if (!finished.empty()) changes_cv_.notify_all();
}

Result<std::unique_ptr<Engine>> make_engine(
    std::unique_ptr<model::Model> model, Config config, const Clock& clock, Observer observer
) {
  if (config.max_num_seqs < 1 || config.max_num_batched_tokens < 1 || config.inbox_max < 1) {
    return fail(
        Code::kInvalidArgument,
        "--max-num-seqs, --max-num-batched-tokens and the inbox must each be at least 1"
    );
  }
  if (config.swa_replay < -1 || config.swa_replay == 0) {
    return fail_field("--swa-replay", "--swa-replay {} must be at least 1", config.swa_replay);
  }
  if (!(config.window_ttl_s > 0)) {
    return fail(Code::kInvalidArgument, "saved windows must live longer than 0 s");
  }
  // Every running sequence needs a row of each step.
  config.max_num_seqs = std::min(config.max_num_seqs, config.max_num_batched_tokens);
  const model::KvLayout layout = model->kv_layout();
  const PoolSize size = TRY(size_pool(config, model->info(), layout, memory_limit().available()));
  config.max_model_len = size.max_model_len;
  config.max_num_seqs = size.slots;
  warn_of_replay(layout, config.swa_replay);
  config.swa_replay = effective_replay(layout, config.swa_replay);
  auto spaces = TRY(KvSpaces::make(layout, size.pages, size.window_pages));
  return std::unique_ptr<Engine>(std::make_unique<EngineImpl>(
      std::move(model), std::move(spaces), std::move(config), clock, std::move(observer)
  ));
}

}  // namespace artery::engine
