#pragma once
// CHECK(cond, "format {}", args...): ends the process with a message when an invariant of our own
// is broken. On in release. Never for a file, a peer, a client or a full pool: those are Results.

#include <fmt/core.h>

#include <string>

namespace artery::internal {
[[noreturn]] void check_failed(
    const char* file, int line, const char* condition, const std::string& message
);
inline std::string check_message() { return {}; }
template <typename... Args>
std::string check_message(fmt::format_string<Args...> text, Args&&... args) {
  return fmt::format(text, std::forward<Args>(args)...);
}
}  // namespace artery::internal

#define CHECK(cond, ...)                                                            \
  do {                                                                              \
    if (!(cond)) [[unlikely]]                                                       \
      ::artery::internal::check_failed(                                             \
          __FILE__, __LINE__, #cond, ::artery::internal::check_message(__VA_ARGS__) \
      );                                                                            \
  } while (false)
