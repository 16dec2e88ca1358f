#include "cli/machine.h"

#include <linux/io_uring.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "cli/report.h"

namespace artery::cli {
namespace {

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  return std::getline(file, line) ? line : "unknown";
}

// The value after "key : " in /proc/cpuinfo, of the first processor.
std::string cpuinfo(const std::string& key) {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind(key, 0) != 0) continue;
    const std::size_t colon = line.find(": ");
    if (colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown";
}

std::string missing_flags() {
  const std::string flags = " " + cpuinfo("flags") + " ";
  std::string missing;
  for (const char* want : {"avx2", "fma", "f16c", "avx512f", "avx512bw", "avx512_vnni"})
    if (flags.find(fmt::format(" {} ", want)) == std::string::npos)
      missing += (missing.empty() ? "" : " ") + std::string(want);
  return missing;
}

// "always [madvise] never" -> "madvise".
std::string huge_pages() {
  const std::string line = first_line("/sys/kernel/mm/transparent_hugepage/enabled");
  const std::size_t open = line.find('['), close = line.find(']');
  if (open == std::string::npos || close == std::string::npos) return "unknown";
  return line.substr(open + 1, close - open - 1);
}

std::string io_uring() {
  io_uring_params params = {};
  const long fd = syscall(SYS_io_uring_setup, 4, &params);
  if (fd >= 0) {
    close(static_cast<int>(fd));
    return "available";
  }
  if (errno == ENOSYS) return "not in this kernel";
  return errno == EPERM ? "forbidden (sysctl kernel.io_uring_disabled or a container's filter)"
                        : fmt::format("refused, errno {}", errno);
}

std::string limit_text(int resource, bool bytes) {
  rlimit limit = {};
  if (getrlimit(static_cast<__rlimit_resource_t>(resource), &limit) != 0) return "unknown";
  if (limit.rlim_cur == RLIM_INFINITY) return "unlimited";
  return bytes ? bytes_text(static_cast<double>(limit.rlim_cur))
               : fmt::format("{}", limit.rlim_cur);
}

}  // namespace

MachineFacts machine_facts(const std::string& disk_path) {
  MachineFacts facts;
  facts.cpu = cpuinfo("model name");
  facts.cpu_flags_missing = missing_flags();
  facts.huge_pages = huge_pages();
  facts.io_uring = io_uring();
  facts.memlock = limit_text(RLIMIT_MEMLOCK, true);
  facts.open_files = limit_text(RLIMIT_NOFILE, false);
  facts.governor = first_line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor");
  std::error_code why;
  const auto space = std::filesystem::space(disk_path.empty() ? std::string(".") : disk_path, why);
  if (!why) facts.disk_free = static_cast<std::int64_t>(space.available);
  double load[1] = {0};
  if (getloadavg(load, 1) == 1) facts.load = load[0];
  return facts;
}

}  // namespace artery::cli
