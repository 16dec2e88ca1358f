#pragma once
// One API key and what its holder may use: what `cli` reads from a file and the server enforces.
// Plain values; the key itself is known here only by its digest.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/hash.h"

namespace artery::server {

constexpr int kApiKeysMax = 10000;

struct ApiKey {
  Digest digest{};     // SHA-256 of the key
  std::string name;    // in logs and metrics
  std::string tenant;  // no cached prefix is shared across tenants
  // Limits over all requests of this name; 0: none.
  int max_concurrent = 0;
  int requests_per_minute = 0;
  std::int64_t tokens_per_minute = 0;  // prompt and generated ones
  int priority = 0;                    // of requests that name none, and the most urgent they may
  std::int64_t kv_quota_bytes = 0;     // of the tenant's stored KV; the same for all its keys
  bool admin = false;                  // may use the admin paths from anywhere
};

Digest key_digest(std::string_view key);

}  // namespace artery::server
