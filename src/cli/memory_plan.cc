#include "cli/memory_plan.h"

#include <algorithm>
#include <fstream>
#include <sstream>

#include "base/chain_key.h"
#include "cli/report.h"

namespace artery::cli {
namespace {

// A number after `key` in a file of "key value" lines; 0 when absent.
std::int64_t number_after(const std::string& path, const std::string& key) {
  std::ifstream file(path);
  std::string word;
  while (file >> word) {
    std::int64_t value = 0;
    if (word == key && file >> value) return value;
  }
  return 0;
}

std::int64_t number_in(const std::string& path) {
  std::ifstream file(path);
  std::int64_t value = 0;
  return file >> value ? value : 0;  // "max" gives 0
}

// The tightest limit between this process's cgroup (version 2) and the root.
void read_cgroup(MemoryLimits& limits) {
  std::ifstream file("/proc/self/cgroup");
  std::string line, path;
  while (std::getline(file, line))
    if (line.rfind("0::", 0) == 0) path = line.substr(3);
  for (;;) {
    const std::string folder = "/sys/fs/cgroup" + (path == "/" ? "" : path);
    const std::int64_t limit = number_in(folder + "/memory.max");
    if (limit > 0 && (limits.cgroup_limit == 0 || limit < limits.cgroup_limit)) {
      limits.cgroup_limit = limit;
      limits.cgroup_used = number_in(folder + "/memory.current") -
                           number_after(folder + "/memory.stat", "inactive_file");
    }
    if (path.empty() || path == "/") break;
    path.resize(path.rfind('/'));
  }
  if (limits.cgroup_limit > 0) return;
  const std::int64_t v1 = number_in("/sys/fs/cgroup/memory/memory.limit_in_bytes");
  if (v1 <= 0 || v1 >= limits.total) return;
  limits.cgroup_limit = v1;
  limits.cgroup_used = number_in("/sys/fs/cgroup/memory/memory.usage_in_bytes") -
                       number_after("/sys/fs/cgroup/memory/memory.stat", "total_inactive_file");
}

std::int64_t whole_pages(std::int64_t tokens) { return tokens / kPageTokens * kPageTokens; }

}  // namespace

std::int64_t MemoryLimits::usable() const {
  if (cgroup_limit == 0) return available;
  return std::min(available, std::max<std::int64_t>(cgroup_limit - cgroup_used, 0));
}

MemoryLimits memory_limits() {
  MemoryLimits limits;
  limits.total = number_after("/proc/meminfo", "MemTotal:") * 1024;
  limits.available = number_after("/proc/meminfo", "MemAvailable:") * 1024;
  read_cgroup(limits);
  return limits;
}

std::string ContextPlan::text() const {
  return fmt::format(
      "context {} of {}; {:.2f} GiB KV",
      context,
      model_context,
      static_cast<double>(context * bytes_per_token) / (1 << 30)
  );
}

Result<ContextPlan> plan_context(const ContextWish& wish) {
  if (wish.asked > wish.model_context)
    return fail_field(
        "--max-model-len",
        "{} is beyond the {} tokens the model was made for",
        wish.asked,
        wish.model_context
    );
  // Activations, the text side and the rest of the machine need room too.
  constexpr std::int64_t kReserveMin = std::int64_t{128} << 20;
  const std::int64_t reserve = std::max(kReserveMin, wish.usable_bytes / 10);
  const std::int64_t budget = wish.pool_bytes_asked > 0
                                  ? std::min(wish.pool_bytes_asked, wish.usable_bytes)
                                  : wish.usable_bytes - reserve;
  const std::int64_t wanted = wish.asked > 0 ? wish.asked : wish.model_context;
  const std::int64_t page_bytes = wish.bytes_per_token * kPageTokens;
  const std::int64_t pages_wanted = (wanted + kPageTokens - 1) / kPageTokens;
  const bool fits = pages_wanted * page_bytes <= budget;
  const std::int64_t fitting =
      fits ? wanted : whole_pages(std::max<std::int64_t>(budget, 0) / wish.bytes_per_token);
  if (fitting < kPageTokens || (!fits && wish.asked > 0))
    return fail(
        Code::kOutOfMemory,
        "a context of {} tokens needs {} for keys and values, {} can be used; at most {} tokens "
        "fit: use --max-model-len, or a machine with more memory",
        wanted,
        bytes_text(static_cast<double>(wanted * wish.bytes_per_token)),
        bytes_text(static_cast<double>(std::max<std::int64_t>(budget, 0))),
        fitting
    );
  ContextPlan plan{fitting, wish.model_context, wish.bytes_per_token, 0};
  const std::int64_t one = (fitting + kPageTokens - 1) / kPageTokens * page_bytes;
  // Room for several conversations and their cached prefixes, without taking over the machine.
  constexpr std::int64_t kContexts = 4;
  plan.pool_bytes =
      wish.pool_bytes_asked > 0 ? budget : std::max(one, std::min(kContexts * one, budget / 4));
  return plan;
}

}  // namespace artery::cli
