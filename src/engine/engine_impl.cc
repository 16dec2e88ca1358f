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
    std::unique_ptr<KvPool> pool,
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
      core_(*model_, std::move(pool), config_, clock, std::move(observer)) {
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
    while (take_orders()) {
      publish();  // a first step may be long, and what waits for it is to be seen
      core_.step();
      publish();
    }
    core_.cancel_all();
    publish();
  } catch (const std::exception& error) {
    CHECK(false, "the engine thread failed: {}", error.what());
  }
}

bool EngineImpl::has_orders() const {
  return stop_ || !inbox_.empty() || !cancels_.empty() || !choice_ends_.empty() ||
         resets_asked_ != resets_done_;
}

// Waits while there is nothing to do, then takes what was asked into the core. False: stop.
bool EngineImpl::take_orders() {
  std::vector<Submission> inbox;
  std::set<std::uint64_t> cancels;
  std::set<std::pair<std::uint64_t, int>> choice_ends;
  std::uint64_t resets = 0;
  bool stop = false;
  {
    MutexLock lock(mu_);
    idle_ = core_.idle();
    while (core_.idle() && !has_orders()) orders_cv_.wait(mu_);
    idle_ = false;
    alive_ns_ = clock_.monotonic_ns();
    inbox.swap(inbox_);
    core_waiting_ += static_cast<int>(inbox.size());
    cancels.swap(cancels_);
    choice_ends.swap(choice_ends_);
    if (resets_asked_ != resets_done_) resets = resets_asked_;
    stop = stop_;
  }
  for (Submission& submission : inbox) core_.add(std::move(submission));
  for (const std::uint64_t id : cancels) core_.cancel(RequestId{id});
  for (const auto& [id, choice] : choice_ends) core_.finish_choice(RequestId{id}, choice);
  if (resets > 0) {
    const bool clean = core_.reset_prefix_cache();
    MutexLock lock(mu_);
    resets_done_ = resets;
    reset_clean_ = clean;
    changes_cv_.notify_all();
  }
  return !stop;
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
  auto pool = TRY(KvPool::make(layout, size.pages));
  return std::unique_ptr<Engine>(std::make_unique<EngineImpl>(
      std::move(model), std::move(pool), std::move(config), clock, std::move(observer)
  ));
}

}  // namespace artery::engine
