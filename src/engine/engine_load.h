#pragma once
// What the load tests share: a real model with its threads, a decorator that keeps the times of
// its forwards, and rounds of streams. For tests only.

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "engine/engine.h"
#include "engine/engine_harness.h"
#include "model/format/gguf.h"
#include "model/load.h"
#include "tensor/backend.h"

namespace artery::engine {

inline double now_s() { return static_cast<double>(system_clock().monotonic_ns()) * 1e-9; }

// Where a model's weights would lie; empty when they are not here.
inline std::string find_weights(const std::string& file) {
  const char* given = std::getenv("ARTERY_MODELS");
  const std::string folder =
      given != nullptr ? given : std::string(ARTERY_SOURCE_DIR) + "/build/models";
  const std::string path = folder + "/" + file;
  return std::filesystem::exists(path) ? path : std::string();
}

struct ForwardTimes {
  std::vector<double> begin, end;  // seconds
  std::vector<std::int64_t> rows;
};

// Keeps when each forward began and ended. The times are read when the engine is idle.
class TimedModel final : public model::Model {
 public:
  TimedModel(std::unique_ptr<model::Model> inner, ForwardTimes& times)
      : inner_(std::move(inner)), times_(times) {}

  const model::ModelInfo& info() const override { return inner_->info(); }
  model::KvLayout kv_layout() const override { return inner_->kv_layout(); }
  void forward(const model::ForwardBatch& batch, std::span<float> logits) override {
    times_.begin.push_back(now_s());
    inner_->forward(batch, logits);
    times_.end.push_back(now_s());
    times_.rows.push_back(static_cast<std::int64_t>(batch.tokens.size()));
  }
  tensor::ComputePool* compute_pool() override { return inner_->compute_pool(); }

 private:
  std::unique_ptr<model::Model> inner_;
  ForwardTimes& times_;
};

// A real model behind an engine; the members go in the opposite order.
struct RealEngine {
  std::unique_ptr<tensor::ComputePool> pool;
  std::unique_ptr<tensor::Backend> backend;
  ForwardTimes times;
  std::int64_t vocab = 0;
  std::int64_t weight_bytes = 0;
  std::unique_ptr<Engine> engine;
};

inline Result<std::unique_ptr<RealEngine>> load_real_engine(
    const std::string& path, Config config, Observer observer = {}
) {
  auto out = std::make_unique<RealEngine>();
  const auto file = TRY(model::GgufFile::open(path));
  out->pool = std::make_unique<tensor::ComputePool>(tensor::default_threads());
  out->backend = tensor::make_fast_backend(*out->pool, tensor::best_isa());
  model::LoadOptions options;
  options.context_max = config.max_model_len;
  auto loaded = TRY(model::load_model(*file, *out->backend, options));
  out->vocab = loaded->info().vocab_size;
  out->weight_bytes = loaded->info().weight_bytes;
  auto timed = std::make_unique<TimedModel>(std::move(loaded), out->times);
  out->engine =
      TRY(make_engine(std::move(timed), std::move(config), system_clock(), std::move(observer)));
  return out;
}

// A prompt of ordinary ids; the same seed gives the same prompt.
inline std::vector<TokenId> load_prompt(
    std::uint64_t seed, std::int64_t length, std::int64_t vocab
) {
  std::vector<TokenId> prompt;
  std::uint64_t state = seed * 0x9E3779B97F4A7C15ull + 1;
  for (std::int64_t i = 0; i < length; ++i) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    prompt.push_back(static_cast<TokenId>((state >> 33) % static_cast<std::uint64_t>(vocab)));
  }
  return prompt;
}

}  // namespace artery::engine
