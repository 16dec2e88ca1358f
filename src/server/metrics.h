#pragma once
// What /metrics shows: `artery:` names with vLLM's suffixes, labels and bucket bounds (peers 6.5),
// and the literal `vllm:` names on request. All methods from any thread; observing never blocks
// for long.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/engine.h"
#include "kvstore/status.h"

namespace artery::server {

// One finished request.
struct RequestSample {
  double e2e_s = 0;
  engine::Timings timings;
  std::int64_t prompt_tokens = 0;
  std::int64_t generated_tokens = 0;
  std::string_view finish;  // "stop", "length", "abort", "error"
};

// What the requests of one API key's name used since the start.
struct KeyCounts {
  std::string name;
  std::int64_t requests = 0, running = 0;
  std::int64_t refused_concurrent = 0, refused_requests = 0, refused_tokens = 0;  // by limit
  std::int64_t prompt_tokens = 0, generated_tokens = 0;

  KeyCounts& operator+=(const KeyCounts& other);
};

// What the server itself counts, beside the engine.
struct ServerCounts {
  std::int64_t connections = 0, connections_max = 0;  // open now, and the limit
  std::int64_t accepted = 0, refused_connections = 0, tls_failures = 0, stalled_streams = 0;
  std::int64_t body_bytes = 0;                         // of requests being read or waiting
  std::vector<std::pair<int, std::int64_t>> refusals;  // HTTP status and how often it was answered
  std::vector<KeyCounts> keys;
};

class Metrics {
 public:
  virtual ~Metrics() = default;
  virtual void on_step(const engine::StepStats& stats) = 0;
  // A generation request that was let in.
  virtual void on_admitted(std::int64_t max_tokens, int n) = 0;
  virtual void on_first_token(double seconds) = 0;
  // `count` tokens of one choice came `seconds` after the last ones.
  virtual void on_tokens(double seconds, std::int64_t count) = 0;
  virtual void on_request(const RequestSample& sample) = 0;
  // Prometheus text format; both are taken now.
  // `store`: of the tier behind the RAM prefix cache, where there is one.
  virtual std::string render(
      const engine::Status& status,
      const ServerCounts& server,
      const std::optional<kvstore::StoreStatus>& store
  ) = 0;
};

// `max_model_len` bounds the buckets of the token histograms.
std::unique_ptr<Metrics> make_metrics(
    const std::string& model_name, std::int64_t max_model_len, bool vllm_names
);

}  // namespace artery::server
