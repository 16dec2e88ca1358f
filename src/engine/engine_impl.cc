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
#include "engine/pool_size.h"

namespace artery::engine {
namespace {

std::string random_secret() {
  std::string secret;
  for (int i = 0; i < 4; ++i) {
    const std::uint64_t bits = system_random().next();
    for (int byte = 0; byte < 8; ++byte) secret += static_cast<char>(bits >> (8 * byte) & 0xff);
  }
  return secret;
}

// Everything that decides KV bytes, each part with its length so that no two spaces read the same.
std::string namespace_of(const model::ModelInfo& info, const model::KvLayout& layout) {
  std::string out = "artery-kv-1";
  const auto add = [&](const std::string& part) {
    out += fmt::format("|{}:{}", part.size(), part);
  };
  add(info.weights_digest);
  add(layout.numerics_id);
  add(fmt::format("page {}", layout.page_tokens));
  for (const model::KvGroup& group : layout.groups) {
    const tensor::KvGeometry& geometry = group.geometry;
    add(fmt::format(
        "group {} {} {} {} {} {} {}",
        static_cast<int>(group.kind),
        geometry.layers,
        geometry.kv_heads,
        geometry.head_dim,
        static_cast<int>(geometry.type),
        group.ratio,
        group.window_tokens
    ));
  }
  return out;
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
      numerics_id_(model_->kv_layout().numerics_id),
      config_(std::move(config)),
      clock_(clock),
      secret_(config_.cache_secret.empty() ? random_secret() : config_.cache_secret),
      space_(namespace_of(info_, model_->kv_layout())),
      core_(*model_, std::move(spaces), config_, clock, std::move(observer)) {
  core_.fill(status_);
  alive_ns_ = clock_.monotonic_ns();
  thread_ = std::thread([this] { thread_main(); });
}

EngineImpl::~EngineImpl() {
  {
    MutexLock lock(mu_);
    stop_ = true;
    orders_cv_.notify_all();
  }
  thread_.join();
}

ChainKey EngineImpl::root_of(const Request& request) const {
  return chain_root(
      secret_,
      fmt::format(
          "{}|{}:{}|{}:{}",
          space_,
          request.tenant.size(),
          request.tenant,
          request.salt.size(),
          request.salt
      )
  );
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

bool EngineImpl::reset_prefix_cache() {
  MutexLock lock(mu_);
  const std::uint64_t mine = ++resets_asked_;
  orders_cv_.notify_one();
  while (resets_done_ < mine) changes_cv_.wait(mu_);
  return reset_clean_;
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
    if (config_.async_scheduling) {
      run_ahead();
    } else {
      run_in_turn();
    }
    core_.cancel_all();
    publish();
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
    const MutexLock lock(mu_);
    step_done_ = true;
    orders_cv_.notify_one();
  });
  while (take_orders(&steps)) {
    post_step(steps);
    core_.deliver();
    publish();
  }
  if (auto waiting = steps.retract()) {
    posted_.pop_back();
    core_.unprepare(std::move(waiting));
  }
  core_.cancel_all();
  while (!posted_.empty()) {
    land_steps(steps);
    std::this_thread::yield();
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

// Waits while there is nothing to do, then takes what was asked into the core. With a computing
// thread, a step that has not begun is planned anew when something was asked. False: stop.
bool EngineImpl::take_orders(StepThread* steps) {
  Orders orders;
  bool landed = false;
  {
    MutexLock lock(mu_);
    idle_ = core_.idle();
    const bool must_wait = steps != nullptr || core_.idle();
    while (must_wait && !has_orders() && !step_done_) orders_cv_.wait(mu_);
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
  if (landed && steps != nullptr) land_steps(*steps);
  if (!orders.any()) return true;
  if (steps != nullptr) {
    if (auto waiting = steps->retract()) {
      posted_.pop_back();
      core_.unprepare(std::move(waiting));
    }
  }
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
  // Every running sequence needs a row of each step.
  config.max_num_seqs = std::min(config.max_num_seqs, config.max_num_batched_tokens);
  const model::KvLayout layout = model->kv_layout();
  const PoolSize size = TRY(size_pool(config, model->info(), layout, memory_limit().available()));
  config.max_model_len = size.max_model_len;
  config.max_num_seqs = size.slots;
  auto spaces = TRY(KvSpaces::make(layout, size.pages, size.window_pages));
  return std::unique_ptr<Engine>(std::make_unique<EngineImpl>(
      std::move(model), std::move(spaces), std::move(config), clock, std::move(observer)
  ));
}

}  // namespace artery::engine
