#pragma once
// From the records of a load run to the figures people quote, under the names vLLM's benchmark
// gives them, as a table, JSON and (html_report.h) a page. Pure functions, any thread.

#include <boost/json/object.hpp>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "bench/distribution.h"
#include "bench/load_client.h"

namespace artery::bench {

// Limits a request has to meet all of, in milliseconds, by metric: ttft, tpot, e2el.
using Goodput = std::map<std::string, double>;
// "ttft:2000 tpot:50", also with commas. kInvalidArgument.
Result<Goodput> parse_goodput(std::string_view text);

struct ServeConfig {
  std::string base_url, endpoint, model, tokenizer, dataset, note, label;
  std::int64_t num_prompts = 0;
  double request_rate = 0;  // infinite: all at once; 0: the data set's own times
  double burstiness = 1;
  std::int64_t max_concurrency = 0;
  std::uint64_t seed = 0;
  Goodput goodput;
  std::vector<std::string> percentile_metrics = {"ttft", "tpot", "itl", "e2el"};
  std::vector<double> percentiles = {50, 90, 99};
  std::vector<std::pair<std::string, std::string>> metadata;
  std::string date;  // "20261130-150405"
};

struct ServeReport {
  std::int64_t completed = 0, failed = 0, unfinished = 0;
  std::int64_t input_tokens = 0, output_tokens = 0, cached_tokens = -1;
  std::int64_t chunks = 0;         // that carried the output tokens
  std::int64_t without_usage = 0;  // completed requests whose tokens are counted by chunks
  std::int64_t short_answers = 0;  // ended before the number of tokens asked for
  double duration_s = 0;
  double request_throughput = 0, request_goodput = 0;  // a second
  double output_throughput = 0, total_token_throughput = 0;
  double max_output_tokens_per_s = 0;
  std::int64_t max_concurrent_requests = 0;
  double client_cpu = 0, client_lag_ms = 0;
  // Milliseconds over completed requests. ttft: send to first token; tpot: (last - first) / (n -
  // 1) a request; itl: each gap between chunks; e2el: send to last token; queue: due to sent.
  std::map<std::string, Distribution> metrics;
  std::map<std::string, std::pair<std::int64_t, std::string>> errors;  // kind: count, an example
};

ServeReport make_report(const LoadResult& result, const Goodput& goodput);

// (last - first) / (n - 1) in milliseconds; 0 for answers of one token.
double tpot_ms(const RequestRecord& record);

std::string report_table(const ServeReport& report, const ServeConfig& config);

// `detailed` adds the lists of every request's lengths, times and errors.
boost::json::object report_json(
    const ServeReport& report, const ServeConfig& config, const LoadResult& result, bool detailed
);

// "99", "99.9".
std::string percentile_name(double p);

}  // namespace artery::bench
