#include "cli/report.h"

#include <cstdio>

namespace artery::cli {

int exit_code(Code code) {
  switch (code) {
    case Code::kInvalidArgument:
      return kExitUsage;
    case Code::kBadFile:
    case Code::kUnsupported:
      return kExitBadFile;
    case Code::kOutOfMemory:
      return kExitNoMemory;
    default:
      return kExitFailed;
  }
}

std::string_view code_name(Code code) {
  switch (code) {
    case Code::kInvalidArgument:
      return "invalid_argument";
    case Code::kBadFile:
      return "bad_file";
    case Code::kUnsupported:
      return "unsupported";
    case Code::kContextLength:
      return "context_length_exceeded";
    case Code::kUnauthorized:
      return "unauthorized";
    case Code::kNotFound:
      return "not_found";
    case Code::kTooLarge:
      return "too_large";
    case Code::kOverloaded:
      return "overloaded";
    case Code::kUnavailable:
      return "unavailable";
    case Code::kCancelled:
      return "cancelled";
    case Code::kDeadlineExceeded:
      return "deadline_exceeded";
    case Code::kOutOfMemory:
      return "out_of_memory";
    case Code::kIo:
      return "io";
    case Code::kInternal:
      return "internal";
  }
  return "internal";
}

void print_error(const Error& error) {
  const bool named = error.field.empty() || error.message.find(error.field) == 0;
  const std::string field = named ? "" : error.field + ": ";
  std::fflush(stdout);
  std::fputs(fmt::format("artery: error: {}{}\n", field, error.message).c_str(), stderr);
}

std::string bytes_text(double bytes) {
  const char* const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  int unit = 0;
  while (bytes >= 1024 && unit < 4) {
    bytes /= 1024;
    ++unit;
  }
  return fmt::format(fmt::runtime(unit == 0 ? "{:.0f} {}" : "{:.2f} {}"), bytes, units[unit]);
}

}  // namespace artery::cli
