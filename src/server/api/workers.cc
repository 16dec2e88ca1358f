#include "server/api/workers.h"

#include <exception>
#include <utility>

#include "base/log.h"

namespace artery::server::api {

Workers::Workers(int threads) {
  for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { run(); });
}

Workers::~Workers() { stop(); }

void Workers::post(std::function<void()> job) {
  {
    const MutexLock lock(mu_);
    if (stopping_) return;
    jobs_.push_back(std::move(job));
  }
  job_cv_.notify_one();
}

void Workers::stop() {
  std::deque<std::function<void()>> dropped;
  {
    const MutexLock lock(mu_);
    stopping_ = true;
    dropped.swap(jobs_);
  }
  job_cv_.notify_all();
  for (std::thread& thread : threads_) {
    if (thread.joinable()) thread.join();
  }
}

void Workers::run() {
  for (;;) {
    std::function<void()> job;
    {
      const MutexLock lock(mu_);
      while (jobs_.empty() && !stopping_) job_cv_.wait(mu_);
      if (stopping_) return;
      job = std::move(jobs_.front());
      jobs_.pop_front();
    }
    try {
      job();
    } catch (const std::exception& error) {
      // What the job held answers 500 when it is destroyed.
      log_error("request worker: {}", error.what());
    }
  }
}

}  // namespace artery::server::api
