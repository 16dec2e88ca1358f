#pragma once
// Reads the --api-keys file. Main thread.

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "server/api_key.h"

namespace artery::cli {

// A TOML file of [[key]] tables, as docs/serving.md shows it. Keys are kept as digests only.
// kBadFile with
// file, entry and reason: unreadable, no TOML, no key at all, an unknown or wrong field, a name or
// key twice. Warns when others than the owner can read the file.
Result<std::vector<server::ApiKey>> read_key_file(const std::string& path);

// A line in the log when others than the owner can read a file of secrets. `flag` names it.
void warn_of_readers(std::string_view flag, const std::string& path);

}  // namespace artery::cli
