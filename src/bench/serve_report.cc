#include "bench/serve_report.h"

#include <algorithm>
#include <boost/json.hpp>
#include <charconv>
#include <cmath>

namespace artery::bench {
namespace json = boost::json;
namespace {

// Tokens in each second of the run, and the most requests at any moment.
void find_peaks(const LoadResult& result, ServeReport& report) {
  std::map<std::int64_t, double> tokens;
  std::vector<std::pair<double, int>> edges;
  for (const RequestRecord& record : result.records) {
    if (record.outcome != Outcome::kOk) continue;
    double at = record.start_s + record.ttft_s;
    const double each =
        static_cast<double>(record.output_tokens) / static_cast<double>(record.gaps_s.size() + 1);
    tokens[static_cast<std::int64_t>(at)] += each;
    for (const float gap : record.gaps_s) {
      at += static_cast<double>(gap);
      tokens[static_cast<std::int64_t>(at)] += each;
    }
    edges.emplace_back(record.start_s, 1);
    edges.emplace_back(record.start_s + record.latency_s, -1);
  }
  for (const auto& [second, count] : tokens)
    report.max_output_tokens_per_s = std::max(report.max_output_tokens_per_s, count);
  std::sort(edges.begin(), edges.end());
  std::int64_t now = 0;
  for (const auto& [time, step] : edges)
    report.max_concurrent_requests = std::max(report.max_concurrent_requests, now += step);
}

bool is_good(const RequestRecord& record, const Goodput& goodput) {
  for (const auto& [metric, limit] : goodput) {
    const double value = metric == "ttft"   ? record.ttft_s * 1e3
                         : metric == "tpot" ? tpot_ms(record)
                                            : record.latency_s * 1e3;
    if (value > limit) return false;
  }
  return true;
}

}  // namespace

Result<Goodput> parse_goodput(std::string_view text) {
  Goodput goodput;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find_first_of(" ,"), text.size());
    const std::string_view pair = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (pair.empty()) continue;
    const std::size_t colon = std::min(pair.find(':'), pair.size());
    const std::string metric(pair.substr(0, colon));
    const std::string_view number = pair.substr(std::min(colon + 1, pair.size()));
    double limit = 0;
    const char* last = number.data() + number.size();
    const auto [stop, error] = std::from_chars(number.data(), last, limit);
    const bool known = metric == "ttft" || metric == "tpot" || metric == "e2el";
    if (!known || error != std::errc() || stop != last || !(limit >= 0) || std::isinf(limit))
      return fail_field(
          "--goodput", "\"{}\": wants ttft:MS, tpot:MS or e2el:MS, as in ttft:2000 tpot:50", pair
      );
    goodput[metric] = limit;
  }
  return goodput;
}

double tpot_ms(const RequestRecord& record) {
  if (record.output_tokens < 2) return 0;
  return (record.latency_s - record.ttft_s) / static_cast<double>(record.output_tokens - 1) * 1e3;
}

ServeReport make_report(const LoadResult& result, const Goodput& goodput) {
  ServeReport report;
  report.duration_s = std::max(result.duration_s, 1e-9);
  report.client_cpu = result.client_cpu;
  report.client_lag_ms = result.client_lag_ms;
  std::map<std::string, std::vector<double>> values;
  std::int64_t good = 0;
  for (const RequestRecord& record : result.records) {
    if (record.outcome == Outcome::kUnfinished) ++report.unfinished;
    if (record.outcome == Outcome::kFailed) {
      ++report.failed;
      auto& [count, example] = report.errors[record.error_kind];
      if (count++ == 0) example = record.error;
    }
    if (record.outcome != Outcome::kOk) continue;
    ++report.completed;
    report.input_tokens += record.input_tokens;
    report.output_tokens += record.output_tokens;
    report.chunks += static_cast<std::int64_t>(record.gaps_s.size()) + 1;
    if (record.cached_tokens >= 0)
      report.cached_tokens = std::max<std::int64_t>(report.cached_tokens, 0) + record.cached_tokens;
    report.without_usage += record.usage ? 0 : 1;
    report.short_answers += record.output_tokens < record.asked_tokens ? 1 : 0;
    good += is_good(record, goodput) ? 1 : 0;
    values["ttft"].push_back(record.ttft_s * 1e3);
    if (record.output_tokens > 1) values["tpot"].push_back(tpot_ms(record));
    for (const float gap : record.gaps_s) values["itl"].push_back(static_cast<double>(gap) * 1e3);
    values["e2el"].push_back(record.latency_s * 1e3);
    values["queue"].push_back((record.start_s - record.due_s) * 1e3);
  }
  for (const char* name : {"ttft", "tpot", "itl", "e2el", "queue"})
    report.metrics.emplace(name, Distribution(std::move(values[name])));
  const double seconds = report.duration_s;
  report.request_throughput = static_cast<double>(report.completed) / seconds;
  report.request_goodput = static_cast<double>(good) / seconds;
  report.output_throughput = static_cast<double>(report.output_tokens) / seconds;
  report.total_token_throughput =
      static_cast<double>(report.input_tokens + report.output_tokens) / seconds;
  find_peaks(result, report);
  return report;
}

