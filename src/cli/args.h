#pragma once
// The command line. args.cc is the one file that sees CLI11. Main thread.

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "cli/flags.h"

namespace artery::cli {

struct Parsed {
  const Verb* verb = nullptr;
  std::map<std::string, std::string> given;  // by flag name
  bool version = false;
  bool print_config = false;
  std::optional<int> exit_code;  // help was printed, or the usage was wrong and said so
};

// `verbs` outlives the result. Prints help to standard output and usage errors to standard error.
Parsed parse_args(const std::vector<Verb>& verbs, int argc, const char* const* argv);

}  // namespace artery::cli
