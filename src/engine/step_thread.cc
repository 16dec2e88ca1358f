#include "engine/step_thread.h"

#include <exception>
#include <utility>

#if defined(__SSE__)
#include <xmmintrin.h>
#endif

#include "base/check.h"

namespace artery::engine {

StepThread::StepThread(Runner& runner, std::function<void()> on_done)
    : runner_(runner), on_done_(std::move(on_done)), thread_([this] { thread_main(); }) {}

StepThread::~StepThread() {
  {
    const MutexLock lock(mu_);
    stop_ = true;
    work_cv_.notify_all();
  }
  thread_.join();
}

void StepThread::post(std::unique_ptr<StepWork> work) {
  const MutexLock lock(mu_);
  waiting_.push_back(std::move(work));
  work_cv_.notify_all();
}

std::unique_ptr<StepWork> StepThread::retract() {
  const MutexLock lock(mu_);
  if (waiting_.empty()) return nullptr;
  std::unique_ptr<StepWork> work = std::move(waiting_.back());
  waiting_.pop_back();
  return work;
}

void StepThread::allow_sampling(StepWork& work) {
  const MutexLock lock(mu_);
  work.armed = true;
  work_cv_.notify_all();
}

std::unique_ptr<StepWork> StepThread::take_done() {
  const MutexLock lock(mu_);
  if (done_.empty()) return nullptr;
  std::unique_ptr<StepWork> work = std::move(done_.front());
  done_.pop_front();
  return work;
}

std::unique_ptr<StepWork> StepThread::next() {
  const MutexLock lock(mu_);
  while (waiting_.empty() && !stop_) work_cv_.wait(mu_);
  if (waiting_.empty()) return nullptr;
  std::unique_ptr<StepWork> work = std::move(waiting_.front());
  waiting_.pop_front();
  return work;
}

bool StepThread::wait_for_leave(const StepWork& work) {
  const MutexLock lock(mu_);
  while (!work.armed && !stop_) work_cv_.wait(mu_);
  return work.armed;
}

// A library's exception (out of memory) ends the process with a message, as in the engine thread.
void StepThread::thread_main() {
#if defined(__SSE__)
  _mm_setcsr(0x1f80);  // round to nearest, no flush to zero: bits must not depend on the starter
#endif
  try {
    while (std::unique_ptr<StepWork> work = next()) {
      runner_.forward(*work);
      // The engine thread failed; to wait for it would hold up its message.
      if (!wait_for_leave(*work)) return;
      runner_.sample(*work);
      {
        const MutexLock lock(mu_);
        done_.push_back(std::move(work));
      }
      on_done_();
    }
  } catch (const std::exception& error) {
    CHECK(false, "the computing thread failed: {}", error.what());
  }
}

}  // namespace artery::engine