std::string percentile_name(double p) {
  return p == std::floor(p) ? fmt::format("{:.0f}", p) : fmt::format("{}", p);
}

namespace {

std::string title_of(const std::string& metric) {
  if (metric == "ttft") return "Time to First Token";
  if (metric == "tpot") return "Time per Output Token (excl. 1st token)";
  if (metric == "itl") return "Inter-token Latency (between chunks)";
  if (metric == "e2el") return "End-to-end Latency";
  return "Queue Time (client)";
}

std::string upper(std::string text) {
  for (char& c : text) c = c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
  return text;
}

std::string centred(const std::string& title, char fill) {
  constexpr std::size_t kWidth = 50;
  const std::string text = " " + title + " ";
  const std::size_t left = text.size() < kWidth ? (kWidth - text.size()) / 2 : 0;
  std::string line(left, fill);
  line += text;
  line.resize(std::max(kWidth, line.size()), fill);
  return line + "\n";
}

std::string metric_lines(const ServeReport& report, const ServeConfig& config) {
  std::string out;
  const auto number = [&](const std::string& what, double value) {
    out += fmt::format("{:<40} {:<10.2f}\n", what, value);
  };
  for (const std::string& metric : config.percentile_metrics) {
    const Distribution& values = report.metrics.at(metric);
    if (values.count() == 0) continue;
    out += centred(title_of(metric), '-');
    number(fmt::format("Mean {} (ms):", upper(metric)), values.mean());
    number(fmt::format("Median {} (ms):", upper(metric)), values.median());
    for (const double p : config.percentiles)
      if (p != 50)
        number(
            fmt::format("P{} {} (ms):", percentile_name(p), upper(metric)), values.percentile(p)
        );
  }
  return out;
}

std::string remarks(const ServeReport& report) {
  std::string out;
  if (report.without_usage > 0)
    out += fmt::format(
        "{} answers came without usage: their tokens are counted by chunks\n", report.without_usage
    );
  if (report.short_answers > 0)
    out += fmt::format(
        "{} answers ended before the tokens asked for (--ignore-eos keeps them going)\n",
        report.short_answers
    );
  constexpr double kBusy = 0.7;
  if (report.client_cpu > kBusy)
    out += fmt::format(
        "this client used {:.0f}% of a core: it may be what was measured\n", report.client_cpu * 100
    );
  for (const auto& [kind, error] : report.errors)
    out += fmt::format("error, {} x {}: {}\n", error.first, kind, error.second);
  return out;
}

}  // namespace

std::string report_table(const ServeReport& report, const ServeConfig& config) {
  std::string out = centred("Serving Benchmark Result", '=');
  const auto count = [&](const char* what, std::int64_t value) {
    out += fmt::format("{:<40} {:<10}\n", what, value);
  };
  const auto number = [&](const char* what, double value) {
    out += fmt::format("{:<40} {:<10.2f}\n", what, value);
  };
  count("Successful requests:", report.completed);
  count("Failed requests:", report.failed);
  if (report.unfinished > 0) count("Stopped before the end:", report.unfinished);
  if (config.max_concurrency > 0) count("Maximum request concurrency:", config.max_concurrency);
  if (config.request_rate > 0 && std::isfinite(config.request_rate))
    number("Request rate configured (RPS):", config.request_rate);
  number("Benchmark duration (s):", report.duration_s);
  count("Total input tokens:", report.input_tokens);
  if (report.cached_tokens >= 0) count("  of them from the prefix cache:", report.cached_tokens);
  count("Total generated tokens:", report.output_tokens);
  number("Request throughput (req/s):", report.request_throughput);
  if (!config.goodput.empty()) number("Request goodput (req/s):", report.request_goodput);
  number("Output token throughput (tok/s):", report.output_throughput);
  number("Peak output token throughput (tok/s):", report.max_output_tokens_per_s);
  count("Peak concurrent requests:", report.max_concurrent_requests);
  number("Total token throughput (tok/s):", report.total_token_throughput);
  if (report.chunks > 0)
    number(
        "Tokens per chunk:",
        static_cast<double>(report.output_tokens) / static_cast<double>(report.chunks)
    );
  number("Client CPU (% of a core):", report.client_cpu * 100);
  number("Client timer lag, worst (ms):", report.client_lag_ms);
  out += metric_lines(report, config);
  out += std::string(50, '=') + "\n";
  return out + remarks(report);
}

