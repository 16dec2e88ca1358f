#pragma once
// The KV cache as JSON: GET /artery/cache, and one line of GET /artery/status. Pure functions, any
// thread.

#include <optional>
#include <string>

#include "engine/engine.h"
#include "kvstore/status.h"
#include "server/api/json_writer.h"

namespace artery::server::api {

// A hit costs a fiftieth of a computed token: what the larger APIs charge. Savings are counted so.
constexpr double kHitPrice = 1.0 / 50;

// `store`: of the tier behind RAM; nullopt: there is none.
std::string cache_report(
    const engine::Status& status, const std::optional<kvstore::StoreStatus>& store
);
// {"health", "records", "bytes_used", "bytes_max"}, or null.
void write_store_line(JsonWriter& out, const std::optional<kvstore::StoreStatus>& store);

}  // namespace artery::server::api
