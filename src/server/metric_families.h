#pragma once
// Families of metrics whose values something else counts; for them a registry would only be a
// second copy. Any thread.

#include <prometheus/labels.h>
#include <prometheus/metric_family.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/engine.h"
#include "kvstore/status.h"

namespace artery::server {

// A family without values at the end of `out`; `name` without its prefix.
prometheus::MetricFamily& new_family(
    std::vector<prometheus::MetricFamily>& out,
    prometheus::MetricType type,
    const char* name,
    const char* help,
    std::string_view prefix = "artery:"
);
// One value, with the label `name`="`value`" beside `labels`; null: without.
void add_value(
    prometheus::MetricFamily& family,
    prometheus::Labels labels,
    const char* name,
    std::string_view value,
    double number
);

// Under vLLM's names: what went to the tier behind the RAM prefix cache and came back.
void append_offload_families(
    const std::string& prefix,
    const prometheus::Labels& labels,
    const engine::Status& status,
    const std::optional<kvstore::StoreStatus>& store,
    std::vector<prometheus::MetricFamily>& out
);
// Where prompts were served from, and why the rest was not.
void append_cache_families(
    const prometheus::Labels& labels,
    const engine::Status& status,
    std::vector<prometheus::MetricFamily>& out
);
void append_store_families(
    const prometheus::Labels& labels,
    const kvstore::StoreStatus& store,
    std::vector<prometheus::MetricFamily>& out
);

}  // namespace artery::server
