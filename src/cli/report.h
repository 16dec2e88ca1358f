#pragma once
// How verbs speak of failure: the exit codes of the program and the last line a user sees.
// Pure functions, any thread.

#include <string>
#include <string_view>

#include "base/result.h"

namespace artery::cli {

// 0 done; 1 failed; 2 wrong usage; 3 the model, store or input file is bad or unsupported; 4 not
// enough memory or disk; 128 + n: stopped by signal n after a clean stop.
constexpr int kExitDone = 0;
constexpr int kExitFailed = 1;
constexpr int kExitUsage = 2;
constexpr int kExitBadFile = 3;
constexpr int kExitNoMemory = 4;

int exit_code(Code code);

// "bad_file", as JSON Lines verbs write it.
std::string_view code_name(Code code);

// "artery: error: --port: must be ..." to standard error.
void print_error(const Error& error);

// 1536 -> "1.50 KiB".
std::string bytes_text(double bytes);

}  // namespace artery::cli
