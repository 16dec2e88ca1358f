#pragma once
// Reads the --config file. The one place that sees toml++. Main thread.

#include <map>
#include <string>

#include "base/result.h"

namespace artery::cli {

// Top-level keys of a TOML file as flag names (with -) and values as one would type them; arrays of
// plain values become comma lists. kNotFound, kIo; kInvalidArgument with line and reason when it
// does not parse or holds tables, which no flag has.
Result<std::map<std::string, std::string>> read_config_file(const std::string& path);

}  // namespace artery::cli
