// `artery bench model`: prefill and decode speed without a server.

#include <cstdio>
#include <optional>

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
      "{:<26}{}  {:>7.2f} {:>6.1f} {}  {:>8.1f} {:>7.0f} {}",
      row.name,
      spread_text(row.tokens_per_s),
      row.gb_per_s,
      row.read_gb_s.median,
      share_text(row.share_of_read),
      row.gop_per_s,
      row.peak_gop_s.median,
      share_text(row.share_of_peak)
  );
}

json::object row_json(const bench::ModelBenchRow& row) {
  return {
      {"name", row.name},
      {"prompt", row.prompt},
      {"generate", row.generate},
      {"batch", row.batch},
      {"depth", row.depth},
      {"tokens_per_s", spread_json(row.tokens_per_s)},
      {"gb_per_s", row.gb_per_s},
      {"gop_per_s", row.gop_per_s},
      {"read_gb_s", spread_json(row.read_gb_s)},
      {"peak_gop_s", spread_json(row.peak_gop_s)},
      {"share_of_read_bandwidth", row.share_of_read},
      {"share_of_peak", row.share_of_peak},
  };
}

void print_limits(Table& table, const bench::MachineLimits& limits) {
  const auto line = [&](std::string_view what, const bench::Spread& spread, std::string_view unit) {
    table.line(fmt::format("{:<26}{} {}", what, spread_text(spread), unit));
  };
  table.line(fmt::format("{:<26}{:>9} {:>9} {:>9}", "limits, now", "min", "median", "max"));
  line(
      limits.huge_pages ? "memory read, 2 MiB pages" : "memory read, small pages",
      limits.read_gb_s,
      "GB/s"
  );
  line("int8 dot", limits.int8_dot_gop_s, "GOP/s");
  if (limits.bf16_dot_gop_s.median > 0) line("bf16 dot", limits.bf16_dot_gop_s, "GOP/s");
  line("fp32 fma", limits.fp32_fma_gop_s, "GOP/s");
}

void print_report(const bench::ModelBenchReport& report, const BareModel& bare, bool as_json) {
  const model::ModelInfo& info = bare.model->info();
  const int threads = bare.compute.pool->threads();
  const std::string isa(tensor::name(bare.compute.backend->isa()));
  const std::string peak(bench::name(report.peak_kind));
  const std::string numerics_id = bare.model->kv_layout().numerics_id;
  Table table;
  table.line(fmt::format("{}: {} threads, isa {}, {}", info.name, threads, isa, numerics_id));
  print_limits(table, report.limits);
  table.line(fmt::format(
      "\n{:<26}{:>9} {:>9} {:>9}  {:>7} {:>13}  {:>8} {:>14}",
      "tokens/s",
      "min",
      "median",
      "max",
      "GB/s",
      "of read now",
      "GOP/s",
      "of " + peak
  ));
  json::array rows;
  for (const bench::ModelBenchRow& row : report.rows) {
    table.line(row_text(row));
    rows.push_back(row_json(row));
  }
  table.json_only("model", info.name);
  table.json_only("threads", threads);
  table.json_only("isa", isa);
  table.json_only("numerics_id", numerics_id);
  table.json_only("weight_bytes", info.weight_bytes);
  table.json_only("read_bytes_per_token", info.read_bytes_per_token);
  table.json_only(
      "limits",
      {
          {"memory_read_gb_s", spread_json(report.limits.read_gb_s)},
          {"huge_pages", report.limits.huge_pages},
          {"int8_dot_gop_s", spread_json(report.limits.int8_dot_gop_s)},
          {"bf16_dot_gop_s", spread_json(report.limits.bf16_dot_gop_s)},
          {"fp32_fma_gop_s", spread_json(report.limits.fp32_fma_gop_s)},
          {"share_of_peak_is_of", peak},
      }
  );
  table.json_only("rows", std::move(rows));
  table.print(as_json);
}

bench::WeightClass class_of(const model::ModelFile& file) {
  if (mostly_quantized(file)) return bench::WeightClass::kQuantized;
  std::uint64_t bf16 = 0, total = 0;
  for (const model::TensorInfo& tensor : file.tensors()) {
    total += tensor.bytes;
    if (tensor.type == tensor::DType::kBF16) bf16 += tensor.bytes;
  }
  return bf16 * 2 > total ? bench::WeightClass::kBf16 : bench::WeightClass::kFloat;
}

// "512,128;4096,32": pairs of prompt and generation.
Result<std::vector<std::pair<int, int>>> parse_pairs(const std::string& text) {
  std::vector<std::pair<int, int>> pairs;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find(';', at), text.size());
    const std::vector<int> pair =
        TRY(parse_int_list("--pg", std::string_view(text).substr(at, end - at), 1, 1 << 24));
    if (pair.size() != 2)
      return fail_field("--pg", "wants pairs, as in \"512,128\" or \"512,128;4096,32\"");
    pairs.emplace_back(pair[0], pair[1]);
    at = end + 1;
  }
  return pairs;
}

Result<bench::ModelBenchConfig> read_config(const Options& options) {
  constexpr int kMost = 1 << 24;
  bench::ModelBenchConfig config;
  config.prompt_tokens = TRY(parse_int_list("-p", options.text("prompt-tokens"), 0, kMost));
  config.generate_tokens = TRY(parse_int_list("-n", options.text("generate-tokens"), 0, kMost));
  config.combined = TRY(parse_pairs(options.text("pg")));
  config.batch = TRY(parse_int_list("--batch", options.text("batch"), 1, 4096));
  config.depth = TRY(parse_int_list("--depth", options.text("depth"), 0, kMost));
  config.repetitions = static_cast<int>(options.integer("repetitions"));
  config.chunk_tokens = static_cast<int>(options.integer("chunk"));
  return config;
}

Result<int> run_bench_model(const Options& options) {
  const std::string path = TRY(options.require("model"));
  bench::ModelBenchConfig config = TRY(read_config(options));
  set_log_level(LogLevel::kWarn);
  config.weights = class_of(*TRY(open_model_file(path)));
  if (options.text("numerics") == "reference") config.weights = bench::WeightClass::kFloat;
  Result<BareModel> bare = [&] {
    Progress progress("loading " + file_stem(path));
    return load_bare_model(
        path,
        compute_wish(options, true),
        [&](std::uint64_t done, std::uint64_t total) { progress.update(done, total); }
    );
  }();
  if (!bare) return tl::unexpected<Error>(bare.error());
  std::optional<Progress> progress;
  bench::ModelBenchEvents events;
  events.on_progress = [&](const std::string& test, int done, int repetitions) {
    if (done == 0) progress.emplace("measuring " + test);
    progress->update(static_cast<std::uint64_t>(done), static_cast<std::uint64_t>(repetitions));
  };
  events.on_row = [&](const bench::ModelBenchRow& row) {
    progress.reset();
    std::fputs(
        fmt::format("{}: {:.1f} tokens/s\n", row.name, row.tokens_per_s.median).c_str(), stderr
    );
  };
  const bench::ModelBenchReport report =
      TRY(bench::bench_model(*bare->model, *bare->compute.backend, config, system_clock(), events));
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
           .fallback = "128",
           .help = "tokens to decode, 0: none",
           .value_name = "LIST",
           .letter = 'n',
           .in_config = false},
          {.name = "pg",
           .help = "a prompt and its answer timed as one: \"512,128;4096,32\"",
           .value_name = "PAIRS",
           .in_config = false},
          {.name = "depth",
           .fallback = "0",
           .help = "tokens already in the context, not timed, for every test",
           .value_name = "LIST",
           .letter = 'd',
           .in_config = false},
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
