#pragma once
// The engine without its thread: requests, pages, prefix cache, and step(), which plans, runs the
// model, samples, and pushes events. Called by one thread only (the engine thread, or a test's).
// Knows no locks; consumers are reached only through their EventStream.

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "base/clock.h"
#include "engine/choice.h"
#include "engine/engine.h"
#include "engine/kv_pool.h"
#include "engine/prefix_cache.h"
#include "engine/runner.h"
#include "engine/sampler.h"
#include "engine/scheduler.h"
#include "engine/step_cost.h"

namespace artery::engine {

class Core {
 public:
  // `config` is checked and complete (pool_size.h); `model` and `clock` outlive the core.
  Core(
      model::Model& model,
      std::unique_ptr<KvPool> pool,
      Config config,
      const Clock& clock,
      Observer observer
  );

  // Ids come in ascending order; it is the order of arrival.
  void add(Submission submission);
  // Unknown ids are ignored.
  void cancel(RequestId id);
  void finish_choice(RequestId id, int choice);
  void cancel_all();

  // Runs one step over what is there; does nothing when idle.
  void step();
  bool idle() const { return requests_.empty(); }
  // Requests none of whose choices ran yet.
  int waiting_requests() const;
  // Ids of requests that ended since the last call.
  std::vector<RequestId> take_finished() { return std::exchange(finished_, {}); }

  // Drops idle pages; false when pages of running sequences remain.
  bool reset_prefix_cache();
  // Counters and gauges; the fields about the inbox and the thread are left alone.
  void fill(Status& status) const;
  void check_integrity() const;

 private:
  struct Live {
    RequestState* request;
    Choice* choice;
  };

  void expire_deadlines();
  std::vector<Live> live_by_rank() const;
  void match_prefixes(const std::vector<Live>& live);
  void match_prefix(const Live& live);
  Plan make_plan(const std::vector<Live>& live) const;
  Limits limits() const;
  void apply(const Plan& plan, const std::vector<Live>& live);
  void preempt(const Live& live);
  void admit(const Live& live);
  void run(const Plan& plan, const std::vector<Live>& live);
  void commit(const Live& live, std::size_t chunk, std::int64_t rows);
  void offer_pages(const Live& live, std::int64_t computed_before);
  void collect_prompt_logprobs(const Live& live, std::size_t chunk, std::int64_t rows);
  void prompt_ready(const Live& live);
  void sample(const Live& live, std::span<const float> logits);
  void extend_keys(const RequestState& request, Choice& choice) const;
  void finish(const Live& live, Event event, Finish finish);
  void end(const Live& live, FinishReason reason);
  void promote_leader(RequestState& request);
  Usage usage(const RequestState& request, const Choice& choice) const;
  void remove_finished();

  model::Model& model_;
  std::unique_ptr<KvPool> pool_;
  const Config config_;
  const Clock& clock_;
  Observer observer_;
  PrefixCache cache_;  // after pool_: it gives its pages back first
  Runner runner_;
  Sampler sampler_;
  StepCost cost_;
  std::map<std::uint64_t, std::unique_ptr<RequestState>> requests_;  // by id
  std::vector<RequestId> finished_;
  Status counters_;
};

}  // namespace artery::engine
