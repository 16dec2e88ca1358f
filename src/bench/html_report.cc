#include "bench/html_report.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "bench/svg_plot.h"

namespace artery::bench {
namespace {

// More points than a page or an eye can use are thinned evenly.
constexpr std::size_t kPointsMax = 2000;

constexpr std::string_view kStyle = R"(
:root { color-scheme: light dark; --bg: #fcfcfb; --fg: #1f2328; --dim: #6b7280; --line: #e4e4e0;
  --c0: #2563c9; --c1: #d9622b; --c2: #2f8f5b; --c3: #8a4fc0; }
@media (prefers-color-scheme: dark) { :root { --bg: #16181b; --fg: #e6e6e3; --dim: #9aa0a6;
  --line: #2e3238; --c0: #6ea3f5; --c1: #f09a6a; --c2: #63c592; --c3: #bd92ea; } }
body { background: var(--bg); color: var(--fg); font: 15px/1.45 system-ui, sans-serif;
  margin: 2rem auto; max-width: 1180px; padding: 0 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.1rem; margin-top: 2rem; }
p.note { color: var(--dim); }
.plots { display: grid; grid-template-columns: repeat(auto-fit, minmax(420px, 1fr)); gap: 1.2rem; }
svg { width: 100%; height: auto; font-size: 11px; } svg text { fill: var(--dim); }
svg text.title { fill: var(--fg); font-size: 13px; font-weight: 600; }
.grid { stroke: var(--line); } polyline { fill: none; stroke-width: 1.6; }
.s0 { stroke: var(--c0); } .s1 { stroke: var(--c1); } .s2 { stroke: var(--c2); }
.s3 { stroke: var(--c3); } .d0 { fill: var(--c0); } .d1 { fill: var(--c1); }
.d2 { fill: var(--c2); } .d3 { fill: var(--c3); } circle { opacity: .55; }
svg text.t0 { fill: var(--c0); } svg text.t1 { fill: var(--c1); } svg text.t2 { fill: var(--c2); }
svg text.t3 { fill: var(--c3); }
table { border-collapse: collapse; } td, th { padding: .25rem .8rem .25rem 0; text-align: right;
  border-bottom: 1px solid var(--line); font-variant-numeric: tabular-nums; }
td:first-child, th:first-child { text-align: left; } td.text { text-align: left; }
)";

// Share of values at or below each value.
Series cdf(const std::string& name, const Distribution& values, double unit) {
  Series series = {name, {}, false};
  const std::vector<double>& sorted = values.sorted();
  const std::size_t step = sorted.size() / kPointsMax + 1;
  for (std::size_t i = 0; i < sorted.size(); i += step)
    series.points.emplace_back(
        sorted[i] / unit, 100 * static_cast<double>(i + 1) / static_cast<double>(sorted.size())
    );
  if (!sorted.empty()) series.points.emplace_back(sorted.back() / unit, 100);
  return series;
}

void thin(Series& series) {
  const std::size_t step = series.points.size() / kPointsMax + 1;
  std::vector<std::pair<double, double>> kept;
  for (std::size_t i = 0; i < series.points.size(); i += step) kept.push_back(series.points[i]);
  series.points = std::move(kept);
}

// Width of a time bin: about 100 to a run, at least a tenth of a second.
double bin_width(double duration_s) { return std::max(nice_step(duration_s, 100), 0.1); }

Plot ttft_over_time(const LoadResult& result) {
  Plot plot = {"Time to first token, by when the request was sent", "s", "ms", {}};
  Series series = {"", {}, true};
  for (const RequestRecord& record : result.records)
    if (record.outcome == Outcome::kOk)
      series.points.emplace_back(record.start_s, record.ttft_s * 1e3);
  std::sort(series.points.begin(), series.points.end());
  thin(series);
  plot.series.push_back(std::move(series));
  return plot;
}

// Calls use(time, gap or -1, tokens) for every chunk of completed answers.
template <typename Use>
void for_each_chunk(const LoadResult& result, const Use& use) {
  for (const RequestRecord& record : result.records) {
    if (record.outcome != Outcome::kOk) continue;
    const double tokens =
        static_cast<double>(record.output_tokens) / static_cast<double>(record.gaps_s.size() + 1);
    double at = record.start_s + record.ttft_s;
    use(at, -1.0, tokens);
    for (const float gap : record.gaps_s) {
      at += static_cast<double>(gap);
      use(at, static_cast<double>(gap), tokens);
    }
  }
}

Plot itl_over_time(const LoadResult& result) {
  const double width = bin_width(result.duration_s);
  std::map<std::int64_t, std::vector<double>> bins;
  for_each_chunk(result, [&](double at, double gap, double) {
    if (gap >= 0) bins[static_cast<std::int64_t>(at / width)].push_back(gap * 1e3);
  });
  Series median = {"median", {}, false}, p99 = {"p99", {}, false};
  for (auto& [bin, gaps] : bins) {
    const Distribution values(std::move(gaps));
    const double at = (static_cast<double>(bin) + 0.5) * width;
    median.points.emplace_back(at, values.median());
    p99.points.emplace_back(at, values.percentile(99));
  }
  return {"Gap between chunks (ITL) over time", "s", "ms", {std::move(median), std::move(p99)}};
}

Plot throughput_over_time(const LoadResult& result) {
  const double width = bin_width(result.duration_s);
  std::map<std::int64_t, std::pair<double, double>> bins;  // output, input
  for_each_chunk(result, [&](double at, double, double tokens) {
    bins[static_cast<std::int64_t>(at / width)].first += tokens;
  });
  // A prompt counts where its first token came.
  for (const RequestRecord& record : result.records)
    if (record.outcome == Outcome::kOk)
      bins[static_cast<std::int64_t>((record.start_s + record.ttft_s) / width)].second +=
          static_cast<double>(record.input_tokens);
  Series output = {"output", {}, false}, input = {"input", {}, false};
  const std::int64_t last = bins.empty() ? 0 : bins.rbegin()->first;
  for (std::int64_t bin = 0; !bins.empty() && bin <= last && bin < 100'000; ++bin) {
    const auto found = bins.find(bin);
    const auto value = found == bins.end() ? std::pair(0.0, 0.0) : found->second;
    const double at = (static_cast<double>(bin) + 0.5) * width;
    output.points.emplace_back(at, value.first / width);
    input.points.emplace_back(at, value.second / width);
  }
  return {"Tokens per second over time", "s", "tokens/s", {std::move(output), std::move(input)}};
}

Plot concurrency_over_time(const LoadResult& result) {
  std::vector<std::pair<double, std::pair<int, int>>> edges;  // time: sent, waiting in the client
  for (const RequestRecord& record : result.records) {
    if (record.outcome == Outcome::kUnfinished) continue;
    edges.push_back({record.due_s, {0, 1}});
    edges.push_back({record.start_s, {1, -1}});
    edges.push_back({record.start_s + record.latency_s, {-1, 0}});
  }
  std::sort(edges.begin(), edges.end());
  Series open = {"at the server", {}, false}, waiting = {"waiting in the client", {}, false};
  int now = 0, queued = 0;
  for (const auto& [at, step] : edges) {
    open.points.emplace_back(at, now);
    waiting.points.emplace_back(at, queued);
    now += step.first;
    queued += step.second;
    open.points.emplace_back(at, now);
    waiting.points.emplace_back(at, queued);
  }
  thin(open);
  thin(waiting);
  return {"Requests over time", "s", "requests", {std::move(open), std::move(waiting)}};
}

Plot cdf_plot(const std::string& title, const std::string& unit, std::vector<Series> series) {
  return {title, unit, "% of values", std::move(series), 100};
}

std::string row(const std::string& name, const std::string& value) {
  return fmt::format(
      "<tr><td>{}</td><td class=\"text\">{}</td></tr>\n", html_escaped(name), html_escaped(value)
  );
}

std::string summary_rows(const ServeReport& report, const ServeConfig& config) {
  std::string out = row("completed", std::to_string(report.completed));
  out += row("failed", std::to_string(report.failed));
  if (report.unfinished > 0)
    out += row("stopped before the end", std::to_string(report.unfinished));
  out += row("duration", fmt::format("{:.2f} s", report.duration_s));
  out += row("requests a second", fmt::format("{:.3f}", report.request_throughput));
  if (!config.goodput.empty())
    out += row("goodput, requests a second", fmt::format("{:.3f}", report.request_goodput));
  out += row("output tokens a second", fmt::format("{:.1f}", report.output_throughput));
  out += row("all tokens a second", fmt::format("{:.1f}", report.total_token_throughput));
  out += row("input tokens", std::to_string(report.input_tokens));
  if (report.cached_tokens >= 0)
    out += row("of them from the prefix cache", std::to_string(report.cached_tokens));
  out += row("output tokens", std::to_string(report.output_tokens));
  out += row("most requests at once", std::to_string(report.max_concurrent_requests));
  out +=
      row("client",
          fmt::format(
              "{:.1f}% of a core, worst timer lag {:.1f} ms",
              report.client_cpu * 100,
              report.client_lag_ms
          ));
  return out;
}

std::string latency_table(const ServeReport& report, const ServeConfig& config) {
  std::string out = "<table>\n<tr><th>ms</th><th>mean</th><th>deviation</th>";
  for (const double p : config.percentiles) out += fmt::format("<th>p{}</th>", percentile_name(p));
  out += "<th>count</th></tr>\n";
  for (const char* name : {"ttft", "tpot", "itl", "e2el", "queue"}) {
    const Distribution& values = report.metrics.at(name);
    out += fmt::format(
        "<tr><td>{}</td><td>{:.2f}</td><td>{:.2f}</td>", name, values.mean(), values.deviation()
    );
    for (const double p : config.percentiles)
      out += fmt::format("<td>{:.2f}</td>", values.percentile(p));
    out += fmt::format("<td>{}</td></tr>\n", values.count());
  }
  return out + "</table>\n";
}

std::string config_rows(const ServeConfig& config) {
  std::string out = row("server", config.base_url + config.endpoint);
  out += row("model", config.model);
  out += row("token counts by", config.tokenizer);
  out += row("data set", config.dataset + ": " + config.note);
  out += row("prompts", std::to_string(config.num_prompts));
  out +=
      row("request rate",
          config.request_rate == 0 ? "as recorded"
          : std::isinf(config.request_rate)
              ? "all at once"
              : fmt::format("{} a second, burstiness {}", config.request_rate, config.burstiness));
  out +=
      row("max concurrency",
          config.max_concurrency > 0 ? std::to_string(config.max_concurrency) : "no limit");
  out += row("seed", std::to_string(config.seed));
  for (const auto& [metric, limit] : config.goodput)
    out += row("goodput limit, " + metric, fmt::format("{} ms", limit));
  for (const auto& [key, value] : config.metadata) out += row(key, value);
  return out;
}

std::string error_section(const ServeReport& report) {
  if (report.errors.empty()) return "<p>none</p>\n";
  std::string out = "<table>\n<tr><th>kind</th><th>count</th><th>first message</th></tr>\n";
  for (const auto& [kind, error] : report.errors)
    out += fmt::format(
        "<tr><td>{}</td><td>{}</td><td class=\"text\">{}</td></tr>\n",
        html_escaped(kind),
        error.first,
        html_escaped(error.second)
    );
  return out + "</table>\n";
}

}  // namespace

std::string html_report(
    const ServeReport& report, const ServeConfig& config, const LoadResult& result
) {
  const std::string title = "Load on " + config.model + ", " + config.date;
  std::string out = fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n"
      "<title>{0}</title>\n<style>{1}</style>\n</head>\n<body>\n<h1>{0}</h1>\n",
      html_escaped(title),
      kStyle
  );
  const auto& metrics = report.metrics;
  out += "<table>\n" + summary_rows(report, config) + "</table>\n<h2>Latency</h2>\n";
  out += latency_table(report, config);
  out +=
      "<p class=\"note\">ttft: sent to first token. tpot: (last - first) / (tokens - 1) of a "
      "request. itl: gap between two chunks of a stream; where a server puts several tokens in one "
      "chunk, tpot is the fairer figure. e2el: sent to last token. queue: due to sent, in this "
      "client.</p>\n<h2>Plots</h2>\n<div class=\"plots\">\n";
  out += svg(cdf_plot("Time to first token", "s", {cdf("ttft", metrics.at("ttft"), 1e3)}));
  out += svg(cdf_plot(
      "Time per output token",
      "ms",
      {cdf("tpot", metrics.at("tpot"), 1), cdf("itl", metrics.at("itl"), 1)}
  ));
  out += svg(cdf_plot("End-to-end latency", "s", {cdf("e2el", metrics.at("e2el"), 1e3)}));
  out += svg(ttft_over_time(result)) + svg(itl_over_time(result));
  out += svg(throughput_over_time(result)) + svg(concurrency_over_time(result));
  out += "</div>\n<h2>Configuration</h2>\n<table>\n" + config_rows(config) + "</table>\n";
  out += "<h2>Errors</h2>\n" + error_section(report) + "</body>\n</html>\n";
  return out;
}

}  // namespace artery::bench
