// The names, labels and bucket bounds that boards and autoscalers written for vLLM look for: the
// list of peers 6.5 as it appears in the text form, where counters end with _total, and of its
// kv_offload_* those of 2026 that mean something without a GPU. Left out are those of features that
// are not there: lora_requests_info.

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "server/metrics.h"

namespace artery::server {
namespace {

const char* const kNames[] = {
    "num_requests_running",
    "num_requests_waiting",
    "num_requests_waiting_by_reason",
    "kv_cache_usage_perc",
    "prefix_cache_queries_total",
    "prefix_cache_hits_total",
    "prompt_tokens_total",
    "generation_tokens_total",
    "num_preemptions_total",
    "request_success_total",
    "time_to_first_token_seconds",
    "inter_token_latency_seconds",
    "request_time_per_output_token_seconds",
    "e2e_request_latency_seconds",
    "request_queue_time_seconds",
    "request_prefill_time_seconds",
    "request_decode_time_seconds",
    "request_prompt_tokens",
    "request_generation_tokens",
    "iteration_tokens_total",
    "admission_rejections_total",
    "cache_config_info",
    "kv_offload_load_bytes_total",
    "kv_offload_load_time_total",
    "kv_offload_store_bytes_total",
    "kv_offload_stores_skipped_total",
    "kv_offload_allocation_failure_total",
    "external_prefix_cache_queries_total",
    "external_prefix_cache_hits_total"
};

const std::vector<double> kTtft = {0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1,
                                   0.25,  0.5,   0.75, 1,    2.5,  5,    7.5,  10,
                                   20,    40,    80,   160,  640,  2560};
const std::vector<double> kToken = {
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80
};
const std::vector<double> kRequest = {0.3, 0.5, 0.8, 1,  1.5, 2,   2.5, 5,   10,   15,  20,
                                      30,  40,  50,  60, 120, 240, 480, 960, 1920, 7680};
const std::vector<double> kStep = {1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384};
const std::vector<double> kTokens = {1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000};

std::string rendered(bool vllm_names) {
  const auto metrics = make_metrics("m", 8192, vllm_names);
  metrics->on_first_token(0.3);
  metrics->on_tokens(0.2, 2);
  metrics->on_admitted(100, 1);
  metrics->on_step({0.1, 100, 5});
  metrics->on_request({1.0, {}, 10, 5, "stop"});
  engine::Status status;
  status.running = 3;
  status.waiting = 2;
  status.pages_total = 100;
  status.pages_in_use = 25;
  status.drafts = 4;
  status.draft_tokens = 16;
  status.accepted_tokens = 9;
  status.accepted_at[1] = 3;
  status.hit_tokens_ram = 640;
  status.hit_tokens_disk = 320;
  status.miss_tokens[static_cast<std::size_t>(kvstore::MissReason::kCold)] = 64;
  status.miss_tokens[static_cast<std::size_t>(kvstore::MissReason::kExpired)] = 16;
  status.load_wait_s = 1.5;
  status.loads_declined = 2;
  kvstore::StoreStatus store;
  store.bytes_read = 1000;
  store.bytes_written = 2000;
  store.bytes_to_disk = 5000;
  store.writes_refused_room = 3;
  store.checksum_failures = 4;
  store.health = kvstore::Health::kSick;
  store.breaker_opened = 1;
  store.classes[static_cast<std::size_t>(kvstore::TtlClass::kAgent)].records = 7;
  return metrics->render(status, ServerCounts{}, store);
}

// Bounds of "NAME_bucket{... le="X"}" lines, +Inf left out.
std::vector<double> bounds_of(const std::string& text, const std::string& name) {
  std::vector<double> out;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind(name + "_bucket{", 0) != 0) continue;
    const std::size_t at = line.find("le=\"") + 4;
    const std::string bound = line.substr(at, line.find('"', at) - at);
    if (bound != "+Inf") out.push_back(std::stod(bound));
  }
  return out;
}

class MetricNames : public ::testing::TestWithParam<const char*> {};

TEST_P(MetricNames, AreAllThereWithTheirBounds) {
  const std::string prefix = GetParam();
  const std::string text = rendered(true);
  for (const char* name : kNames) {
    EXPECT_NE(text.find("# TYPE " + prefix + name + " "), std::string::npos) << prefix << name;
  }
  const std::map<std::string, std::vector<double>> expected = {
      {"time_to_first_token_seconds", kTtft},
      {"inter_token_latency_seconds", kToken},
      {"request_time_per_output_token_seconds", kToken},
      {"e2e_request_latency_seconds", kRequest},
      {"request_queue_time_seconds", kRequest},
      {"request_prefill_time_seconds", kRequest},
      {"request_decode_time_seconds", kRequest},
      {"request_inference_time_seconds", kRequest},
      {"request_prompt_tokens", kTokens},
      {"request_generation_tokens", kTokens},
      {"iteration_tokens_total", kStep},
  };
  for (const auto& [name, bounds] : expected) EXPECT_EQ(bounds_of(text, prefix + name), bounds);
}

