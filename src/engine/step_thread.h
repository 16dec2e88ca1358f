#pragma once
// The thread that computes steps while the engine thread plans the next one. The
// engine thread keeps no more than two with it. All methods belong to the engine thread.

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <thread>

#include "base/mutex.h"
#include "engine/runner.h"
#include "engine/step_work.h"

namespace artery::engine {

class StepThread {
 public:
  // `on_done` is called from the computing thread whenever a step is done; must not block for
  // long. `runner` outlives the thread.
  StepThread(Runner& runner, std::function<void()> on_done);
  // Finishes what was posted, up to the first step that was not allowed to sample.
  ~StepThread();

  // Steps run in the order they are posted.
  void post(std::unique_ptr<StepWork> work);
  // The step posted last, unless it has begun. Null: it has, or there is none.
  std::unique_ptr<StepWork> retract();
  // `work` was armed (Core::arm): its rows may be sampled.
  void allow_sampling(StepWork& work);
  // The oldest finished step, or null.
  std::unique_ptr<StepWork> take_done();

 private:
  void thread_main();
  std::unique_ptr<StepWork> next();
  // False: it will never come.
  bool wait_for_leave(const StepWork& work);

  Runner& runner_;
  const std::function<void()> on_done_;
  Mutex mu_;
  CondVar work_cv_;
  std::deque<std::unique_ptr<StepWork>> waiting_ GUARDED_BY(mu_);
  std::deque<std::unique_ptr<StepWork>> done_ GUARDED_BY(mu_);
  bool stop_ GUARDED_BY(mu_) = false;
  std::thread thread_;  // last: it uses everything above
};

}  // namespace artery::engine
