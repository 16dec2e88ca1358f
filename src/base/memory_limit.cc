#include "base/memory_limit.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <string_view>

namespace artery {
namespace {

constexpr std::size_t kFileBytesMax = 1 << 20;

std::string read_or_empty(const FileSystem& files, const std::string& path) {
  return files.read(path, kFileBytesMax).value_or(std::string());
}

// The number that opens `text` after blanks; nullopt for "max" and anything else.
std::optional<std::int64_t> number(std::string_view text) {
  const std::size_t at = text.find_first_not_of(" \t");
  if (at == std::string_view::npos) return std::nullopt;
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data() + at, text.data() + text.size(), value);
  if (error != std::errc()) return std::nullopt;
  return value;
}

// Value of the line "<key><blanks><number>".
std::optional<std::int64_t> field(const std::string& text, std::string_view key) {
  std::size_t at = 0;
  while (at < text.size()) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view line = std::string_view(text).substr(at, end - at);
    if (line.starts_with(key)) return number(line.substr(key.size()));
    at = end + 1;
  }
  return std::nullopt;
}

// Path of this process in the unified hierarchy ("0::/path") or the v1 memory controller
// ("5:memory:/path"), from proc/self/cgroup.
std::string cgroup_path(const std::string& text, std::string_view controller) {
  const std::string mark = ":" + std::string(controller) + ":";
  const std::size_t at = text.find(mark);
  if (at == std::string::npos) return {};
  const std::size_t begin = at + mark.size();
  return text.substr(begin, std::min(text.find('\n', begin), text.size()) - begin);
}

struct CgroupFiles {
  const char* limit;
  const char* use;
  const char* inactive;  // key in memory.stat
};

// Walks from the process's own cgroup up: any ancestor may be the tightest.
void apply_cgroup(
    const FileSystem& files,
    const std::string& base,
    std::string path,
    const CgroupFiles& names,
    MemoryLimit& out
) {
  // A limit this large is v1's way to say none.
  constexpr std::int64_t kNone = std::int64_t{1} << 60;
  while (true) {
    const std::string folder = base + path + "/";
    const auto limit = number(read_or_empty(files, folder + names.limit));
    const auto use = number(read_or_empty(files, folder + names.use));
    if (limit && use && *limit < kNone) {
      const auto inactive = field(read_or_empty(files, folder + "memory.stat"), names.inactive);
      const std::int64_t left = std::max<std::int64_t>(
          0, *limit - std::max<std::int64_t>(0, *use - inactive.value_or(0))
      );
      if (out.cgroup_left < 0 || left < out.cgroup_left) {
        out.cgroup_left = left;
        out.cgroup_limit = *limit;
      }
    }
    if (path.empty() || path == "/") return;
    path.resize(std::min(path.size(), path.find_last_of('/')));
  }
}

}  // namespace

std::int64_t MemoryLimit::available() const {
  if (machine_available < 0) return cgroup_left;
  if (cgroup_left < 0) return machine_available;
  return std::min(machine_available, cgroup_left);
}

MemoryLimit memory_limit(const FileSystem& files, const std::string& root) {
  MemoryLimit out;
  const std::string meminfo = read_or_empty(files, root + "proc/meminfo");
  if (const auto kib = field(meminfo, "MemTotal:")) out.machine_total = *kib * 1024;
  if (const auto kib = field(meminfo, "MemAvailable:")) out.machine_available = *kib * 1024;
  const std::string own = read_or_empty(files, root + "proc/self/cgroup");
  const std::string mount = root + "sys/fs/cgroup";
  apply_cgroup(
      files, mount, cgroup_path(own, ""), {"memory.max", "memory.current", "inactive_file "}, out
  );
  apply_cgroup(
      files,
      mount + "/memory",
      cgroup_path(own, "memory"),
      {"memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file "},
      out
  );
  return out;
}

std::int64_t usable_memory_bytes() { return std::max<std::int64_t>(memory_limit().available(), 0); }

}  // namespace artery
