#pragma once
// How much memory this process may still take: what the machine has available and what its cgroup
// leaves (containers). Reads /proc and /sys each time; any thread.

#include <cstdint>
#include <string>

#include "base/file_system.h"

namespace artery {

struct MemoryLimit {
  std::int64_t machine_total = -1;      // bytes; MemTotal; -1: unknown
  std::int64_t machine_available = -1;  // bytes; MemAvailable; -1: unknown
  std::int64_t cgroup_limit = -1;  // bytes; the tightest of the cgroup and its parents; -1: none
  std::int64_t cgroup_left = -1;   // of the same cgroup: limit - use, file cache not counted

  // The smaller of what is known; -1 when nothing is.
  std::int64_t available() const;
};

// `root` is "/" except in tests.
MemoryLimit memory_limit(
    const FileSystem& files = system_file_system(), const std::string& root = "/"
);

// memory_limit().available() of this machine, 0 when unknown.
std::int64_t usable_memory_bytes();

}  // namespace artery
