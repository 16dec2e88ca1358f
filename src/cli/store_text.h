#pragma once
// A KV store's survey as rows: what `inspect` and `kv verify` show of it. Main thread.

#include <string>

#include "cli/table.h"
#include "kvstore/survey.h"

namespace artery::cli {

// Folder, state, segments, bytes, records by class and tenant, spaces, encryption, troubles.
// `now_s`: unix seconds.
void store_rows(Table& table, const kvstore::Survey& survey, std::int64_t now_s);

// "3 d 4 h", "12 min", "9 s".
std::string age_text(double seconds);

// A tenant's name as people read it; that of a server without keys is empty.
std::string tenant_text(const std::string& tenant);

}  // namespace artery::cli
