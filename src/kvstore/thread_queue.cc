#include <algorithm>
#include <chrono>
#include <deque>
#include <thread>

#include "base/check.h"
#include "base/mutex.h"
#include "kvstore/io_queue.h"

namespace artery::kvstore {
namespace {

int errno_of(const Error& error) {
  if (error.code == Code::kUnavailable) return EROFS;
  return error.code == Code::kOutOfMemory ? ENOSPC : EIO;
}

IoResult run(const IoRequest& request) {
  IoResult result{.tag = request.tag};
  if (request.kind == IoRequest::Kind::kSync) {
    const Result<> synced = request.file->sync();
    if (!synced) result.error = errno_of(synced.error());
    return result;
  }
  const std::int64_t moved = request.kind == IoRequest::Kind::kRead
                                 ? request.file->read_at(request.offset, request.buffer)
                                 : request.file->write_at(request.offset, request.buffer);
  if (moved >= 0) {
    result.bytes = moved;
  } else {
    result.error = static_cast<int>(-moved);
  }
  return result;
}

class ThreadQueue final : public IoQueue {
 public:
  ThreadQueue(int depth, int threads) : depth_(depth) {
    for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { work(); });
  }
  ~ThreadQueue() override {
    {
      const MutexLock lock(mu_);
      is_closed_ = true;
    }
    work_cv_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }
  ThreadQueue(const ThreadQueue&) = delete;
  ThreadQueue& operator=(const ThreadQueue&) = delete;

  bool submit(const IoRequest& request) override {
    if (in_flight_ >= depth_) return false;
    ++in_flight_;
    {
      const MutexLock lock(mu_);
      requests_.push_back(request);
    }
    work_cv_.notify_one();
    return true;
  }

  void wait(std::vector<IoResult>& out, int timeout_ms) override {
    const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(timeout_ms);
    const MutexLock lock(mu_);
    while (results_.empty() && !is_woken_ && timeout_ms != 0) {
      if (timeout_ms < 0) {
        ended_cv_.wait(mu_);
      } else if (ended_cv_.wait_until(mu_, until) == std::cv_status::timeout) {
        break;
      }
    }
    is_woken_ = false;
    in_flight_ -= static_cast<int>(results_.size());
    out.insert(out.end(), results_.begin(), results_.end());
    results_.clear();
  }

  void wake() override {
    {
      const MutexLock lock(mu_);
      is_woken_ = true;
    }
    ended_cv_.notify_one();
  }

  int in_flight() const override { return in_flight_; }
  std::string_view name() const override { return "threads"; }

 private:
  // Until the queue is closed and empty: what was submitted is done.
  void work() {
    while (true) {
      IoRequest request;
      {
        const MutexLock lock(mu_);
        while (requests_.empty() && !is_closed_) work_cv_.wait(mu_);
        if (requests_.empty()) return;
        request = requests_.front();
        requests_.pop_front();
      }
      const IoResult result = run(request);
      {
        const MutexLock lock(mu_);
        results_.push_back(result);
      }
      ended_cv_.notify_one();
    }
  }

  const int depth_;
  int in_flight_ = 0;  // the owner's: submitted and not handed back
  Mutex mu_;
  CondVar work_cv_, ended_cv_;
  std::deque<IoRequest> requests_ GUARDED_BY(mu_);
  std::vector<IoResult> results_ GUARDED_BY(mu_);
  bool is_woken_ GUARDED_BY(mu_) = false;
  bool is_closed_ GUARDED_BY(mu_) = false;
  std::vector<std::thread> threads_;  // last: they use the rest
};

}  // namespace

std::unique_ptr<IoQueue> make_thread_queue(int depth, int threads) {
  CHECK(depth > 0 && threads > 0);
  return std::make_unique<ThreadQueue>(depth, std::min(threads, depth));
}

}  // namespace artery::kvstore
