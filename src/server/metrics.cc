#include "server/metrics.h"

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "server/metric_families.h"

namespace artery::server {
namespace {

using prometheus::Histogram;
using Buckets = Histogram::BucketBoundaries;

// Bucket bounds of vLLM 0.10 to 0.12 (v1/metrics/loggers), so that boards port by replacing names.
const Buckets kTtftBuckets = {0.001, 0.005, 0.01, 0.02,  0.04,  0.06,  0.08, 0.1,
                              0.25,  0.5,   0.75, 1.0,   2.5,   5.0,   7.5,  10.0,
                              20.0,  40.0,  80.0, 160.0, 640.0, 2560.0};
const Buckets kTokenBuckets = {
    0.01,
    0.025,
    0.05,
    0.075,
    0.1,
    0.15,
    0.2,
    0.3,
    0.4,
    0.5,
    0.75,
    1.0,
    2.5,
    5.0,
    7.5,
    10.0,
    20.0,
    40.0,
    80.0
};
const Buckets kStepGapBuckets = {
    0.00001, 0.00003, 0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0
};
const Buckets kLoadBuckets = {0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0};
const Buckets kRequestBuckets = {0.3,  0.5,   0.8,   1.0,   1.5,   2.0,    2.5,
                                 5.0,  10.0,  15.0,  20.0,  30.0,  40.0,   50.0,
                                 60.0, 120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0};
const Buckets kIterationBuckets = {1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384};

const Buckets kChoiceBuckets = {1, 2, 5, 10, 20};

// 1, 2, 5, 10, 20, 50, ... up to `most`.
Buckets one_two_five(std::int64_t most) {
  Buckets out;
  for (double power = 1;; power *= 10) {
    for (const double step : {1.0, 2.0, 5.0}) {
      if (power * step > static_cast<double>(std::max<std::int64_t>(most, 1))) return out;
      out.push_back(power * step);
    }
  }
}

// One family of names, "artery:" or "vllm:".
class Names {
 public:
  Names(const std::string& prefix, const std::string& model, std::int64_t max_model_len)
      : prefix_(prefix), labels_{{"model_name", model}, {"engine", "0"}} {
    running = gauge("num_requests_running", "Requests in the running batch.");
    waiting = gauge("num_requests_waiting", "Requests waiting to run.");
    for (const char* reason : {"capacity", "deferred"}) {
      prometheus::Labels labels = labels_;
      labels["reason"] = reason;
      waiting_by_reason.push_back(&prometheus::BuildGauge()
                                       .Name(prefix_ + "num_requests_waiting_by_reason")
                                       .Help("Requests waiting to run, by reason: all for room.")
                                       .Register(registry)
                                       .Add(labels));
    }
    cache_config = &prometheus::BuildGauge()
                        .Name(prefix_ + "cache_config_info")
                        .Help("The KV pool's form as labels; the value is 1.")
                        .Register(registry);
    kv_usage =
        gauge("kv_cache_usage_perc", "Share of KV pages in use by running requests, 0 to 1.");
    prompt_tokens = counter("prompt_tokens_total", "Prompt tokens processed.");
    generation_tokens = counter("generation_tokens_total", "Tokens generated.");
    preemptions = counter("num_preemptions_total", "Preemptions by the scheduler.");
    prefix_queries = counter("prefix_cache_queries_total", "Prompt tokens looked up in the cache.");
    prefix_hits = counter("prefix_cache_hits_total", "Prompt tokens found in the cache.");
    add_drafts();
    rejections =
        counter("admission_rejections_total", "Requests refused because the inbox is full.");
    aborted = counter("request_aborted_total", "Requests cancelled, mostly by clients that left.");
    for (const char* reason : {"stop", "length", "abort", "error"}) {
      prometheus::Labels labels = labels_;
      labels["finished_reason"] = reason;
      success.emplace_back(
          reason,
          &prometheus::BuildCounter()
               .Name(prefix_ + "request_success_total")
               .Help("Requests that ended, by reason.")
               .Register(registry)
               .Add(labels)
      );
    }
    ttft = histogram("time_to_first_token_seconds", "Arrival to first token.", kTtftBuckets);
    itl = histogram("inter_token_latency_seconds", "Gap between tokens.", kTokenBuckets);
    tpot = histogram(
        "request_time_per_output_token_seconds", "Decode seconds per token.", kTokenBuckets
    );
    e2e = histogram("e2e_request_latency_seconds", "Arrival to end.", kRequestBuckets);
    queue = histogram("request_queue_time_seconds", "Seconds waiting.", kRequestBuckets);
    prefill = histogram("request_prefill_time_seconds", "Seconds in prefill.", kRequestBuckets);
    decode = histogram("request_decode_time_seconds", "Seconds in decode.", kRequestBuckets);
    inference = histogram(
        "request_inference_time_seconds", "Seconds in prefill and decode.", kRequestBuckets
    );
    const Buckets tokens = one_two_five(max_model_len);
    request_prompt = histogram("request_prompt_tokens", "Prompt tokens of a request.", tokens);
    request_generation =
        histogram("request_generation_tokens", "Generated tokens of a request.", tokens);
    params_n = histogram("request_params_n", "The n of a request.", kChoiceBuckets);
    params_max_tokens = histogram(
        "request_params_max_tokens", "The max_tokens of a request that names one.", tokens
    );
    iteration = histogram("iteration_tokens_total", "Tokens of one step.", kIterationBuckets);
    if (prefix == "artery:") add_ours();
  }

