#pragma once
// The threaded engine behind make_engine: a bounded inbox in front of Core, the engine thread that
// plans and commits steps, and the thread that computes them. Everything another thread may touch
// is behind mu_; Core belongs to the engine thread.

#include <cstdint>
#include <deque>
#include <memory>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "engine/core.h"
#include "engine/engine.h"
#include "engine/step_thread.h"

namespace artery::engine {

class EngineImpl final : public Engine {
 public:
  // `config` complete, see pool_size.h. The thread starts at once.
  EngineImpl(
      std::unique_ptr<model::Model> model,
      std::unique_ptr<KvSpaces> spaces,
      Config config,
      const Clock& clock,
      Observer observer
  );
  ~EngineImpl() override;

  Result<RequestId> submit(Request request, std::shared_ptr<EventStream> events) override;
  void cancel(RequestId id) override;
  void finish_choice(RequestId id, int choice) override;
  Status status() const override;
  const model::ModelInfo& model_info() const override { return info_; }
  std::string numerics_id() const override { return numerics_id_; }
  std::optional<kvstore::StoreStatus> store_status() const override;
  bool reset_prefix_cache() override;
  bool drain(double timeout_s) override;
  void begin_drain() override;

 private:
  // What other threads asked for since the engine thread last looked.
  struct Orders {
    std::vector<Submission> inbox;
    std::set<std::uint64_t> cancels;
    std::set<std::pair<std::uint64_t, int>> choice_ends;
    std::uint64_t resets = 0;
    bool stop = false;
    bool any() const {
      return !inbox.empty() || !cancels.empty() || !choice_ends.empty() || resets > 0 || stop;
    }
  };

  Result<Submission> prepare(Request request, std::shared_ptr<EventStream> events) const;
  ChainKey root_of(const Request& request) const;
  void thread_main();
  void wait_for_work(bool may_run_on) REQUIRES(mu_);
  void run_in_turn();
  void run_ahead();
  bool take_orders(StepThread* steps);
  void carry_out(Orders orders);
  void take_back_step(StepThread* steps);
  void land_steps(StepThread& steps);
  void post_step(StepThread& steps);
  void publish();
  bool has_orders() const REQUIRES(mu_);

  const std::unique_ptr<model::Model> model_;
  const model::ModelInfo info_;
  const std::string numerics_id_;
  const Config config_;
  const Clock& clock_;
  const std::string secret_;
  const std::string space_;       // of the chain root, without tenant and salt
  Core core_;                     // engine thread
  std::deque<StepWork*> posted_;  // to the computing thread, not completed; engine thread

  mutable Mutex mu_;
  CondVar orders_cv_;   // the engine thread waits here
  CondVar changes_cv_;  // drain and reset wait here
  std::vector<Submission> inbox_ GUARDED_BY(mu_);
  std::set<std::uint64_t> live_ GUARDED_BY(mu_);  // submitted and not ended
  std::set<std::uint64_t> cancels_ GUARDED_BY(mu_);
  std::set<std::pair<std::uint64_t, int>> choice_ends_ GUARDED_BY(mu_);
  std::uint64_t next_id_ GUARDED_BY(mu_) = 1;
  int core_waiting_ GUARDED_BY(mu_) = 0;  // requests in the core that never ran
  std::uint64_t resets_asked_ GUARDED_BY(mu_) = 0;
  std::uint64_t resets_done_ GUARDED_BY(mu_) = 0;
  bool reset_clean_ GUARDED_BY(mu_) = false;
  bool stop_ GUARDED_BY(mu_) = false;
  bool step_done_ GUARDED_BY(mu_) = false;    // the computing thread finished a step
  bool store_ready_ GUARDED_BY(mu_) = false;  // poll() has something
  bool idle_ GUARDED_BY(mu_) = true;
  std::int64_t alive_ns_ GUARDED_BY(mu_) = 0;
  Status status_ GUARDED_BY(mu_);
  std::thread thread_;  // last: it uses everything above
};

}  // namespace artery::engine