namespace {

json::value rate_json(double rate) {
  if (rate == 0) return "dataset";
  return std::isinf(rate) ? json::value("inf") : json::value(rate);
}

void add_details(json::object& out, const LoadResult& result) {
  json::array input_lens, output_lens, ttfts, itls, latencies, start_times, queue_times, errors;
  for (const RequestRecord& record : result.records) {
    const bool ok = record.outcome == Outcome::kOk;
    input_lens.emplace_back(record.input_tokens);
    output_lens.emplace_back(ok ? record.output_tokens : 0);
    ttfts.emplace_back(record.ttft_s);
    json::array gaps;
    for (const float gap : record.gaps_s) gaps.emplace_back(static_cast<double>(gap));
    itls.push_back(std::move(gaps));
    latencies.emplace_back(record.latency_s);
    start_times.emplace_back(record.start_s);
    queue_times.emplace_back(record.start_s - record.due_s);
    errors.emplace_back(
        record.error_kind.empty() ? std::string() : record.error_kind + ": " + record.error
    );
  }
  out["input_lens"] = std::move(input_lens);
  out["output_lens"] = std::move(output_lens);
  out["ttfts"] = std::move(ttfts);
  out["itls"] = std::move(itls);
  out["latencies"] = std::move(latencies);
  out["start_times"] = std::move(start_times);
  out["queue_times"] = std::move(queue_times);
  out["errors"] = std::move(errors);
}

void add_metrics(json::object& out, const ServeReport& report, const ServeConfig& config) {
  for (const std::string& metric : config.percentile_metrics) {
    const Distribution& values = report.metrics.at(metric);
    out["mean_" + metric + "_ms"] = values.mean();
    out["median_" + metric + "_ms"] = values.median();
    out["std_" + metric + "_ms"] = values.deviation();
    for (const double p : config.percentiles)
      out[fmt::format("p{}_{}_ms", percentile_name(p), metric)] = values.percentile(p);
  }
}

}  // namespace

json::object report_json(
    const ServeReport& report, const ServeConfig& config, const LoadResult& result, bool detailed
) {
  json::object out = {
      {"date", config.date},
      {"endpoint_type", config.endpoint.ends_with("chat/completions") ? "openai-chat" : "openai"},
      {"backend", "artery bench serve"},
      {"label", config.label.empty() ? json::value() : json::value(config.label)},
      {"model_id", config.model},
      {"tokenizer_id", config.tokenizer},
      {"base_url", config.base_url},
      {"endpoint", config.endpoint},
      {"dataset_name", config.dataset},
      {"dataset_note", config.note},
      {"seed", config.seed},
      {"num_prompts", config.num_prompts},
      {"request_rate", rate_json(config.request_rate)},
      {"burstiness", config.burstiness},
      {"max_concurrency",
       config.max_concurrency > 0 ? json::value(config.max_concurrency) : json::value()},
      {"duration", report.duration_s},
      {"completed", report.completed},
      {"failed", report.failed},
      {"unfinished", report.unfinished},
      {"total_input_tokens", report.input_tokens},
      {"total_output_tokens", report.output_tokens},
      {"total_cached_tokens",
       report.cached_tokens >= 0 ? json::value(report.cached_tokens) : json::value()},
      {"request_throughput", report.request_throughput},
      {"request_goodput",
       config.goodput.empty() ? json::value() : json::value(report.request_goodput)},
      {"output_throughput", report.output_throughput},
      {"total_token_throughput", report.total_token_throughput},
      {"max_output_tokens_per_s", report.max_output_tokens_per_s},
      {"max_concurrent_requests", report.max_concurrent_requests},
      {"chunks", report.chunks},
      {"client_cpu_share", report.client_cpu},
      {"client_max_lag_ms", report.client_lag_ms},
  };
  for (const auto& [key, value] : config.metadata) out[key] = value;
  add_metrics(out, report, config);
  json::object kinds;
  for (const auto& [kind, error] : report.errors)
    kinds[kind] = json::object{{"count", error.first}, {"example", error.second}};
  out["error_kinds"] = std::move(kinds);
  if (detailed) add_details(out, result);
  return out;
}

}  // namespace artery::bench