  prometheus::Registry registry;
  prometheus::Gauge *running, *waiting, *kv_usage;
  std::vector<prometheus::Gauge*> waiting_by_reason;
  prometheus::Family<prometheus::Gauge>* cache_config;
  prometheus::Counter *prompt_tokens, *generation_tokens, *preemptions, *prefix_queries,
      *prefix_hits, *rejections, *aborted, *drafts, *draft_tokens, *accepted_tokens;
  std::vector<prometheus::Counter*> accepted_at;  // by place in the draft
  std::vector<std::pair<std::string_view, prometheus::Counter*>> success;
  Histogram *ttft, *itl, *tpot, *e2e, *queue, *prefill, *decode, *inference, *request_prompt,
      *request_generation, *params_n, *params_max_tokens, *iteration, *step_gap = nullptr,
                                                                      *load = nullptr;
  const prometheus::Labels& labels() const { return labels_; }
  const std::string& prefix() const { return prefix_; }

 private:
  void add_ours() {
    step_gap = histogram(
        "engine_step_gap_seconds",
        "From the end of a forward pass to the start of the next, sampling included.",
        kStepGapBuckets
    );
    load = histogram(
        "request_load_time_seconds",
        "Seconds a request waited for KV from the store, of those that did.",
        kLoadBuckets
    );
  }
  void add_drafts() {
    drafts = counter("spec_decode_num_drafts_total", "Drafts verified.");
    draft_tokens = counter("spec_decode_num_draft_tokens_total", "Drafted tokens verified.");
    accepted_tokens = counter("spec_decode_num_accepted_tokens_total", "Drafted tokens accepted.");
    for (int place = 0; place < engine::kDraftTokensMax; ++place) {
      prometheus::Labels labels = labels_;
      labels["position"] = std::to_string(place);
      accepted_at.push_back(&prometheus::BuildCounter()
                                 .Name(prefix_ + "spec_decode_num_accepted_tokens_per_pos_total")
                                 .Help("Drafted tokens accepted, by place in the draft.")
                                 .Register(registry)
                                 .Add(labels));
    }
  }
  prometheus::Gauge* gauge(const char* name, const char* help) {
    return &prometheus::BuildGauge()
                .Name(prefix_ + name)
                .Help(help)
                .Register(registry)
                .Add(labels_);
  }
  prometheus::Counter* counter(const char* name, const char* help) {
    return &prometheus::BuildCounter()
                .Name(prefix_ + name)
                .Help(help)
                .Register(registry)
                .Add(labels_);
  }
  Histogram* histogram(const char* name, const char* help, const Buckets& buckets) {
    return &prometheus::BuildHistogram()
                .Name(prefix_ + name)
                .Help(help)
                .Register(registry)
                .Add(labels_, buckets);
  }

