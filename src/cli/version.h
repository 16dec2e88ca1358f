#pragma once
// What this binary is. Any thread.

#include <string>
#include <string_view>

namespace artery::cli {

std::string_view version_number();  // "0.1.0"

// "artery 0.1.0 (commit 1a2b3c4, g++ 12.2.0, isa avx512, numerics fast-1)", one line. Runs on every
// CPU.
std::string version_line();

}  // namespace artery::cli
