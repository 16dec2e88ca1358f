// What the scheduler and the container let this process use. Formats: Linux cgroups(7),
// admin-guide/cgroup-v2 ("cpu.max") and scheduler/sched-bwc (cpu.cfs_quota_us, cpu.cfs_period_us).

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <sstream>
#include <string>

#include "tensor/compute_pool.h"

namespace artery::tensor {
namespace {

std::string read_text(const std::string& path) {
  std::ifstream in(path);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

// Quota / period of one v2 directory; 0 when there is none.
double v2_limit(const std::string& directory) {
  std::istringstream in(read_text(directory + "/cpu.max"));
  double quota = 0;
  double period = 0;
  // "max 100000" leaves quota unread.
  return in >> quota >> period && quota > 0 && period > 0 ? quota / period : 0;
}

double v1_limit(const std::string& directory) {
  std::istringstream quota_in(read_text(directory + "/cpu.cfs_quota_us"));
  std::istringstream period_in(read_text(directory + "/cpu.cfs_period_us"));
  double quota = 0;
  double period = 0;
  quota_in >> quota;  // -1: no limit
  period_in >> period;
  return quota > 0 && period > 0 ? quota / period : 0;
}

// The tightest limit from `path` up to the mount: a parent's quota binds its children. In a
// container the path may name directories that only the host sees; those read as no limit.
double tightest(const std::string& mount, std::string path, double (*limit)(const std::string&)) {
  double best = 0;
  for (;;) {
    const double here = limit(mount + path);
    if (here > 0 && (best == 0 || here < best)) best = here;
    const std::size_t slash = path.rfind('/');
    if (path.empty() || slash == std::string::npos) return best;
    path.resize(slash);
  }
}

bool names_cpu(const std::string& controllers) {
  std::istringstream in(controllers);
  for (std::string name; std::getline(in, name, ',');) {
    if (name == "cpu") return true;
  }
  return false;
}

int affinity_count() {
  // Grown until the kernel's mask fits: machines with more than 1024 processors exist.
  for (int cpus = 1024; cpus <= 1 << 20; cpus *= 2) {
    cpu_set_t* set = CPU_ALLOC(static_cast<std::size_t>(cpus));
    if (set == nullptr) return 0;
    const std::size_t size = CPU_ALLOC_SIZE(static_cast<std::size_t>(cpus));
    const int rc = sched_getaffinity(0, size, set);
    const int count = rc == 0 ? CPU_COUNT_S(size, set) : 0;
    CPU_FREE(set);
    if (rc == 0) return count;
  }
  return 0;
}

}  // namespace

double internal::cgroup_quota_cores(const std::string& proc_cgroup, const std::string& mount) {
  double best = 0;
  std::istringstream in(proc_cgroup);
  for (std::string line; std::getline(in, line);) {
    const std::size_t first = line.find(':');
    const std::size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::string path = line.substr(second + 1);
    double found = 0;
    if (controllers.empty()) {
      found = tightest(mount, path, v2_limit);
    } else if (names_cpu(controllers)) {
      found = tightest(mount + "/cpu", path, v1_limit);
    }
    if (found > 0 && (best == 0 || found < best)) best = found;
  }
  return best;
}

CpuLimits cpu_limits() {
  CpuLimits limits;
  limits.cores = std::max(1, static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN)));
  const int affinity = affinity_count();
  limits.affinity = affinity > 0 ? affinity : limits.cores;
  limits.quota_cores =
      internal::cgroup_quota_cores(read_text("/proc/self/cgroup"), "/sys/fs/cgroup");
  return limits;
}

int internal::default_threads(const CpuLimits& limits) {
  int threads = limits.affinity;
  if (limits.quota_cores > 0) threads = std::min(threads, static_cast<int>(limits.quota_cores));
  return std::max(1, threads);
}

int default_threads() { return internal::default_threads(cpu_limits()); }

}  // namespace artery::tensor