  std::string prefix_;
  prometheus::Labels labels_;
};

// The engine counts since its start; a counter here is moved up to that.
void advance(prometheus::Counter& counter, std::int64_t total) {
  const double missing = static_cast<double>(total) - counter.Value();
  if (missing > 0) counter.Increment(missing);
}

using prometheus::MetricFamily;
using prometheus::MetricType;

void append_key_families(
    const prometheus::Labels& labels,
    const std::vector<KeyCounts>& keys,
    std::vector<MetricFamily>& out
) {
  struct Column {
    MetricType type;
    const char *name, *help;
    std::int64_t KeyCounts::* number;
  };
  static constexpr Column kColumns[] = {
      {MetricType::Counter, "key_requests_total", "Requests of an API key.", &KeyCounts::requests},
      {MetricType::Gauge,
       "key_requests_running",
       "Requests of an API key in work.",
       &KeyCounts::running},
      {MetricType::Counter,
       "key_prompt_tokens_total",
       "Prompt tokens of an API key's requests.",
       &KeyCounts::prompt_tokens},
      {MetricType::Counter,
       "key_generation_tokens_total",
       "Tokens generated for an API key.",
       &KeyCounts::generated_tokens},
  };
  for (const Column& column : kColumns) {
    MetricFamily& family = new_family(out, column.type, column.name, column.help);
    for (const KeyCounts& key : keys) {
      add_value(family, labels, "key_name", key.name, static_cast<double>(key.*column.number));
    }
  }
  MetricFamily& refused = new_family(
      out,
      MetricType::Counter,
      "key_rejections_total",
      "Requests of an API key beyond its limits, by limit."
  );
  for (const KeyCounts& key : keys) {
    prometheus::Labels with_name = labels;
    with_name["key_name"] = key.name;
    add_value(
        refused, with_name, "limit", "concurrent", static_cast<double>(key.refused_concurrent)
    );
    add_value(refused, with_name, "limit", "requests", static_cast<double>(key.refused_requests));
    add_value(refused, with_name, "limit", "tokens", static_cast<double>(key.refused_tokens));
  }
}

// Values that something else counts; for them a registry would only be a second copy.
void append_server_families(
    const prometheus::Labels& labels, const ServerCounts& server, std::vector<MetricFamily>& out
) {
  const auto add = [&](MetricType type, const char* name, const char* help, std::int64_t number) {
    add_value(new_family(out, type, name, help), labels, nullptr, {}, static_cast<double>(number));
  };
  using enum MetricType;
  add(Gauge, "http_connections", "Connections open now.", server.connections);
  add(Gauge, "http_connections_max", "Connections that may be open.", server.connections_max);
  add(Counter, "http_connections_total", "Connections accepted.", server.accepted);
  add(Counter,
      "http_connections_refused_total",
      "Connections told 503 because too many were open.",
      server.refused_connections);
  add(Counter, "tls_failures_total", "TLS handshakes that failed.", server.tls_failures);
  add(Counter,
      "stream_stalls_total",
      "Answers given up because the client read nothing for too long.",
      server.stalled_streams);
  add(Gauge, "http_body_bytes", "Bytes of request bodies being read or waiting.", server.body_bytes
  );
  MetricFamily& refusals =
      new_family(out, Counter, "http_errors_total", "Answers of 400 and above, by status.");
  for (const auto& [status, count] : server.refusals) {
    add_value(refusals, labels, "status", std::to_string(status), static_cast<double>(count));
  }
  append_key_families(labels, server.keys, out);
}

// How the engine spent the time in which it had work.
void append_engine_families(
    const prometheus::Labels& labels, const engine::Status& status, std::vector<MetricFamily>& out
) {
  const auto add = [&](MetricType type, const char* name, const char* help, double number) {
    add_value(new_family(out, type, name, help), labels, nullptr, {}, number);
  };
  using enum MetricType;
  add(Counter, "engine_busy_seconds_total", "Seconds in forward passes and sampling.", status.busy_s
  );
  add(Counter, "engine_sampling_seconds_total", "Of these, in sampling.", status.sampling_s);
  add(Counter,
      "engine_idle_seconds_total",
      "Seconds with work waiting and neither a forward pass nor sampling.",
      status.idle_s);
  add(Gauge,
      "engine_idle_share",
      "Share of idle seconds in the last 10 s or so of work, 0 to 1.",
      status.idle_share);
  // Of models with sliding-window layers.
  const auto add_count = [&](const char* name, const char* help, std::int64_t number) {
    add(Counter, name, help, static_cast<double>(number));
  };
  add_count(
      "windows_restored_total",
      "Prefix hits that went on from a saved window.",
      status.windows_restored
  );
  add_count(
      "windows_rebuilt_total",
      "Prefix hits that had to rebuild their window.",
      status.windows_rebuilt
  );
  add_count("window_rows_total", "Rows that ran again to rebuild windows.", status.window_rows);
  add_count(
      "windows_expired_total", "Saved windows whose time had passed.", status.windows_expired
  );
  add_count(
      "windows_replayed_total",
      "Of --swa-replay: windows rebuilt by fewer rows than make them exact.",
      status.windows_replayed
  );
  add_count(
      "window_rows_spared_total",
      "Of --swa-replay: rows that exact rebuilds had run more.",
      status.window_rows_spared
  );
  add_count(
      "windows_stored_total", "Saved windows that went to the store too.", status.windows_stored
  );
  add_count("windows_loaded_total", "Windows read from the store.", status.windows_loaded);
  add_count(
      "windows_load_failed_total",
      "Windows that the store had and that did not come, or too late.",
      status.windows_load_failed
  );
}

class PrometheusMetrics final : public Metrics {
 public:
  PrometheusMetrics(const std::string& model, std::int64_t max_model_len, bool vllm_names) {
    all_.push_back(std::make_unique<Names>("artery:", model, max_model_len));
    if (vllm_names) all_.push_back(std::make_unique<Names>("vllm:", model, max_model_len));
  }

