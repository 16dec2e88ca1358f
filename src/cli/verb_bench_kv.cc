// `artery bench kv`: what the store of prefix KV costs and gives on this machine.

#include <cstdio>
#include <filesystem>
#include <optional>

#include "base/log.h"
#include "bench/kv_bench.h"
#include "cli/options.h"
#include "cli/progress.h"
#include "cli/report.h"
#include "cli/signals.h"
#include "cli/table.h"
#include "cli/verbs.h"

namespace artery::cli {
namespace json = boost::json;
namespace {

json::object spread_json(const bench::Spread& spread) {
  return {{"min", spread.min}, {"median", spread.median}, {"max", spread.max}};
}

class KvTable {
 public:
  KvTable() { table_.line(fmt::format("{:<34}{:>10} {:>10} {:>10}", "", "min", "median", "max")); }
  void row(std::string_view what, std::string_view name, const bench::Spread& spread, double unit) {
    table_.line(fmt::format(
        "{:<34}{:>10.2f} {:>10.2f} {:>10.2f}",
        what,
        spread.min / unit,
        spread.median / unit,
        spread.max / unit
    ));
    table_.json_only(name, spread_json(spread));
  }
  Table& table() { return table_; }

 private:
  Table table_;
};

void print_report(const bench::KvBenchReport& report, bool as_json) {
  KvTable out;
  Table& table = out.table();
  const double megabytes = static_cast<double>(report.prefix_bytes) / 1e6;
  out.row("chain keys, million tokens/s", "hash_tokens_per_s", report.hash_tokens_per_s, 1e6);
  out.row("look-up of the prefix, us", "find_us", report.find_us, 1);
  out.row("CRC-32C, GB/s", "crc_gb_per_s", report.crc_gb_per_s, 1);
  out.row("prefix from RAM, match, ms", "ram_match_ms", report.ram_match_ms, 1);
  out.row("prefix from RAM, copy, ms", "ram_copy_ms", report.ram_copy_ms, 1);
  out.row("prefix written and synced, MB/s", "write_mb_per_s", report.write_mb_per_s, 1);
  out.row("prefix from the disk, ms", "load_ms", report.load_ms, 1);
  out.row("raw read of the same bytes, ms", "raw_ms", report.raw_ms, 1);
  out.row("disk / raw", "load_over_raw", report.load_over_raw, 1);
  if (report.open_bytes > 0) out.row("start of a large store, ms", "open_ms", report.open_ms, 1);
  table.line(fmt::format(
      "prefix: {} tokens, {:.1f} MB; index: {} records in {}; disk through {}",
      report.tokens,
      megabytes,
      report.index_records,
      bytes_text(static_cast<double>(report.index_bytes)),
      report.io
  ));
  if (report.open_bytes > 0) {
    table.line(fmt::format(
        "large store: {} of sparse segments, {} records",
        bytes_text(static_cast<double>(report.open_bytes)),
        report.open_records
    ));
  }
  table.json_only("tokens", report.tokens);
  table.json_only("prefix_bytes", report.prefix_bytes);
  table.json_only("index_records", report.index_records);
  table.json_only("index_bytes", report.index_bytes);
  table.json_only("io", report.io);
  table.json_only("write_amplification", report.write_amplification);
  table.json_only("open_bytes", report.open_bytes);
  table.json_only("open_records", report.open_records);
  table.print(as_json);
}

kvstore::StoreConfig::Io io_of(const std::string& text) {
  using Io = kvstore::StoreConfig::Io;
  return text == "uring" ? Io::kUring : text == "threads" ? Io::kThreads : Io::kAuto;
}

Result<int> run_bench_kv(const Options& options) {
  set_log_level(LogLevel::kWarn);
  bench::KvBenchConfig config;
  config.folder = options.text("kv-dir");
  config.records = static_cast<int>(options.integer("records"));
  config.index_records = options.integer("index-records");
  config.open_bytes = options.integer("open-bytes");
  config.repetitions = static_cast<int>(options.integer("repetitions"));
  config.io = io_of(options.text("kv-io"));
  SignalWatch signals = TRY(SignalWatch::open());
  std::optional<int> signal;
  config.is_stopped = [&] {
    if (!signal) signal = signals.wait(0);
    return signal.has_value();
  };
  std::optional<Progress> progress;
  std::string shown;
  const auto told = [&](const std::string& what, int done, int total) {
    if (what != shown) progress.emplace("measuring: " + what);
    shown = what;
    progress->update(static_cast<std::uint64_t>(done), static_cast<std::uint64_t>(total));
  };
  const auto report = bench::bench_kv(config, system_file_system(), system_clock(), told);
  progress.reset();
  if (signal) {
    fmt::print(
        stderr, "stopped by signal {}; what was written in {} is removed\n", *signal, config.folder
    );
    return 128 + *signal;
  }
  if (!report) return tl::unexpected<Error>(report.error());
  print_report(*report, options.on("json"));
  return kExitDone;
}

}  // namespace

Verb bench_kv_verb() {
  using K = FlagKind;
  return {
      "bench kv",
      "what the store of prefix KV costs and gives on this machine",
      "artery bench kv --kv-dir /mnt/nvme -r 5",
      {
          {.name = "kv-dir",
           .fallback = ".",
           .help = "where to measure: a folder of its own in it, removed at the end",
           .value_name = "FOLDER",
           .in_config = false},
          {.name = "records",
           .kind = K::kInteger,
           .fallback = "391",
           .help = "records of 256 tokens and 227,840 bytes in the prefix",
           .value_name = "N",
           .in_config = false,
           .min = 1,
           .max = 4096},
          {.name = "index-records",
           .kind = K::kInteger,
           .fallback = "1000000",
           .help = "records in the index that is looked up in",
           .value_name = "N",
           .in_config = false,
           .min = 0,
           .max = 1e8},
          {.name = "open-bytes",
           .kind = K::kBytes,
           .fallback = "100G",
           .help = "of the store that is started, in sparse segments; 0: none",
           .value_name = "SIZE",
           .in_config = false,
           .min = 0},
          {.name = "repetitions",
           .kind = K::kInteger,
           .fallback = "5",
           .help = "measurements of each, after one to warm up",
           .value_name = "N",
           .letter = 'r',
           .in_config = false,
           .min = 1,
           .max = 1000},
          {.name = "kv-io",
           .kind = K::kChoice,
           .fallback = "auto",
           .help = "how the disk is read and written",
           .in_config = false,
           .choices = "auto|uring|threads"},
          json_flag(),
      },
      run_bench_kv,
  };
}

}  // namespace artery::cli
