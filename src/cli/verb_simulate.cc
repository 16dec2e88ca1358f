// `artery simulate cache`: what a store of some size would have hit on a recorded workload.

#include <cmath>
#include <optional>
#include <utility>

#include "base/clock.h"
#include "base/file_system.h"
#include "base/log.h"
#include "cli/options.h"
#include "cli/progress.h"
#include "cli/report.h"
#include "cli/table.h"
#include "cli/verbs.h"
#include "sim/cache_sim.h"

namespace artery::cli {
namespace {

using kvstore::MissReason;

struct Capacity {
  std::int64_t bytes = 0;  // 0: unlimited
  double percent = 0;      // of the distinct bytes, where it was given so
};

// "", "10G" or "2%".
Result<Capacity> parse_capacity(const std::string& text) {
  Capacity out;
  if (text.empty()) return out;
  if (text.back() != '%') {
    const std::optional<std::int64_t> bytes = parse_bytes(text);
    if (!bytes || *bytes <= 0)
      return fail_field("capacity", "\"{}\": must be bytes, as 10G, or a share, as 2%", text);
    out.bytes = *bytes;
    return out;
  }
  char* end = nullptr;
  out.percent = std::strtod(text.c_str(), &end);
  if (end != text.c_str() + text.size() - 1 || !(out.percent > 0) || out.percent > 1e6)
    return fail_field("capacity", "\"{}\": must be bytes, as 10G, or a share, as 2%", text);
  return out;
}

sim::CacheSimConfig read_config(const Options& options) {
  sim::CacheSimConfig config;
  config.policy = options.text("policy") == "lru" ? sim::Policy::kLru : sim::Policy::kSegments;
  config.record_tokens = options.integer("record-tokens");
  config.bytes_per_token = options.integer("bytes-per-token");
  config.segment_bytes = options.integer("segment-bytes");
  config.tails = options.on("units");
  for (const kvstore::TtlClass ttl : kvstore::kAllTtlClasses)
    if (kvstore::name(ttl) == options.text("ttl")) config.ttl = ttl;
  return config;
}

std::string percent(double share) { return fmt::format("{:.2f} %", share * 100); }

void add_misses(Table& table, const sim::CacheSimResult& result) {
  boost::json::object requests, tokens;
  for (int i = 1; i < kvstore::kMissReasons; ++i) {
    const auto at = static_cast<std::size_t>(i);
    const std::string_view name = kvstore::name(static_cast<MissReason>(i));
    requests[boost::json::string_view(name.data(), name.size())] = result.missed[at];
    tokens[boost::json::string_view(name.data(), name.size())] = result.missed_tokens[at];
    if (result.missed[at] == 0) continue;
    const double share = static_cast<double>(result.missed_tokens[at]) /
                         static_cast<double>(std::max<std::int64_t>(1, result.input_tokens));
    table.line(fmt::format(
        "{:<22}{} tokens in {} requests, {} of the input",
        fmt::format("missed, {}", name),
        result.missed_tokens[at],
        result.missed[at],
        percent(share)
    ));
  }
  table.json_only("missed_requests", std::move(requests));
  table.json_only("missed_tokens", std::move(tokens));
}

struct Ran {
  sim::CacheTrace trace;
  sim::CacheSimConfig config;
  sim::CacheSimResult result;
  std::int64_t record_tokens = 0, distinct = 0;
  double seconds = 0;
};

void print(const Ran& ran, bool as_json) {
  const sim::CacheSimResult& result = ran.result;
  Table table;
  const auto bytes = [&](std::string_view key, std::int64_t value, const char* unlimited = "") {
    const bool none = value == 0 && *unlimited != '\0';
    table.row(key, none ? unlimited : bytes_text(static_cast<double>(value)), value);
  };
  const auto number = [&](std::string_view key, std::int64_t value) {
    table.row(key, std::to_string(value), value);
  };
  table.row(
      "trace",
      fmt::format("{}, blocks of {} tokens", ran.trace.format, ran.trace.block_tokens),
      boost::json::string(ran.trace.format)
  );
  const bool is_lru = ran.config.policy == sim::Policy::kLru;
  table.row("policy", is_lru ? "lru" : "segments");
  number("record tokens", ran.record_tokens);
  number("requests", result.requests);
  number("input tokens", result.input_tokens);
  number("hit tokens", result.hit_tokens);
  table.row("hit share", percent(result.hit_share()), result.hit_share());
  if (!is_lru) add_misses(table, result);
  bytes("distinct bytes", ran.distinct);
  bytes("capacity bytes", ran.config.capacity_bytes, "unlimited");
  bytes("peak bytes", result.peak_bytes);
  bytes("bytes written", result.bytes_written);
  if (is_lru) {
    number("records evicted", result.records_evicted);
  } else {
    bytes("bytes copied", result.bytes_copied);
    table.row(
        "write amplification",
        fmt::format("{:.3f}", result.write_amplification()),
        result.write_amplification()
    );
    bytes("segment bytes", result.segment_bytes);
    number("segments expired", result.segments_expired);
    number("segments reclaimed", result.segments_reclaimed);
    number("records refused", result.records_refused);
  }
  table.row(
      "input cost saved",
      fmt::format("{}, a hit at 1/50 of the price", percent(result.saved_share())),
      result.saved_share()
  );
  table.row("seconds", fmt::format("{:.1f}", ran.seconds), ran.seconds);
  table.print(as_json);
}

Result<int> run_simulate_cache(const Options& options) {
  const std::string path = TRY(options.require("trace"));
  const Capacity capacity = TRY(parse_capacity(options.text("capacity")));
  set_log_level(LogLevel::kWarn);
  const double start = system_clock().seconds();
  Ran ran;
  ran.config = read_config(options);
  {
    Progress progress("reading " + path);
    ran.trace = TRY(sim::read_cache_trace(
        path,
        system_file_system(),
        static_cast<std::uint64_t>(options.integer("seed")),
        [&](std::uint64_t done, std::uint64_t total) { progress.update(done, total); }
    ));
  }
  ran.record_tokens = TRY(sim::record_tokens(ran.trace, ran.config));
  ran.distinct = TRY(sim::distinct_bytes(ran.trace, ran.config));
  ran.config.capacity_bytes = capacity.bytes;
  if (capacity.percent > 0)
    ran.config.capacity_bytes = std::max<std::int64_t>(
        1, std::llround(static_cast<double>(ran.distinct) * capacity.percent / 100)
    );
  const std::int64_t record = sim::record_disk_bytes(ran.record_tokens, ran.config.bytes_per_token);
  if (capacity.bytes > 0 && capacity.bytes < record)
    return fail_field(
        "--capacity",
        "{} is {} bytes, less than a record, which takes {}; a number without % is bytes, as 10G, "
        "a share is 2%",
        options.text("capacity"),
        capacity.bytes,
        record
    );
  {
    Progress progress("simulating");
    ran.result = TRY(sim::simulate_cache(
        ran.trace,
        ran.config,
        [&](std::uint64_t done, std::uint64_t total) { progress.update(done, total); }
    ));
  }
  ran.seconds = system_clock().seconds() - start;
  print(ran, options.on("json"));
  return kExitDone;
}

std::vector<Flag> simulate_cache_flags() {
  return {
      {.name = "trace",
       .help = "requests with block ids, as JSON Lines, plain or zstd: Mooncake's, rtp-llm's or "
               "Claude Code sessions'",
       .value_name = "FILE",
       .in_config = false},
      {.name = "record-tokens",
       .kind = FlagKind::kInteger,
       .fallback = "0",
       .help = "tokens of a record, a multiple of the trace's block; 0: 256, or a block",
       .value_name = "N",
       .in_config = false,
       .min = 0,
       .max = 1 << 20},
      {.name = "bytes-per-token",
       .kind = FlagKind::kInteger,
       .fallback = "890",
       .help = "of stored KV; `artery inspect MODEL` has it",
       .value_name = "N",
       .in_config = false,
       .min = 1,
       .max = 1 << 20},
      {.name = "capacity",
       .help = "bytes, as 10G, or with % a share of all different records, as 2%; empty: "
               "unlimited",
       .value_name = "BYTES",
       .in_config = false},
      {.name = "ttl",
       .kind = FlagKind::kChoice,
       .fallback = "auto",
       .help = "time to live from the last use; auto: agents 72h, chats that go on 7d, others 1h",
       .in_config = false,
       .choices = "auto|10m|1h|72h|7d|pinned"},
      {.name = "policy",
       .kind = FlagKind::kChoice,
       .fallback = "segments",
       .help = "segments: the store's own; lru: record by record, the tail of a chain first, as no "
               "disk does it",
       .in_config = false,
       .choices = "segments|lru"},
      {.name = "segment-bytes",
       .kind = FlagKind::kBytes,
       .fallback = "0",
       .help = "0: as the store chooses for the capacity",
       .value_name = "BYTES",
       .in_config = false,
       .min = 0,
       .max = 1 << 30},
      {.name = "units",
       .kind = FlagKind::kSwitch,
       .fallback = "false",
       .help = "also keep the shorter record at the end of each prompt, as the server does",
       .in_config = false},
      {.name = "seed",
       .kind = FlagKind::kInteger,
       .fallback = "1",
       .help = "of the sessions' starts in a day, and of times inside a trace's 3-second bins",
       .value_name = "N",
       .in_config = false,
       .min = 0},
      json_flag(),
  };
}

}  // namespace

Verb simulate_cache_verb() {
  return {
      "simulate cache",
      "what a store of some size would have hit on a recorded workload",
      "artery simulate cache --trace sessions.jsonl.zst --capacity 2%\n"
      "artery simulate cache --trace sessions.jsonl.zst --capacity 2% --policy lru",
      simulate_cache_flags(),
      run_simulate_cache,
  };
}

}  // namespace artery::cli
