#pragma once
// A scripted Engine for the server's tests: says given token ids at a given pace, on its own
// thread, with the checks and the event order of the real one. Tests only.

#include <fmt/core.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "engine/engine.h"

namespace artery::server {

class FakeEngine final : public engine::Engine {
 public:
  // What the model "says" for one choice of one request; the script ends with its last id, then
  // comes `stop_token` (-1: length).
  struct Script {
    std::vector<TokenId> ids;
    TokenId stop_token = -1;
    std::string error;  // kError after the ids
  };
  using Author = std::function<Script(const engine::Request& request, int choice)>;

  FakeEngine(std::int64_t vocab_size, std::int64_t context) {
    info_.vocab_size = vocab_size;
    info_.context_length = context;
    thread_ = std::thread([this] { run(); });
  }
  ~FakeEngine() override {
    {
      const MutexLock lock(mu_);
      stopping_ = true;
    }
    cv_.notify_all();
    thread_.join();
  }
  FakeEngine(const FakeEngine&) = delete;
  FakeEngine& operator=(const FakeEngine&) = delete;

  void set_author(Author author) {
    const MutexLock lock(mu_);
    author_ = std::move(author);
  }
  // No step while paused: requests stay queued or silent.
  void pause(bool paused) {
    {
      const MutexLock lock(mu_);
      paused_ = paused;
    }
    cv_.notify_all();
  }
  void set_step_ms(int ms) { step_ms_ = ms; }
  void set_tokens_per_event(int count) { tokens_per_event_ = count; }
  void set_inbox_max(std::size_t count) { inbox_max_ = count; }
  void set_step_age(double seconds) { step_age_ = seconds; }
  // Unix seconds of the promise that requests which ask for one get; 0: refused.
  void set_promise(std::int64_t until_s) { promise_ = until_s; }
  void set_store(kvstore::StoreStatus store) {
    const MutexLock lock(mu_);
    store_ = std::move(store);
  }
  std::vector<engine::Request> requests() const {
    const MutexLock lock(mu_);
    return seen_;
  }

  Result<RequestId> submit(engine::Request request, std::shared_ptr<engine::EventStream> events)
      override {
    const MutexLock lock(mu_);
    if (draining_) return fail(Code::kUnavailable, "draining");
    const auto length = static_cast<std::int64_t>(request.prompt.size());
    if (length > info_.context_length ||
        (length == info_.context_length && request.max_tokens != 0)) {
      return fail(
          Code::kContextLength,
          "the prompt has {} tokens and the context holds {}",
          length,
          info_.context_length
      );
    }
    if (work_.size() >= inbox_max_) {
      ++rejected_;
      return fail(Code::kOverloaded, "the inbox is full ({} requests)", inbox_max_.load());
    }
    const std::uint64_t id = ++last_id_;
    seen_.push_back(request);
    Job job;
    job.events = std::move(events);
    for (int i = 0; i < request.n; ++i) {
      Choice choice;
      choice.script = author_ ? author_(request, i) : Script{};
      const std::int64_t room = info_.context_length - length;
      choice.limit = request.max_tokens < 0 ? room : std::min(request.max_tokens, room);
      job.choices.push_back(std::move(choice));
    }
    job.request = std::move(request);
    work_.emplace(id, std::move(job));
    cv_.notify_all();
    return RequestId{id};
  }
  void cancel(RequestId id) override {
    const MutexLock lock(mu_);
    const auto it = work_.find(id.value);
    if (it == work_.end()) return;
    it->second.cancelled = true;
    cv_.notify_all();
  }
  void finish_choice(RequestId id, int choice) override {
    const MutexLock lock(mu_);
    const auto it = work_.find(id.value);
    if (it == work_.end()) return;
    it->second.choices[static_cast<std::size_t>(choice)].cut = true;
    cv_.notify_all();
  }
  engine::Status status() const override {
    const MutexLock lock(mu_);
    engine::Status status;
    status.running = static_cast<int>(work_.size());
    status.pages_total = 100;
    status.pages_in_use = static_cast<std::int64_t>(work_.size());
    status.max_model_len = info_.context_length;
    status.aborted = aborted_;
    status.rejected = rejected_;
    status.generated_tokens = generated_;
    status.draining = draining_;
    status.last_step_age_s = step_age_;
    status.hit_tokens_ram = 600;
    status.hit_tokens_disk = 300;
    status.miss_tokens[static_cast<std::size_t>(engine::MissReason::kCold)] = 80;
    status.miss_tokens[static_cast<std::size_t>(engine::MissReason::kEvicted)] = 20;
    return status;
  }
  const model::ModelInfo& model_info() const override { return info_; }
  std::string numerics_id() const override { return "fake"; }
  std::optional<kvstore::StoreStatus> store_status() const override {
    const MutexLock lock(mu_);
    return store_;
  }
  bool reset_prefix_cache() override {
    const MutexLock lock(mu_);
    return work_.empty();
  }
  bool drain(double) override { return status().running == 0; }
  void begin_drain() override {
    const MutexLock lock(mu_);
    draining_ = true;
  }

 private:
  struct Choice {
    Script script;
    std::int64_t limit = 0;
    std::size_t said = 0;
    bool cut = false, done = false;
  };
  struct Job {
    engine::Request request;
    std::shared_ptr<engine::EventStream> events;
    std::vector<Choice> choices;
    bool cancelled = false, started = false;
  };
  using Outgoing = std::vector<std::pair<std::shared_ptr<engine::EventStream>, engine::Event>>;

