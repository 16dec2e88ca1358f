// Figures, tables and pages of a load run.

#include "bench/serve_report.h"

#include <gtest/gtest.h>

#include <boost/json.hpp>

#include "bench/html_report.h"
#include "bench/svg_plot.h"

namespace artery::bench {
namespace {

RequestRecord record(double start, double ttft, std::vector<float> gaps, std::int64_t tokens) {
  RequestRecord out;
  out.outcome = Outcome::kOk;
  out.due_s = out.start_s = start;
  out.ttft_s = ttft;
  out.latency_s = ttft;
  for (const float gap : gaps) out.latency_s += static_cast<double>(gap);
  out.gaps_s = std::move(gaps);
  out.input_tokens = 10;
  out.output_tokens = out.asked_tokens = tokens;
  out.usage = true;
  return out;
}

LoadResult two_good_one_bad() {
  LoadResult result;
  result.records.push_back(record(0, 0.5, {0.25f, 0.25f}, 3));
  result.records.push_back(record(0.5, 1.0, {0.5f}, 2));
  RequestRecord failed;
  failed.outcome = Outcome::kFailed;
  failed.error_kind = "http 429";
  failed.error = "full <b> & \"busy\"";
  result.records.push_back(failed);
  result.records.push_back({});  // stopped before it was sent
  result.duration_s = 2;
  return result;
}

TEST(Distribution, MatchesNumpy) {
  const Distribution values({4, 1, 3, 2});
  EXPECT_DOUBLE_EQ(values.mean(), 2.5);
  EXPECT_NEAR(values.deviation(), 1.118033988749895, 1e-12);  // numpy.std
  EXPECT_DOUBLE_EQ(values.median(), 2.5);
  EXPECT_DOUBLE_EQ(values.percentile(99), 3.97);  // numpy.percentile
  EXPECT_DOUBLE_EQ(values.percentile(0), 1);
  EXPECT_DOUBLE_EQ(values.percentile(100), 4);
  EXPECT_DOUBLE_EQ(Distribution({7}).percentile(12), 7);
  EXPECT_DOUBLE_EQ(Distribution().percentile(50), 0);
}

TEST(ServeReport, CountsAsOthersDo) {
  const LoadResult result = two_good_one_bad();
  const ServeReport report = make_report(result, {{"ttft", 600}, {"tpot", 300}});
  EXPECT_EQ(report.completed, 2);
  EXPECT_EQ(report.failed, 1);
  EXPECT_EQ(report.unfinished, 1);
  EXPECT_EQ(report.input_tokens, 20);
  EXPECT_EQ(report.output_tokens, 5);
  EXPECT_DOUBLE_EQ(report.request_throughput, 1);
  EXPECT_DOUBLE_EQ(report.request_goodput, 0.5);  // the second one's first token came late
  EXPECT_DOUBLE_EQ(report.output_throughput, 2.5);
  EXPECT_DOUBLE_EQ(report.total_token_throughput, 12.5);
  EXPECT_EQ(report.max_concurrent_requests, 2);
  EXPECT_DOUBLE_EQ(report.max_output_tokens_per_s, 2);  // two in each of the first two seconds
  EXPECT_DOUBLE_EQ(report.metrics.at("tpot").percentile(0), 250);
  EXPECT_DOUBLE_EQ(report.metrics.at("tpot").percentile(100), 500);
  EXPECT_EQ(report.metrics.at("itl").count(), 3u);
  EXPECT_DOUBLE_EQ(report.metrics.at("e2el").mean(), 1250);
  EXPECT_EQ(report.errors.at("http 429").first, 1);
}

TEST(ServeReport, JsonHasTheUsualNames) {
  const LoadResult result = two_good_one_bad();
  ServeConfig config;
  config.request_rate = INFINITY;
  config.percentiles = {50, 99.9};
  config.metadata = {{"version", "7"}};
  const auto plain = report_json(make_report(result, {}), config, result, false);
  for (const char* name :
       {"duration",
        "completed",
        "failed",
        "total_input_tokens",
        "total_output_tokens",
        "request_throughput",
        "request_goodput",
        "output_throughput",
        "total_token_throughput",
        "mean_ttft_ms",
        "median_tpot_ms",
        "std_itl_ms",
        "p99.9_e2el_ms",
        "p50_ttft_ms",
        "date",
        "model_id",
        "request_rate",
        "max_concurrency",
        "version"})
    EXPECT_TRUE(plain.contains(name)) << name;
  EXPECT_EQ(plain.at("request_rate"), "inf");
  EXPECT_TRUE(plain.at("request_goodput").is_null());
  EXPECT_FALSE(plain.contains("ttfts"));
  const auto detailed = report_json(make_report(result, {}), config, result, true);
  EXPECT_EQ(detailed.at("ttfts").as_array().size(), 4u);
  EXPECT_EQ(detailed.at("errors").as_array()[2], "http 429: full <b> & \"busy\"");
}

TEST(ServeReport, GoodputIsReadOrRefused) {
  const auto goodput = parse_goodput("ttft:2000 tpot:50,e2el:9e3");
  ASSERT_TRUE(goodput.has_value());
  EXPECT_EQ(goodput->at("e2el"), 9000);
  EXPECT_TRUE(parse_goodput("")->empty());
  for (const char* bad :
       {"ttft", "ttft:", "ttft:x", "itl:5", "ttft:-1", "ttft:nan", "ttft:inf", ":"}) {
    const auto refused = parse_goodput(bad);
    ASSERT_FALSE(refused.has_value()) << bad;
    EXPECT_EQ(refused.error().field, "--goodput");
  }
}

// Every tag is closed in order: the page is well-formed XML but for its first line.
void expect_balanced(const std::string& page) {
  std::vector<std::string> open;
  for (std::size_t at = page.find('<'); at != std::string::npos; at = page.find('<', at + 1)) {
    const std::size_t end = page.find('>', at);
    ASSERT_NE(end, std::string::npos);
    std::string tag = page.substr(at + 1, end - at - 1);
    if (tag.starts_with("!") || tag.ends_with("/")) continue;
    if (tag.starts_with("/")) {
      ASSERT_FALSE(open.empty());
      EXPECT_EQ(open.back(), tag.substr(1));
      open.pop_back();
    } else {
      open.push_back(tag.substr(0, tag.find_first_of(" \n")));
    }
  }
  EXPECT_TRUE(open.empty());
}

TEST(HtmlReport, IsWellFormedAndNeedsNothingElse) {
  ServeConfig config;
  config.model = "model<script>&";
  config.goodput = {{"ttft", 600}};
  config.request_rate = INFINITY;
  const LoadResult some = two_good_one_bad();
  for (const LoadResult& result : {some, LoadResult{}}) {
    const std::string page = html_report(make_report(result, {}), config, result);
    expect_balanced(page);
    for (const char* banned :
         {"<script", "http://", "https://", "src=", "href=", "@import", "url("})
      EXPECT_EQ(page.find(banned), std::string::npos) << banned;
    EXPECT_EQ(page.find("nan"), std::string::npos);
    EXPECT_NE(page.find("<svg"), std::string::npos);
  }
  const std::string page = html_report(make_report(some, {}), config, some);
  EXPECT_NE(page.find("full &lt;b&gt; &amp; &quot;busy&quot;"), std::string::npos);
  EXPECT_NE(page.find("polyline"), std::string::npos);
}

TEST(SvgPlot, StepsAreRound) {
  EXPECT_DOUBLE_EQ(nice_step(10, 5), 2);
  EXPECT_DOUBLE_EQ(nice_step(0.7, 5), 0.2);
  EXPECT_DOUBLE_EQ(nice_step(900, 5), 200);
  EXPECT_DOUBLE_EQ(nice_step(0, 5), 1);
}

}  // namespace
}  // namespace artery::bench
