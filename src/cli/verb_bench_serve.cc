// `artery bench serve`: a load generator for any OpenAI-compatible server.

#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <boost/json.hpp>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <limits>
#include <optional>
#include <thread>

#include "base/log.h"
#include "bench/datasets.h"
#include "bench/html_report.h"
#include "bench/load_client.h"
#include "bench/serve_report.h"
#include "bench/server_calls.h"
#include "cli/model_file.h"
#include "cli/options.h"
#include "cli/progress.h"
#include "cli/report.h"
#include "cli/serving.h"
#include "cli/signals.h"
#include "cli/verbs.h"

namespace artery::cli {
namespace json = boost::json;
namespace {

class TokenizerCounter final : public bench::TokenCounter {
 public:
  explicit TokenizerCounter(std::shared_ptr<const codec::Tokenizer> tokenizer)
      : tokenizer_(std::move(tokenizer)) {}
  Result<std::int64_t> count(std::string_view text) override {
    return static_cast<std::int64_t>(tokenizer_->encode(text, {.add_special = true}).size());
  }

 private:
  std::shared_ptr<const codec::Tokenizer> tokenizer_;
};

struct Counting {
  std::unique_ptr<bench::TokenCounter> counter;  // null: words are taken for tokens
  std::string name;
};

// The server itself knows best how it counts; a model file comes next.
Result<Counting> choose_counter(
    bench::ServerCalls& calls, const std::string& model, const std::string& tokenizer_path
) {
  if (!tokenizer_path.empty()) {
    const std::unique_ptr<model::ModelFile> file = TRY(open_model_file(tokenizer_path));
    return Counting{std::make_unique<TokenizerCounter>(TRY(load_tokenizer(*file))), tokenizer_path};
  }
  Counting counting = {TRY(calls.token_counter(model)), "the server's /tokenize"};
  if (counting.counter == nullptr) {
    counting.name = "none (a word is taken for a token; usage tells the truth)";
    log_warn(
        "the server has no /tokenize and there is no --tokenizer: input lengths are only about "
        "right, each word is taken for one token"
    );
  }
  return counting;
}

bench::DatasetConfig dataset_config(const Options& options) {
  bench::DatasetConfig config;
  config.name = options.text("dataset-name");
  config.path = options.text("dataset-path");
  config.num_prompts = options.integer("num-prompts");
  config.seed = static_cast<std::uint64_t>(options.integer("seed"));
  config.random_input_len = options.integer("random-input-len");
  config.random_output_len = options.integer("random-output-len");
  config.random_prefix_len = options.integer("random-prefix-len");
  config.random_range_ratio = options.number("random-range-ratio");
  config.sharegpt_output_len = options.integer("sharegpt-output-len");
  config.input_len_max = options.integer("max-input-len");
  config.output_len_max = options.integer("max-output-len");
  config.trace_speedup = options.number("trace-speedup");
  return config;
}

Result<double> positive_or_inf(const Options& options, std::string_view name) {
  const std::string& text = options.text(name);
  if (text == "inf") return std::numeric_limits<double>::infinity();
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  if (text.empty() || *end != 0 || !(value > 0))
    return fail_field(fmt::format("--{}", name), "\"{}\": wants a number above 0, or inf", text);
  return value;
}

Result<std::vector<double>> parse_percentiles(const std::string& text) {
  std::vector<double> percentiles;
  for (const std::string& part : split_commas(text)) {
    char* end = nullptr;
    const double value = std::strtod(part.c_str(), &end);
    if (part.empty() || *end != 0 || !(value >= 0 && value <= 100))
      return fail_field("--metric-percentiles", "\"{}\": wants numbers from 0 to 100", part);
    percentiles.push_back(value);
  }
  return percentiles;
}

std::string local_time(const char* format) {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  char text[64];
  return std::string(text, std::strftime(text, sizeof text, format, &local));
}

Result<bench::ServeConfig> serve_config(const Options& options) {
  bench::ServeConfig config;
  config.base_url = options.text("base-url");
  config.endpoint = options.text("endpoint");
  config.dataset = options.text("dataset-name");
  config.label = options.text("label");
  config.request_rate = TRY(positive_or_inf(options, "request-rate"));
  config.burstiness = TRY(positive_or_inf(options, "burstiness"));
  config.max_concurrency = options.integer("max-concurrency");
  config.seed = static_cast<std::uint64_t>(options.integer("seed"));
  config.goodput = TRY(bench::parse_goodput(options.text("goodput")));
  config.percentile_metrics = options.list("percentile-metrics");
  for (const std::string& metric : config.percentile_metrics)
    if (metric != "ttft" && metric != "tpot" && metric != "itl" && metric != "e2el")
      return fail_field("--percentile-metrics", "\"{}\": wants ttft, tpot, itl, e2el", metric);
  config.percentiles = TRY(parse_percentiles(options.text("metric-percentiles")));
  for (const std::string& pair : options.list("metadata")) {
    const std::size_t equal = pair.find('=');
    if (equal == std::string::npos || equal == 0)
      return fail_field("--metadata", "\"{}\": wants KEY=VALUE", pair);
    config.metadata.emplace_back(pair.substr(0, equal), pair.substr(equal + 1));
  }
  config.date = local_time("%Y%m%d-%H%M%S");
  return config;
}

// The fields of every request, the prompt left out.
Result<json::object> body_template(const Options& options, const std::string& model) {
  json::object body = {
      {"model", model},
      {"temperature", options.number("temperature")},
      {"stream", true},
      {"stream_options", {{"include_usage", true}}},
  };
  if (options.on("ignore-eos")) body["ignore_eos"] = true;
  const std::string& extra = options.text("extra-body");
  if (extra.empty()) return body;
  json::error_code error;
  const json::value value = json::parse(extra, error);
  if (error || !value.is_object())
    return fail_field("--extra-body", "wants a JSON object, as in '{{\"top_p\": 0.9}}'");
  for (const auto& field : value.get_object()) body[field.key()] = field.value();
  return body;
}

bench::LoadConfig load_config(
    const Options& options, bench::ServerAddress server, const json::object& fields
) {
  bench::LoadConfig load;
  load.server = std::move(server);
  load.path = options.text("endpoint");
  load.api_key = options.text("api-key");
  load.max_concurrency = options.integer("max-concurrency");
  load.timeout_s = options.number("request-timeout");
  const bool chat = load.path.ends_with("chat/completions");
  load.body = [fields, chat](const bench::WorkRequest& request) {
    json::object body = fields;
    if (chat)
      body["messages"] = json::array{json::object{{"role", "user"}, {"content", request.prompt}}};
    else
      body["prompt"] = request.prompt;
    body["max_tokens"] = request.output_tokens;
    return json::serialize(body);
  };
  return load;
}

void show_progress(const bench::LoadProgress& now, std::size_t total, double seconds, bool line) {
  std::fputs(
      fmt::format(
          "{}{}/{} done, {} failed, {} running, {:.1f} chunks/s{}",
          line ? "" : "\r",
          now.done,
          total,
          now.failed,
          now.running,
          static_cast<double>(now.chunks) / std::max(seconds, 1e-3),
          line ? "\n" : "\033[K"
      )
          .c_str(),
      stderr
  );
}

struct RunEnd {
  bench::LoadResult result;
  std::optional<int> signal;
};

// The load on its own thread, signals and progress on this one.
Result<RunEnd> run_load(bench::LoadRun& run, std::size_t total, SignalWatch& signals) {
  const int done_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (done_fd < 0) return fail(Code::kIo, "eventfd failed, errno {}", errno);
  Result<bench::LoadResult> result = fail(Code::kInternal, "the load did not run");
  std::atomic<bool> finished{false};
  std::thread thread([&] {
    result = run.run();
    finished = true;
    eventfd_write(done_fd, 1);
  });
  const bool terminal = isatty(STDERR_FILENO) == 1;
  const double start = system_clock().seconds();
  RunEnd end;
  double next_line = 10;
  while (!finished) {
    if (const auto signal = signals.wait(250, done_fd)) {
      if (end.signal) std::_Exit(128 + *signal);
      end.signal = signal;
      run.stop();
    }
    const double seconds = system_clock().seconds() - start;
    if (!terminal && seconds < next_line) continue;
    next_line = seconds + 10;
    show_progress(run.progress(), total, seconds, !terminal);
  }
  if (terminal) std::fputs("\r\033[K", stderr);
  thread.join();
  close(done_fd);
  end.result = TRY(std::move(result));
  return end;
}

Result<> write_file(const std::filesystem::path& path, const std::string& text) {
  std::ofstream out(path, std::ios::binary);
  out << text;
  out.close();
  if (!out) return fail(Code::kIo, "cannot write {}", path.string());
  return {};
}

Result<> save(
    const Options& options,
    const bench::ServeReport& report,
    const bench::ServeConfig& config,
    const bench::LoadResult& result
) {
  if (options.on("save-result") || options.on("save-detailed") ||
      options.is_set("result-filename")) {
    std::string name = options.text("result-filename");
    if (name.empty()) {
      const std::string rate =
          std::isinf(config.request_rate) ? "inf" : fmt::format("{}", config.request_rate);
      const std::string limit = config.max_concurrency > 0
                                    ? fmt::format("-concurrency{}", config.max_concurrency)
                                    : std::string();
      name = fmt::format(
          "{}-{}qps{}-{}-{}.json",
          config.label.empty() ? "openai" : config.label,
          rate,
          limit,
          file_stem(config.model),
          config.date
      );
    }
    const std::filesystem::path folder(options.text("result-dir"));
    std::error_code ignored;
    std::filesystem::create_directories(folder, ignored);
    const bool detailed = options.on("save-detailed");
    TRY(write_file(
        folder / name, json::serialize(bench::report_json(report, config, result, detailed)) + "\n"
    ));
    std::fputs(fmt::format("result: {}\n", (folder / name).string()).c_str(), stderr);
  }
  if (options.is_set("html")) {
    TRY(write_file(options.text("html"), bench::html_report(report, config, result)));
    std::fputs(fmt::format("report: {}\n", options.text("html")).c_str(), stderr);
  }
  return {};
}

Result<bench::Workload> prepare(
    const Options& options, bench::TokenCounter* counter, const bench::ServeConfig& config
) {
  const bench::DatasetConfig dataset = dataset_config(options);
  if (dataset.random_range_ratio >= 1)
    return fail_field("--random-range-ratio", "wants a number in [0, 1)");
  Progress progress("making prompts");
  bench::TextMaker maker = TRY(bench::TextMaker::make(counter));
  bench::Workload work =
      TRY(bench::make_workload(dataset, maker, counter, [&](std::int64_t done, std::int64_t all) {
        progress.update(static_cast<std::uint64_t>(done), static_cast<std::uint64_t>(all));
      }));
  const bool as_recorded = work.timed && !options.is_set("request-rate");
  if (!as_recorded) {
    bench::Dice dice(dataset.seed + 1);
    bench::set_arrivals(work.requests, config.request_rate, config.burstiness, dice);
    work.timed = false;
  }
  return work;
}

// One request that does not count: the first one of a run pays for things no later one does.
Result<> warm_up(const bench::LoadConfig& load, std::int64_t times) {
  std::vector<bench::WorkRequest> requests(static_cast<std::size_t>(times));
  for (bench::WorkRequest& request : requests) request = {"Hello", 1, 4, 0};
  bench::LoadConfig config = load;
  config.max_concurrency = 1;
  bench::LoadRun run(config, requests, system_clock());
  const bench::LoadResult result = TRY(run.run());
  for (const bench::RequestRecord& record : result.records)
    if (record.outcome != bench::Outcome::kOk)
      return fail(Code::kIo, "a first request failed: {}: {}", record.error_kind, record.error);
  return {};
}

Result<int> run_bench_serve(const Options& options) {
  bench::ServeConfig config = TRY(serve_config(options));
  const std::string url = TRY(options.require("base-url"));
  bench::ServerAddress server = TRY(bench::parse_base_url(url));
  bench::ServerCalls calls(server, options.text("api-key"));
  config.model = options.text("model");
  if (config.model.empty()) config.model = TRY(calls.first_model());
  const json::object fields = TRY(body_template(options, config.model));
  const Counting counting = TRY(choose_counter(calls, config.model, options.text("tokenizer")));
  config.tokenizer = counting.name;
  const bench::Workload work = TRY(prepare(options, counting.counter.get(), config));
  config.note = work.note;
  config.num_prompts = static_cast<std::int64_t>(work.requests.size());
  if (work.timed) config.request_rate = 0;
  const bench::LoadConfig load = load_config(options, std::move(server), fields);
  TRY(warm_up(load, options.integer("num-warmups")));
  SignalWatch signals = TRY(SignalWatch::open());  // before it Ctrl-C just ends us
  bench::LoadRun run(load, work.requests, system_clock());
  const RunEnd end = TRY(run_load(run, work.requests.size(), signals));
  const bench::ServeReport report = bench::make_report(end.result, config.goodput);
  if (options.on("json")) {
    const json::object out = bench::report_json(report, config, end.result, false);
    std::fputs((json::serialize(out) + "\n").c_str(), stdout);
  } else {
    std::fputs(bench::report_table(report, config).c_str(), stdout);
  }
  TRY(save(options, report, config, end.result));
  if (end.signal) return 128 + *end.signal;
  return report.completed > 0 ? kExitDone : kExitFailed;
}

Flag text_flag(
    std::string_view name, std::string_view fallback, std::string_view help, std::string_view value
) {
  return {
      .name = name, .fallback = fallback, .help = help, .value_name = value, .in_config = false
  };
}

Flag count_flag(
    std::string_view name, std::string_view fallback, std::string_view help, double min, double max
) {
  return {
      .name = name,
      .kind = FlagKind::kInteger,
      .fallback = fallback,
      .help = help,
      .value_name = "N",
      .in_config = false,
      .min = min,
      .max = max,
  };
}

Flag number_flag(
    std::string_view name, std::string_view fallback, std::string_view help, double min, double max
) {
  Flag flag = count_flag(name, fallback, help, min, max);
  flag.kind = FlagKind::kNumber;
  flag.value_name = "X";
  return flag;
}

Flag switch_flag(std::string_view name, std::string_view help) {
  return {
      .name = name, .kind = FlagKind::kSwitch, .fallback = "off", .help = help, .in_config = false
  };
}

std::vector<Flag> dataset_flags() {
  constexpr double kMost = 1 << 24;
  return {
      {.name = "dataset-name",
       .kind = FlagKind::kChoice,
       .fallback = "random",
       .help = "what to send",
       .in_config = false,
       .choices = "random|sharegpt|trace"},
      text_flag("dataset-path", "", "file of sharegpt (none: built-in lengths) or trace", "FILE"),
      count_flag("num-prompts", "1000", "requests to send", 1, kMost),
      count_flag("random-input-len", "1024", "random: tokens of a prompt", 1, kMost),
      count_flag("random-output-len", "128", "random: tokens to generate", 1, kMost),
      count_flag("random-prefix-len", "0", "random: tokens shared before each prompt", 0, kMost),
      number_flag("random-range-ratio", "0", "random: lengths vary by this share", 0, 1),
      count_flag(
          "sharegpt-output-len", "0", "sharegpt: tokens to generate, 0: as recorded", 0, kMost
      ),
      count_flag("max-input-len", "0", "cut longer prompts, 0: never", 0, kMost),
      count_flag("max-output-len", "0", "ask for at most so many tokens, 0: no limit", 0, kMost),
      number_flag("trace-speedup", "1", "trace: how much faster than recorded", 1e-6, 1e6),
      count_flag("seed", "0", "of the data set and the arrivals", 0, 4e9),
      text_flag("tokenizer", "", "model file to count tokens with; none: ask the server", "MODEL"),
  };
}

std::vector<Flag> load_flags() {
  return {
      text_flag("request-rate", "inf", "requests a second, or inf; trace: as recorded", "R"),
      text_flag("burstiness", "1", "1: Poisson, less: bursts, inf: evenly", "X"),
      count_flag("max-concurrency", "0", "most requests at once, 0: no limit", 0, 1e6),
      number_flag("temperature", "0", "of every request", 0, 100),
      switch_flag("ignore-eos", "ask the server to go on to the full length"),
      text_flag("extra-body", "", "JSON object merged into every request", "JSON"),
      number_flag("request-timeout", "3600", "seconds until a request counts as failed", 0.1, 1e6),
      count_flag("num-warmups", "1", "requests before the run that do not count", 0, 1000),
  };
}

std::vector<Flag> report_flags() {
  return {
      {.name = "goodput",
       .help = "limits in ms: ttft:2000 tpot:50 e2el:9000",
       .value_name = "LIMITS",
       .many = true,
       .in_config = false},
      text_flag("percentile-metrics", "ttft,tpot,itl,e2el", "metrics to report", "LIST"),
      text_flag("metric-percentiles", "50,90,99", "percentiles to report", "LIST"),
      switch_flag("save-result", "write the figures to a JSON file"),
      switch_flag("save-detailed", "the same with every request's times"),
      text_flag("result-dir", ".", "where to", "DIR"),
      text_flag("result-filename", "", "its name; none: made of rate, model and date", "FILE"),
      text_flag("html", "", "write a self-contained page with plots", "FILE"),
      text_flag("label", "", "name of this run in the result", "TEXT"),
      text_flag("metadata", "", "KEY=VALUE pairs to keep in the result", "LIST"),
      json_flag(),
  };
}

}  // namespace

Verb bench_serve_verb() {
  std::vector<Flag> flags = {
      {.name = "base-url",
       .fallback = "http://127.0.0.1:8000",
       .help = "server, http://host:port",
       .value_name = "URL",
       .in_config = false},
      {.name = "endpoint",
       .kind = FlagKind::kChoice,
       .fallback = "/v1/completions",
       .help = "what to call",
       .in_config = false,
       .choices = "/v1/completions|/v1/chat/completions"},
      text_flag("model", "", "model name; none: the first the server lists", "NAME"),
      {.name = "api-key", .help = "key to send", .value_name = "KEY", .secret = true},
  };
  for (const auto& more : {dataset_flags(), load_flags(), report_flags()})
    flags.insert(flags.end(), more.begin(), more.end());
  return {
      "bench serve",
      "load generator for any OpenAI-compatible server, with vLLM's vocabulary",
      "artery bench serve --base-url http://127.0.0.1:8000 --random-input-len 512 "
      "--random-output-len 128 --num-prompts 64 --max-concurrency 8 --ignore-eos --html load.html\n"
      "artery bench serve --dataset-name trace --dataset-path mooncake.jsonl.zst --trace-speedup "
      "10",
      std::move(flags),
      run_bench_serve,
  };
}

}  // namespace artery::cli
