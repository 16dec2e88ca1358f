#pragma once
// Facts about this machine for `doctor`, read from /proc, /sys and a few system calls. Each one is
// "unknown" rather than an error when it cannot be read. Any thread.

#include <cstdint>
#include <string>

namespace artery::cli {

struct MachineFacts {
  std::string cpu;                // model name
  std::string cpu_flags_missing;  // of what the fastest path wants: "avx512_vnni"
  std::string huge_pages;         // "always", "madvise", "never"
  std::string io_uring;           // "available", or why not
  std::string memlock;            // limit of locked memory
  std::string open_files;         // limit
  std::string governor;           // CPU frequency governor
  std::int64_t disk_free = 0;     // bytes free where the model lies, or in the current folder
  double load = 0;                // one-minute average
};

MachineFacts machine_facts(const std::string& disk_path);

}  // namespace artery::cli