  static engine::PositionLogprobs logprobs_of(TokenId id, int count) {
    engine::PositionLogprobs out;
    out.chosen = {id, -0.25F};
    out.rank = 1;
    for (int i = 0; i < count; ++i) {
      // The last one has probability zero, as under truncation (FR-D2).
      const float logprob = i == 0           ? -0.25F
                            : i == count - 1 ? -std::numeric_limits<float>::infinity()
                                             : -1.0F * static_cast<float>(i);
      out.top.push_back({i == 0 ? id : (id + i) % 200, logprob});
    }
    return out;
  }

  void run() {
    for (;;) {
      Outgoing out;
      {
        const MutexLock lock(mu_);
        while (!stopping_ && (work_.empty() || (paused_ && !any_cancelled()))) cv_.wait(mu_);
        if (stopping_) return;
        step(out);
      }
      for (auto& [events, event] : out) events->push(std::move(event));
      if (step_ms_ > 0) std::this_thread::sleep_for(std::chrono::milliseconds(step_ms_));
    }
  }

  bool any_cancelled() const REQUIRES(mu_) {
    return std::any_of(work_.begin(), work_.end(), [](const auto& entry) {
      return entry.second.cancelled;
    });
  }

  void step(Outgoing& out) REQUIRES(mu_) {
    for (auto it = work_.begin(); it != work_.end();) {
      Job& job = it->second;
      bool all_done = true;
      for (std::size_t i = 0; i < job.choices.size(); ++i) {
        if (!job.choices[i].done && (!paused_ || job.cancelled)) advance(job, i, out);
        all_done = all_done && job.choices[i].done;
      }
      job.started = true;
      if (all_done && job.cancelled) ++aborted_;
      it = all_done ? work_.erase(it) : std::next(it);
    }
  }

  void advance(Job& job, std::size_t index, Outgoing& out) REQUIRES(mu_) {
    Choice& choice = job.choices[index];
    engine::Event event;
    event.choice = static_cast<int>(index);
    const engine::Request& request = job.request;
    if (!job.started && index == 0 && request.prompt_logprobs >= 0) {
      for (std::size_t i = 1; i < request.prompt.size(); ++i) {
        event.prompt_logprobs.push_back(logprobs_of(request.prompt[i], request.prompt_logprobs));
      }
    }
    for (int i = 0; i < tokens_per_event_ && !job.cancelled && !choice.cut; ++i) {
      if (choice.said >= choice.script.ids.size() ||
          static_cast<std::int64_t>(choice.said) >= choice.limit) {
        break;
      }
      const TokenId id = choice.script.ids[choice.said++];
      event.token_ids.push_back(id);
      ++generated_;
      if (request.sampling.logprobs >= 0) {
        event.logprobs.push_back(logprobs_of(id, request.sampling.logprobs));
      }
    }
    finish_if_over(job, choice, event);
    out.emplace_back(job.events, std::move(event));
  }

  void finish_if_over(const Job& job, Choice& choice, engine::Event& event) REQUIRES(mu_) {
    engine::Finish finish;
    const bool at_limit = static_cast<std::int64_t>(choice.said) >= choice.limit;
    if (job.cancelled) {
      finish.reason = engine::FinishReason::kCancelled;
    } else if (choice.cut) {
      finish.reason = engine::FinishReason::kStop;
    } else if (at_limit) {
      finish.reason = engine::FinishReason::kLength;
    } else if (choice.said < choice.script.ids.size()) {
      return;
    } else if (!choice.script.error.empty()) {
      finish.reason = engine::FinishReason::kError;
      finish.message = choice.script.error;
    } else {
      finish.reason = engine::FinishReason::kStop;
      finish.stop_token = choice.script.stop_token;
    }
    finish.usage.prompt_tokens = static_cast<std::int64_t>(job.request.prompt.size());
    finish.usage.cached_tokens = finish.usage.prompt_tokens / 2;
    finish.usage.disk_tokens = finish.usage.cached_tokens / 2;
    finish.usage.miss = engine::MissReason::kExpired;
    if (job.request.guarantee) finish.usage.guaranteed_until_s = promise_;
    finish.usage.generated_tokens = static_cast<std::int64_t>(choice.said);
    finish.usage.timings = {0.5, 0.25, 0.125, 2.0, 4.0};
    event.finish = finish;
    choice.done = true;
  }

  model::ModelInfo info_;
  std::atomic<int> step_ms_{0};
  std::atomic<int> tokens_per_event_{1};
  std::atomic<std::size_t> inbox_max_{64};
  std::atomic<double> step_age_{0};
  std::atomic<std::int64_t> promise_{0};

  mutable Mutex mu_;
  CondVar cv_;
  std::optional<kvstore::StoreStatus> store_ GUARDED_BY(mu_);
  Author author_ GUARDED_BY(mu_);
  std::map<std::uint64_t, Job> work_ GUARDED_BY(mu_);
  std::vector<engine::Request> seen_ GUARDED_BY(mu_);
  std::uint64_t last_id_ GUARDED_BY(mu_) = 0;
  std::int64_t aborted_ GUARDED_BY(mu_) = 0, rejected_ GUARDED_BY(mu_) = 0,
                        generated_ GUARDED_BY(mu_) = 0;
  bool paused_ GUARDED_BY(mu_) = false, stopping_ GUARDED_BY(mu_) = false,
               draining_ GUARDED_BY(mu_) = false;
  std::thread thread_;
};

}  // namespace artery::server
