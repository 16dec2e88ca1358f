// `artery bench model`: prefill and decode speed without a server.

#include <cstdio>

#include "base/log.h"
#include "bench/model_bench.h"
#include "cli/model_file.h"
#include "cli/options.h"
#include "cli/progress.h"
#include "cli/report.h"
#include "cli/serving.h"
#include "cli/table.h"
#include "cli/verbs.h"

namespace artery::cli {
namespace json = boost::json;
namespace {

json::object spread_json(const bench::Spread& spread) {
  return {{"min", spread.min}, {"median", spread.median}, {"max", spread.max}};
}

std::string spread_text(const bench::Spread& spread) {
  return fmt::format("{:>9.1f} {:>9.1f} {:>9.1f}", spread.min, spread.median, spread.max);
}

std::string share_text(double share) {
  return share > 0 ? fmt::format("{:>5.1f}%", share * 100) : "     -";
}

std::string row_text(const bench::ModelBenchRow& row) {
  return fmt::format(
      "{:<18}{}  {:>8.2f} {}  {:>8.1f} {}",
      row.name,
      spread_text(row.tokens_per_s),
      row.gb_per_s,
      share_text(row.share_of_read),
      row.gop_per_s,
      share_text(row.share_of_peak)
  );
}

json::object row_json(const bench::ModelBenchRow& row) {
  return {
      {"name", row.name},
      {"batch", row.batch},
      {"tokens", row.tokens},
      {"tokens_per_s", spread_json(row.tokens_per_s)},
      {"gb_per_s", row.gb_per_s},
      {"gop_per_s", row.gop_per_s},
      {"share_of_read_bandwidth", row.share_of_read},
      {"share_of_peak", row.share_of_peak},
  };
}

void print_report(const bench::ModelBenchReport& report, const BareModel& bare, bool as_json) {
  const model::ModelInfo& info = bare.model->info();
  const tensor::Backend& backend = *bare.compute.backend;
  const int threads = bare.compute.pool->threads();
  const std::string isa(tensor::name(backend.isa()));
  Table table;
  table.line(fmt::format(
      "{}: {} threads, isa {}, {}", info.name, threads, isa, bare.model->kv_layout().numerics_id
  ));
  table.line(fmt::format("{:<18}{:>9} {:>9} {:>9}", "limits, now", "min", "median", "max"));
  table.line(fmt::format("{:<18}{} GB/s", "memory read", spread_text(report.limits.read_gb_s)));
  table.line(fmt::format("{:<18}{} GOP/s", "int8 dot", spread_text(report.limits.int8_dot_gop_s)));
  table.line(fmt::format("{:<18}{} GOP/s", "fp32 fma", spread_text(report.limits.fp32_fma_gop_s)));
  table.line(fmt::format(
      "\n{:<18}{:^29}  {:>8} {:>6}  {:>8} {:>6}",
      "",
      "tokens/s",
      "GB/s",
      "of read",
      "GOP/s",
      "of " + report.peak_name
  ));
  json::array rows;
  for (const bench::ModelBenchRow& row : report.rows) {
    table.line(row_text(row));
    rows.push_back(row_json(row));
  }
  table.json_only("model", info.name);
  table.json_only("threads", threads);
  table.json_only("isa", isa);
  table.json_only("numerics_id", bare.model->kv_layout().numerics_id);
  table.json_only(
      "limits",
      {
          {"memory_read_gb_s", spread_json(report.limits.read_gb_s)},
          {"int8_dot_gop_s", spread_json(report.limits.int8_dot_gop_s)},
          {"fp32_fma_gop_s", spread_json(report.limits.fp32_fma_gop_s)},
          {"share_of_peak_is_of", report.peak_name},
      }
  );
  table.json_only("rows", std::move(rows));
  table.print(as_json);
}

Result<int> run_bench_model(const Options& options) {
  const std::string path = TRY(options.require("model"));
  bench::ModelBenchConfig config;
  config.prompt_tokens = TRY(parse_int_list("-p", options.text("prompt-tokens"), 0, 1 << 24));
  config.batch = TRY(parse_int_list("--batch", options.text("batch"), 1, 4096));
  config.generate_tokens = static_cast<int>(options.integer("generate-tokens"));
  config.repetitions = static_cast<int>(options.integer("repetitions"));
  config.chunk_tokens = static_cast<int>(options.integer("chunk"));
  set_log_level(LogLevel::kWarn);
  Result<BareModel> bare = [&] {
    Progress progress("loading " + file_stem(path));
    return load_bare_model(
        path,
        compute_wish(options, true),
        [&](std::uint64_t done, std::uint64_t total) { progress.update(done, total); }
    );
  }();
  if (!bare) return tl::unexpected<Error>(bare.error());
  config.quantized = bare->quantized && options.text("numerics") == "fast";
  const bench::ModelBenchReport report = TRY(bench::bench_model(
      *bare->model,
      *bare->compute.backend,
      config,
      system_clock(),
      [](const bench::ModelBenchRow& row) {
        std::fputs(
            fmt::format("{}: {:.1f} tokens/s\n", row.name, row.tokens_per_s.median).c_str(), stderr
        );
      }
  ));
  print_report(report, *bare, options.on("json"));
  return kExitDone;
}

}  // namespace

Verb bench_model_verb() {
  using K = FlagKind;
  return {
      "bench model",
      "prefill and decode speed without a server, beside the machine's limits",
      "artery bench model model.gguf -p 512,2048 -n 128 -r 5 --batch 1,8",
      {
          model_flag(),
          {.name = "prompt-tokens",
           .fallback = "512",
           .help = "prompt lengths to prefill, 0: none",
           .value_name = "LIST",
           .letter = 'p',
           .in_config = false},
          {.name = "generate-tokens",
           .kind = K::kInteger,
           .fallback = "128",
           .help = "tokens to decode, 0: none",
           .value_name = "N",
           .letter = 'n',
           .in_config = false,
           .min = 0,
           .max = 1 << 24},
          {.name = "repetitions",
           .kind = K::kInteger,
           .fallback = "5",
           .help = "measurements of each, after one to warm up",
           .value_name = "N",
           .letter = 'r',
           .in_config = false,
           .min = 1,
           .max = 1000},
          {.name = "batch",
           .fallback = "1",
           .help = "sequences that decode together",
           .value_name = "LIST",
           .in_config = false},
          {.name = "chunk",
           .kind = K::kInteger,
           .fallback = "512",
           .help = "most prompt tokens in one step",
           .value_name = "N",
           .in_config = false,
           .min = 1,
           .max = 65536},
          kv_cache_dtype_flag(),
          threads_flag(),
          isa_flag(),
          numerics_flag(),
          json_flag(),
      },
      run_bench_model,
  };
}

}  // namespace artery::cli
