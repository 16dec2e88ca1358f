#pragma once
// A few threads that run jobs in order of arrival: request parsing and tokenizing, and turning
// engine events into text, so that connection threads never do. The queue is bounded by its users:
// a connection has at most one request in work, a request at most one job waiting.

#include <deque>
#include <functional>
#include <thread>
#include <vector>

#include "base/mutex.h"

namespace artery::server::api {

class Workers {
 public:
  explicit Workers(int threads);
  ~Workers();
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

  // Any thread. After stop() jobs are dropped.
  void post(std::function<void()> job);
  // Ends after the jobs that are running; those still waiting are dropped. Idempotent.
  void stop();

 private:
  void run();

  Mutex mu_;
  CondVar job_cv_;
  std::deque<std::function<void()>> jobs_ GUARDED_BY(mu_);
  bool stopping_ GUARDED_BY(mu_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace artery::server::api