  void on_step(const engine::StepStats& stats) override {
    for (auto& names : all_) {
      names->iteration->Observe(stats.prefill_tokens + stats.decode_tokens);
      if (names->step_gap != nullptr) names->step_gap->Observe(stats.gap_seconds);
    }
  }
  void on_admitted(std::int64_t max_tokens, int n) override {
    for (auto& names : all_) {
      names->params_n->Observe(n);
      if (max_tokens >= 0) names->params_max_tokens->Observe(static_cast<double>(max_tokens));
    }
  }
  void on_first_token(double seconds) override {
    for (auto& names : all_) names->ttft->Observe(seconds);
  }
  void on_tokens(double seconds, std::int64_t count) override {
    for (auto& names : all_) {
      for (std::int64_t i = 0; i < count; ++i) {
        names->itl->Observe(seconds / static_cast<double>(count));
      }
    }
  }
  void on_request(const RequestSample& sample) override {
    for (auto& names : all_) {
      for (auto& [reason, counter] : names->success) {
        if (reason == sample.finish) counter->Increment();
      }
      names->e2e->Observe(sample.e2e_s);
      names->queue->Observe(sample.timings.queue_s);
      names->prefill->Observe(sample.timings.prefill_s);
      names->decode->Observe(sample.timings.decode_s);
      if (names->load != nullptr && sample.timings.load_s > 0) {
        names->load->Observe(sample.timings.load_s);
      }
      names->inference->Observe(sample.timings.prefill_s + sample.timings.decode_s);
      names->request_prompt->Observe(static_cast<double>(sample.prompt_tokens));
      names->request_generation->Observe(static_cast<double>(sample.generated_tokens));
      if (sample.generated_tokens > 1) {
        names->tpot->Observe(
            sample.timings.decode_s / static_cast<double>(sample.generated_tokens - 1)
        );
      }
    }
  }

  std::string render(
      const engine::Status& status,
      const ServerCounts& server,
      const std::optional<kvstore::StoreStatus>& store
  ) override {
    std::vector<prometheus::MetricFamily> families;
    {
      // Two scrapes at once would both see the same missing part of a counter.
      const MutexLock lock(mu_);
      for (auto& names : all_) {
        update(*names, status);
        auto collected = names->registry.Collect();
        std::move(collected.begin(), collected.end(), std::back_inserter(families));
      }
    }
    append_engine_families(all_.front()->labels(), status, families);
    for (const auto& names : all_) {
      append_offload_families(names->prefix(), names->labels(), status, store, families);
    }
    append_cache_families(all_.front()->labels(), status, families);
    if (store) append_store_families(all_.front()->labels(), *store, families);
    append_server_families(all_.front()->labels(), server, families);
    return prometheus::TextSerializer().Serialize(families);
  }

 private:
  static void update(Names& names, const engine::Status& status) {
    names.running->Set(status.running);
    names.waiting->Set(status.waiting);
    names.waiting_by_reason.front()->Set(status.waiting);
    prometheus::Labels form = names.labels();
    form["block_size"] = std::to_string(kPageTokens);
    form["num_gpu_blocks"] = std::to_string(status.pages_total);
    names.cache_config->Add(form).Set(1);
    names.kv_usage->Set(
        status.pages_total > 0
            ? static_cast<double>(status.pages_in_use) / static_cast<double>(status.pages_total)
            : 0.0
    );
    advance(*names.prompt_tokens, status.prompt_tokens);
    advance(*names.generation_tokens, status.generated_tokens);
    advance(*names.preemptions, status.preemptions);
    advance(*names.prefix_queries, status.prefix_queries);
    advance(*names.prefix_hits, status.prefix_hits);
    advance(*names.rejections, status.rejected);
    advance(*names.aborted, status.aborted);
    advance(*names.drafts, status.drafts);
    advance(*names.draft_tokens, status.draft_tokens);
    advance(*names.accepted_tokens, status.accepted_tokens);
    for (std::size_t i = 0; i < names.accepted_at.size(); ++i) {
      advance(*names.accepted_at[i], status.accepted_at[i]);
    }
  }

  Mutex mu_;
  std::vector<std::unique_ptr<Names>> all_;
};

}  // namespace

KeyCounts& KeyCounts::operator+=(const KeyCounts& other) {
  name = other.name;
  requests += other.requests;
  running += other.running;
  refused_concurrent += other.refused_concurrent;
  refused_requests += other.refused_requests;
  refused_tokens += other.refused_tokens;
  prompt_tokens += other.prompt_tokens;
  generated_tokens += other.generated_tokens;
  return *this;
}

std::unique_ptr<Metrics> make_metrics(
    const std::string& model_name, std::int64_t max_model_len, bool vllm_names
) {
  return std::make_unique<PrometheusMetrics>(model_name, max_model_len, vllm_names);
}

}  // namespace artery::server
