#include <fmt/core.h>

#include "server/api/app.h"
#include "server/api/cache_report.h"

namespace artery::server::api {
namespace {

using kvstore::ClassStatus;
using kvstore::StoreStatus;

double share(std::int64_t part, std::int64_t whole) {
  return whole > 0 ? static_cast<double>(part) / static_cast<double>(whole) : 0.0;
}

// Of the prompts admitted so far; served and computed tokens together are all of them.
struct Tokens {
  explicit Tokens(const engine::Status& status)
      : ram(status.hit_tokens_ram), disk(status.hit_tokens_disk) {
    for (const std::int64_t tokens : status.miss_tokens) missed += tokens;
  }
  std::int64_t all() const { return ram + disk + missed; }
  std::int64_t ram, disk, missed = 0;
};

void write_misses(JsonWriter& out, const engine::Status& status) {
  out.key("miss_tokens").begin_object();
  for (int i = 0; i < kvstore::kMissReasons; ++i) {
    const auto reason = static_cast<kvstore::MissReason>(i);
    const bool is_none = reason == kvstore::MissReason::kNone;
    // A prompt's last token is always computed, also when nothing was missing.
    out.field(
        is_none ? "last" : kvstore::name(reason), status.miss_tokens[static_cast<std::size_t>(i)]
    );
  }
  out.end_object();
}

void write_saved(JsonWriter& out, const Tokens& tokens) {
  const std::int64_t hits = tokens.ram + tokens.disk;
  out.key("saved").begin_object().field("hit_price", kHitPrice);
  out.field("tokens", hits);
  out.field("input_cost_share", share(hits, tokens.all()) * (1 - kHitPrice)).end_object();
}

void write_ram(JsonWriter& out, const engine::Status& status, const Tokens& tokens) {
  out.begin_object().field("tier", "ram").field("pages_total", status.pages_total);
  out.field("pages_in_use", status.pages_in_use).field("pages_cached", status.pages_cached);
  out.field("page_tokens", kPageTokens).field("hit_tokens", tokens.ram);
  out.field("hit_rate", share(tokens.ram, tokens.all())).end_object();
}

void write_classes(JsonWriter& out, const StoreStatus& store) {
  out.key("classes").begin_array();
  for (const kvstore::TtlClass ttl : kvstore::kAllTtlClasses) {
    const ClassStatus& one = store.classes[static_cast<std::size_t>(ttl)];
    out.begin_object().field("ttl", kvstore::name(ttl)).field("records", one.records);
    out.field("bytes", one.bytes).field("tokens", one.tokens).field("segments", one.segments);
    out.field("hits", one.hits).field("expired", one.expired).field("evicted", one.evicted);
    out.field("oldest_s", one.oldest_s).field("median_age_s", one.median_age_s).end_object();
  }
  out.end_array();
}

void write_tenants(JsonWriter& out, const StoreStatus& store) {
  out.key("tenants").begin_array();
  for (const kvstore::TenantStatus& one : store.tenants) {
    if (one.records == 0 && one.quota_bytes == 0) continue;  // known from the key file only
    out.begin_object().field("tenant", one.tenant).field("records", one.records);
    out.field("bytes", one.bytes).field("guaranteed_bytes", one.guaranteed_bytes);
    out.field("quota_bytes", one.quota_bytes).field("encrypted", one.encrypted).end_object();
  }
  out.end_array();
}

void write_io(JsonWriter& out, const StoreStatus& store) {
  out.key("written").begin_object().field("records", store.records_written);
  out.field("bytes", store.bytes_written).field("copied_records", store.records_copied);
  out.field("copied_bytes", store.bytes_copied).field("disk_bytes", store.bytes_to_disk);
  out.field("amplification", store.write_amplification());
  out.field("refused_budget", store.writes_refused_budget);
  out.field("refused_quota", store.writes_refused_quota);
  out.field("refused_room", store.writes_refused_room);
  out.field("queued", store.writes_queued);
  out.field("bytes_per_s", store.write_bytes_per_s).end_object();
  out.key("read").begin_object().field("records", store.records_read);
  out.field("bytes", store.bytes_read).field("queued", store.reads_queued);
  out.field("bytes_per_s", store.read_bytes_per_s).field("latency_s", store.read_latency_s);
  out.end_object();
  out.key("errors").begin_object().field("checksum", store.checksum_failures);
  out.field("tokens", store.token_mismatches).field("version", store.version_mismatches);
  out.field("io", store.io_errors).field("slow_read", store.reads_slow);
  out.field("segment_lost", store.segments_lost);
  out.field("breaker_opened", store.breaker_opened).end_object();
}

void write_disk(
    JsonWriter& out, const engine::Status& status, const Tokens& tokens, const StoreStatus& store
) {
  out.begin_object().field("tier", "disk").field("folder", store.folder).field("io", store.io);
  out.field("health", kvstore::name(store.health)).key("trouble");
  store.trouble.empty() ? out.null() : out.string(store.trouble);
  out.key("unused");
  store.unused.empty() ? out.null() : out.string(store.unused);
  out.field("hit_tokens", tokens.disk).field("hit_rate", share(tokens.disk, tokens.all()));
  out.field("bytes_max", store.bytes_max).field("bytes_used", store.bytes_used);
  out.field("bytes_live", store.bytes_live).field("guaranteed_bytes", store.guaranteed_bytes);
  out.field("records", store.records).field("segments", store.segments);
  out.field("segments_expired", store.segments_expired);
  out.field("segments_reclaimed", store.segments_reclaimed);
  out.field("index_bytes", store.index_bytes).field("open_s", store.open_s);
  out.field("recovered_records", store.recovered_records);
  out.field("recovery_cuts", store.recovery_cuts).field("unknown_files", store.unknown_files);
  out.key("loads").begin_object().field("whole", status.loads_whole);
  out.field("partial", status.loads_partial).field("declined", status.loads_declined);
  out.field("wait_s", status.load_wait_s).end_object();
  write_classes(out, store);
  write_io(out, store);
  write_tenants(out, store);
  out.end_object();
}

}  // namespace

std::string cache_report(const engine::Status& status, const std::optional<StoreStatus>& store) {
  const Tokens tokens(status);
  JsonWriter out;
  out.begin_object().key("tiers").begin_array();
  write_ram(out, status, tokens);
  if (store) write_disk(out, status, tokens, *store);
  out.end_array();
  out.field("prompt_tokens", tokens.all()).field("query_tokens", status.prefix_queries);
  out.field("hit_tokens", tokens.ram + tokens.disk);
  out.field("hit_rate", share(tokens.ram + tokens.disk, tokens.all()));
  write_misses(out, status);
  write_saved(out, tokens);
  out.end_object();
  return out.take();
}

void write_store_line(JsonWriter& out, const std::optional<StoreStatus>& store) {
  if (!store) {
    out.null();
    return;
  }
  out.begin_object().field("health", kvstore::name(store->health));
  out.field("records", store->records).field("bytes_used", store->bytes_used);
  out.field("bytes_max", store->bytes_max).end_object();
}

void App::get_cache(Call& call) {
  const auto now = live_or_refuse(call);
  if (!now) return;
  const engine::Engine& engine = *now->serving->engine;
  reply_json(call, 200, cache_report(engine.status(), engine.store_status()));
}

// RAM only. What vLLM does to a tier behind it (reset_external) is a tenant's erasure here.
void App::reset_prefix_cache(Call& call) {
  const auto now = live_or_refuse(call);
  if (!now) return;
  if (call.request->query.find("reset_external=true") != std::string::npos) {
    ApiError error = http_error(
        400,
        "reset_external: the store on disk is not dropped from here; use `artery kv drop-tenant` "
        "or remove its folder while no server uses it"
    );
    error.param = "reset_external";
    reply_error(call, error);
    return;
  }
  if (now->serving->engine->reset_prefix_cache()) {
    reply_json(call, 200, R"({"success":true,"tiers":["ram"]})");
    return;
  }
  ApiError error = http_error(
      409, "some cached pages are in use by running requests and stay; try again when they ended"
  );
  error.code = "cache_in_use";
  reply_error(call, error);
}

}  // namespace artery::server::api
