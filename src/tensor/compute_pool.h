#pragma once
// The threads that run kernels. Owned by the caller of the backend (engine or verb); one
// parallel_for at a time, called by one thread, which takes part itself. Workers spin briefly
// between loops of a step and sleep between requests. MXCSR is set to the default on every thread.
// Work is handed out from an atomic counter, so a thread put off by another process costs only its
// share; which thread runs which chunk never changes a bit of the result.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace artery::tensor {

class ComputePool {
 public:
  // `threads` >= 1 includes the caller.
  explicit ComputePool(int threads);
  ~ComputePool();
  ComputePool(const ComputePool&) = delete;
  ComputePool& operator=(const ComputePool&) = delete;

  int threads() const;

  // Calls body(begin, end, thread) over disjoint ranges that cover [0, count), each at most `grain`
  // long and shorter towards the end, but always whole `unit`s, of which `grain` is a multiple
  // (0: grain); `thread` is in [0, threads()). Returns when all are done. No nesting.
  void parallel_for(
      std::int64_t count,
      std::int64_t grain,
      const std::function<void(std::int64_t, std::int64_t, int)>& body,
      std::int64_t unit = 0
  );

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// min(affinity, floor(cgroup quota / period)), at least 1.
int default_threads();
// What default_threads() is made of, for doctor and the warning when --threads exceeds the quota.
struct CpuLimits {
  int cores = 1;           // visible
  int affinity = 1;        // in the thread's affinity mask
  double quota_cores = 0;  // cgroup quota / period; 0 = no limit
};
CpuLimits cpu_limits();

namespace internal {
// The tightest CPU quota / period among the cgroups named in `proc_cgroup` (text of
// /proc/self/cgroup) and their parents, v1 and v2, mounted at `mount`; 0 = no limit.
double cgroup_quota_cores(const std::string& proc_cgroup, const std::string& mount);
// default_threads() on a machine of these limits.
int default_threads(const CpuLimits& limits);
}  // namespace internal

}  // namespace artery::tensor