TEST_P(MetricNames, CarryLabelsAndValues) {
  const std::string prefix = GetParam();
  const std::string text = rendered(true);
  const auto has = [&](const std::string& line) {
    EXPECT_NE(text.find("\n" + prefix + line + "\n"), std::string::npos) << prefix << line;
  };
  has("num_requests_running{engine=\"0\",model_name=\"m\"} 3");
  has("num_requests_waiting{engine=\"0\",model_name=\"m\"} 2");
  has("num_requests_waiting_by_reason{engine=\"0\",model_name=\"m\",reason=\"capacity\"} 2");
  has("kv_cache_usage_perc{engine=\"0\",model_name=\"m\"} 0.25");
  has("request_success_total{engine=\"0\",finished_reason=\"stop\",model_name=\"m\"} 1");
  has("spec_decode_num_drafts_total{engine=\"0\",model_name=\"m\"} 4");
  has("spec_decode_num_draft_tokens_total{engine=\"0\",model_name=\"m\"} 16");
  has("spec_decode_num_accepted_tokens_total{engine=\"0\",model_name=\"m\"} 9");
  has("spec_decode_num_accepted_tokens_per_pos_total{engine=\"0\",model_name=\"m\",position=\"1\"} "
      "3");
  has("kv_offload_load_bytes_total{engine=\"0\",model_name=\"m\"} 1000");
  has("kv_offload_load_time_total{engine=\"0\",model_name=\"m\"} 1.5");
  has("kv_offload_store_bytes_total{engine=\"0\",model_name=\"m\"} 2000");
  has("external_prefix_cache_queries_total{engine=\"0\",model_name=\"m\"} 400");
  has("external_prefix_cache_hits_total{engine=\"0\",model_name=\"m\"} 320");
  has("inter_token_latency_seconds_count{engine=\"0\",model_name=\"m\"} 2");
  has("cache_config_info{block_size=\"16\",engine=\"0\",model_name=\"m\",num_gpu_blocks=\"100\"} 1"
  );
}

INSTANTIATE_TEST_SUITE_P(
    Prefixes,
    MetricNames,
    ::testing::Values("artery:", "vllm:"),
    [](const auto& one) {
      return std::string(one.param).substr(0, std::string(one.param).size() - 1);
    }
);

TEST(MetricNamesOfTheStore, SayTierReasonAndTrouble) {
  const std::string text = rendered(false);
  const auto has = [&](const std::string& name, const std::string& label, const char* value) {
    const std::string before = label < "engine" ? label + ",engine=\"0\",model_name=\"m\""
                                                : "engine=\"0\",model_name=\"m\"," + label;
    const std::string middle = "engine=\"0\"," + label + ",model_name=\"m\"";
    const std::string with = label < "model_name" && label > "engine" ? middle : before;
    const std::string line = "artery:" + name + "{" + with + "} " + value;
    EXPECT_NE(text.find("\n" + line + "\n"), std::string::npos) << line;
  };
  has("cache_hit_tokens_total", "tier=\"ram\"", "640");
  has("cache_hit_tokens_total", "tier=\"disk\"", "320");
  has("cache_miss_tokens_total", "reason=\"cold\"", "64");
  has("cache_miss_tokens_total", "reason=\"expired\"", "16");
  has("cache_miss_tokens_total", "reason=\"checksum\"", "0");
  has("kv_offload_loads_total", "outcome=\"declined\"", "2");
  has("kv_store_errors_total", "kind=\"checksum\"", "4");
  has("kv_store_writes_refused_total", "reason=\"room\"", "3");
  has("kv_store_health", "state=\"sick\"", "1");
  has("kv_store_health", "state=\"ok\"", "0");
  has("kv_store_records", "ttl=\"72h\"", "7");
  EXPECT_NE(
      text.find("\nartery:kv_store_write_amplification{engine=\"0\",model_name=\"m\"} 2.5\n"),
      std::string::npos
  );
}

TEST(MetricNamesOfTheStore, AreLeftOutWithoutOne) {
  const std::string text =
      make_metrics("m", 8192, false)->render(engine::Status{}, ServerCounts{}, std::nullopt);
  EXPECT_EQ(text.find("artery:kv_store_"), std::string::npos);
  EXPECT_NE(text.find("artery:cache_miss_tokens_total"), std::string::npos);
}

TEST(MetricNamesDefault, HaveNoLiteralVllm) {
  EXPECT_EQ(rendered(false).find("vllm:"), std::string::npos);
}

}  // namespace
}  // namespace artery::server
