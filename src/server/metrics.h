#pragma once
// What /metrics shows: `artery:` names with vLLM's suffixes, labels and bucket bounds (peers 6.5),
// and the literal `vllm:` names on request. All methods from any thread; observing never blocks
// for long.

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "engine/engine.h"

namespace artery::server {

// One finished request.
struct RequestSample {
  double e2e_s = 0;
  engine::Timings timings;
  std::int64_t prompt_tokens = 0;
  std::int64_t generated_tokens = 0;
  std::string_view finish;  // "stop", "length", "abort", "error"
};

class Metrics {
 public:
  virtual ~Metrics() = default;
  virtual void on_step(const engine::StepStats& stats) = 0;
  virtual void on_first_token(double seconds) = 0;
  // `count` tokens of one choice came `seconds` after the last ones.
  virtual void on_tokens(double seconds, std::int64_t count) = 0;
  virtual void on_request(const RequestSample& sample) = 0;
  // Prometheus text format; `status` is the engine's, taken now.
  virtual std::string render(const engine::Status& status) = 0;
};

// `max_model_len` bounds the buckets of the token histograms.
std::unique_ptr<Metrics> make_metrics(
    const std::string& model_name, std::int64_t max_model_len, bool vllm_names
);

}  // namespace artery::server
