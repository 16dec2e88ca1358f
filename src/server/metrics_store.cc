// What the tiers of the KV cache show in /metrics.

#include <utility>

#include "server/metric_families.h"

namespace artery::server {
namespace {

using kvstore::ClassStatus;
using kvstore::StoreStatus;
using prometheus::MetricFamily;
using prometheus::MetricType;

double number(std::int64_t count) { return static_cast<double>(count); }

struct CountOf {
  const char* label;
  std::int64_t count;
};

void append_class_families(
    const prometheus::Labels& labels, const StoreStatus& store, std::vector<MetricFamily>& out
) {
  struct Column {
    MetricType type;
    const char *name, *help;
    std::int64_t ClassStatus::* count;
  };
  static constexpr Column kColumns[] = {
      {MetricType::Gauge,
       "kv_store_live_bytes",
       "Bytes of records that can be hit, by class of life time.",
       &ClassStatus::bytes},
      {MetricType::Gauge, "kv_store_records", "Such records.", &ClassStatus::records},
      {MetricType::Counter, "kv_store_hits_total", "Records hit.", &ClassStatus::hits},
      {MetricType::Counter,
       "kv_store_expired_total",
       "Records whose time had passed.",
       &ClassStatus::expired},
      {MetricType::Counter,
       "kv_store_evicted_total",
       "Records that gave way to others.",
       &ClassStatus::evicted},
  };
  for (const Column& column : kColumns) {
    MetricFamily& family = new_family(out, column.type, column.name, column.help);
    for (const kvstore::TtlClass ttl : kvstore::kAllTtlClasses) {
      const ClassStatus& one = store.classes[static_cast<std::size_t>(ttl)];
      add_value(family, labels, "ttl", kvstore::name(ttl), number(one.*column.count));
    }
  }
}

// Errors are absorbed as misses; here they are seen.
void append_trouble_families(
    const prometheus::Labels& labels, const StoreStatus& store, std::vector<MetricFamily>& out
) {
  const CountOf errors[] = {
      {"checksum", store.checksum_failures},
      {"tokens", store.token_mismatches},
      {"version", store.version_mismatches},
      {"io", store.io_errors},
      {"slow_read", store.reads_slow},
      {"segment_lost", store.segments_lost},
  };
  MetricFamily& family = new_family(
      out,
      MetricType::Counter,
      "kv_store_errors_total",
      "Faults of the store, each of which was a miss, by kind."
  );
  for (const CountOf& one : errors) add_value(family, labels, "kind", one.label, number(one.count));
  const CountOf refused[] = {
      {"budget", store.writes_refused_budget},
      {"quota", store.writes_refused_quota},
      {"room", store.writes_refused_room},
  };
  MetricFamily& writes = new_family(
      out,
      MetricType::Counter,
      "kv_store_writes_refused_total",
      "Records that were not written, by reason."
  );
  for (const CountOf& one : refused) {
    add_value(writes, labels, "reason", one.label, number(one.count));
  }
  MetricFamily& health = new_family(
      out,
      MetricType::Gauge,
      "kv_store_health",
      "1 at the state the store is in: ok, read-only, or sick (out of service for a while)."
  );
  for (const auto state :
       {kvstore::Health::kOk, kvstore::Health::kReadOnly, kvstore::Health::kSick}) {
    add_value(health, labels, "state", kvstore::name(state), store.health == state ? 1 : 0);
  }
}

}  // namespace

MetricFamily& new_family(
    std::vector<MetricFamily>& out,
    MetricType type,
    const char* name,
    const char* help,
    std::string_view prefix
) {
  out.push_back({std::string(prefix) + name, help, type, {}});
  return out.back();
}

void add_value(
    MetricFamily& family,
    prometheus::Labels labels,
    const char* name,
    std::string_view value,
    double number
) {
  if (name != nullptr) labels[name] = std::string(value);
  prometheus::ClientMetric metric;
  for (const auto& [key, text] : labels) metric.label.push_back({key, text});
  (family.type == MetricType::Gauge ? metric.gauge.value : metric.counter.value) = number;
  family.metric.push_back(std::move(metric));
}

void append_offload_families(
    const std::string& prefix,
    const prometheus::Labels& labels,
    const engine::Status& status,
    const std::optional<StoreStatus>& store,
    std::vector<MetricFamily>& out
) {
  const auto add = [&](const char* name, const char* help, double value) {
    MetricFamily& family = new_family(out, MetricType::Counter, name, help, prefix);
    add_value(family, labels, nullptr, {}, value);
  };
  const StoreStatus none;
  const StoreStatus& counts = store ? *store : none;
  add("kv_offload_load_bytes_total", "Bytes of KV loaded from the store.", number(counts.bytes_read)
  );
  add("kv_offload_load_time_total",
      "Seconds that requests waited for loads from the store.",
      status.load_wait_s);
  add("kv_offload_store_bytes_total",
      "Bytes of KV written to the store.",
      number(counts.bytes_written));
  add("kv_offload_stores_skipped_total",
      "Records offered to the store that it did not take.",
      number(status.records_refused));
  add("kv_offload_allocation_failure_total",
      "Of these, records for which it had no room.",
      number(counts.writes_refused_room));
  std::int64_t beyond_ram = status.hit_tokens_disk;
  for (const std::int64_t tokens : status.miss_tokens) beyond_ram += tokens;
  add("external_prefix_cache_queries_total",
      "Prompt tokens looked up in the store: what RAM did not have.",
      store ? number(beyond_ram) : 0);
  add("external_prefix_cache_hits_total",
      "Prompt tokens served from the store.",
      number(status.hit_tokens_disk));
}

void append_cache_families(
    const prometheus::Labels& labels, const engine::Status& status, std::vector<MetricFamily>& out
) {
  MetricFamily& hits = new_family(
      out,
      MetricType::Counter,
      "cache_hit_tokens_total",
      "Prompt tokens served from cache, by tier."
  );
  add_value(hits, labels, "tier", "ram", number(status.hit_tokens_ram));
  add_value(hits, labels, "tier", "disk", number(status.hit_tokens_disk));
  MetricFamily& misses = new_family(
      out,
      MetricType::Counter,
      "cache_miss_tokens_total",
      "Prompt tokens computed, by the reason why the cache did not serve them."
  );
  for (int i = 0; i < kvstore::kMissReasons; ++i) {
    const auto reason = static_cast<kvstore::MissReason>(i);
    const std::int64_t tokens = status.miss_tokens[static_cast<std::size_t>(i)];
    // A prompt's last token is always computed, also when nothing was missing.
    const std::string_view label =
        reason == kvstore::MissReason::kNone ? "last" : kvstore::name(reason);
    add_value(misses, labels, "reason", label, number(tokens));
  }
  const CountOf loads[] = {
      {"whole", status.loads_whole},
      {"partial", status.loads_partial},
      {"declined", status.loads_declined},
  };
  MetricFamily& family = new_family(
      out,
      MetricType::Counter,
      "kv_offload_loads_total",
      "Loads from the store: whole, ended early, or not begun because computing was faster."
  );
  for (const CountOf& one : loads)
    add_value(family, labels, "outcome", one.label, number(one.count));
}

void append_store_families(
    const prometheus::Labels& labels, const StoreStatus& store, std::vector<MetricFamily>& out
) {
  const auto add = [&](MetricType type, const char* name, const char* help, double value) {
    MetricFamily& family = new_family(out, type, name, help);
    add_value(family, labels, nullptr, {}, value);
  };
  using enum MetricType;
  add(Gauge,
      "kv_store_bytes_max",
      "Bytes that the store's folder may take.",
      number(store.bytes_max));
  add(Gauge, "kv_store_bytes_used", "Bytes that it takes.", number(store.bytes_used));
  add(Gauge, "kv_store_guaranteed_bytes", "Bytes that are promised.", number(store.guaranteed_bytes)
  );
  add(Gauge, "kv_store_segments", "Segment files.", number(store.segments));
  add(Gauge, "kv_store_index_bytes", "Memory of the index.", number(store.index_bytes));
  add(Gauge, "kv_store_writes_queued", "Records waiting to be written.", number(store.writes_queued)
  );
  add(Gauge, "kv_store_reads_queued", "Records waiting to be read.", number(store.reads_queued));
  add(Gauge,
      "kv_store_write_amplification",
      "Bytes that went to the disk for each byte of new records.",
      store.write_amplification());
  add(Gauge,
      "kv_store_read_latency_seconds",
      "Seconds of a read, measured lately.",
      store.read_latency_s);
  add(Counter,
      "kv_store_disk_bytes_total",
      "All bytes written to the disk: copies, footers, journals and padding included.",
      number(store.bytes_to_disk));
  add(Counter,
      "kv_store_copied_bytes_total",
      "Bytes of records copied forward when a segment was reclaimed.",
      number(store.bytes_copied));
  add(Counter,
      "kv_store_segments_expired_total",
      "Segments removed because all in them had expired.",
      number(store.segments_expired));
  add(Counter,
      "kv_store_segments_reclaimed_total",
      "Segments removed to make room.",
      number(store.segments_reclaimed));
  add(Counter,
      "kv_store_breaker_opened_total",
      "Times the store went out of service because of errors.",
      number(store.breaker_opened));
  append_class_families(labels, store, out);
  append_trouble_families(labels, store, out);
}

}  // namespace artery::server
