#pragma once
// One-line logs, `key=value`, to standard error. Any thread. Never inside kernels.
//   log_info("request id={} tokens={}", id, count);

#include <fmt/core.h>

#include <string_view>
#include <utility>

namespace artery {

enum class LogLevel { kDebug, kInfo, kWarn, kError, kOff };

void set_log_level(LogLevel level);
LogLevel log_level();

// Writes one line; new-line characters inside `line` are written as "\n" so that a line stays a
// line.
void log_write(LogLevel level, std::string_view line);

template <typename... Args>
void log_at(LogLevel level, fmt::format_string<Args...> text, Args&&... args) {
  if (level >= log_level()) log_write(level, fmt::format(text, std::forward<Args>(args)...));
}
template <typename... Args>
void log_debug(fmt::format_string<Args...> text, Args&&... args) {
  log_at(LogLevel::kDebug, text, std::forward<Args>(args)...);
}
template <typename... Args>
void log_info(fmt::format_string<Args...> text, Args&&... args) {
  log_at(LogLevel::kInfo, text, std::forward<Args>(args)...);
}
template <typename... Args>
void log_warn(fmt::format_string<Args...> text, Args&&... args) {
  log_at(LogLevel::kWarn, text, std::forward<Args>(args)...);
}
template <typename... Args>
void log_error(fmt::format_string<Args...> text, Args&&... args) {
  log_at(LogLevel::kError, text, std::forward<Args>(args)...);
}

}  // namespace artery
