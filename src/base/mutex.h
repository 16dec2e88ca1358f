#pragma once
// std::mutex with Clang's thread-safety annotations. A field behind a mutex says GUARDED_BY(mu_).

#include <condition_variable>
#include <mutex>

#if defined(__clang__)
#define ARTERY_TSA(x) __attribute__((x))
#else
#define ARTERY_TSA(x)
#endif
#define GUARDED_BY(x) ARTERY_TSA(guarded_by(x))
#define REQUIRES(...) ARTERY_TSA(requires_capability(__VA_ARGS__))
#define EXCLUDES(...) ARTERY_TSA(locks_excluded(__VA_ARGS__))

namespace artery {

class ARTERY_TSA(capability("mutex")) Mutex {
 public:
  void lock() ARTERY_TSA(acquire_capability()) { mu_.lock(); }
  void unlock() ARTERY_TSA(release_capability()) { mu_.unlock(); }

 private:
  std::mutex mu_;
};

class ARTERY_TSA(scoped_lockable) MutexLock {
 public:
  explicit MutexLock(Mutex& mu) ARTERY_TSA(acquire_capability(mu)) : mu_(mu) { mu_.lock(); }
  ~MutexLock() ARTERY_TSA(release_capability()) { mu_.unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex& mu_;
};

// Waits with the annotated mutex held: cv.wait(mu) inside a MutexLock, in a loop over the
// condition.
using CondVar = std::condition_variable_any;

}  // namespace artery
