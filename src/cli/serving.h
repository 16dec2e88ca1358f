#pragma once
// Puts the parts together: file, weights, backend, engine, tokenizer, chat template. What `serve`,
// `run`, `bench model` and `eval` start from. The mapped file is closed once the weights are
// packed. Called by one thread; blocks for the length of the load.

#include <functional>
#include <memory>
#include <string>

#include "base/clock.h"
#include "base/result.h"
#include "cli/kv_flags.h"
#include "cli/memory_plan.h"
#include "cli/options.h"
#include "codec/api/convert.h"
#include "codec/prompt/chat_template.h"
#include "codec/tokenizer.h"
#include "engine/engine.h"
#include "model/load.h"
#include "tensor/backend.h"

namespace artery::cli {

struct ComputeWish {
  std::string numerics = "fast";
  std::string isa = "auto";
  std::string kv_cache_dtype = "auto";
  int threads = 0;  // 0: default_threads()
};
// From the flags threads, isa, numerics and, where the verb has it, kv-cache-dtype.
ComputeWish compute_wish(const Options& options, bool has_kv_cache_dtype);

struct Compute {
  std::unique_ptr<tensor::ComputePool> pool;
  std::unique_ptr<tensor::Backend> backend;  // uses pool
  tensor::KvType kv_type = tensor::KvType::kI16;
};
// kInvalidArgument for an ISA this machine lacks. Warns when there are more threads than the quota
// gives time for.
Result<Compute> make_compute(const ComputeWish& wish);

using LoadProgress = std::function<void(std::uint64_t done, std::uint64_t total)>;

// A model without an engine.
struct BareModel {
  Compute compute;
  std::unique_ptr<model::Model> model;  // uses compute
  bool quantized = false;
};
// `tokenizer`: null, or where to put the file's tokenizer.
Result<BareModel> load_bare_model(
    const std::string& path,
    const ComputeWish& wish,
    const LoadProgress& on_progress,
    std::shared_ptr<const codec::Tokenizer>* tokenizer = nullptr
);

struct ServingWish {
  std::string model_path;
  std::string chat_template;  // file, built-in name, or empty: the model's own
  ComputeWish compute;
  std::int64_t max_model_len = 0;
  std::int64_t kv_pool_bytes = 0;
  KvWish kv;              // without a folder: no store
  engine::Config engine;  // max_model_len and kv_pool_bytes are filled in here, and what kv says
};

struct LoadedModel {
  Compute compute;
  std::shared_ptr<kvstore::DiskStore> store;  // null: none; the engine shares it
  std::shared_ptr<engine::Engine> engine;     // its thread uses compute
  std::shared_ptr<const codec::Tokenizer> tokenizer;
  std::shared_ptr<const codec::ChatTemplate> chat_template;  // null: chat_template_error says why
  std::string chat_template_error;
  // Set: chats are DeepSeek's own encoding's, there is no template.
  std::optional<codec::api::ModelVersion> deepseek;
  std::string fingerprint;
  MemoryPlan plan;
};
// A broken chat template does not fail the load: text completion works without one.
Result<LoadedModel> load_serving(
    ServingWish wish, const LoadProgress& on_progress, engine::Observer observer, const Clock& clock
);

// How a model will be served, as far as memory depends on it.
struct PlanFlags {
  tensor::KvType kv_type = tensor::KvType::kI16;
  bool reference = false;
  int threads = 1;  // of the compute pool
  std::int64_t max_model_len = 0;
  std::int64_t kv_pool_bytes = 0;
  int max_num_seqs = 64;
  int max_num_batched_tokens = 512;
  kvstore::StoreConfig store;  // without a folder: none
};
Result<model::MemoryNeeds> model_needs(const model::ModelFile& file, const PlanFlags& flags);
// From metadata alone, before any weight is read. What the process holds is measured, so the
// tokenizer must be loaded. kOutOfMemory with the numbers and the flag to change.
Result<MemoryPlan> make_plan(
    const model::ModelFile& file, const model::ModelInfo& info, const PlanFlags& flags
);
// From --kv-cache-dtype and --numerics.
Result<tensor::KvType> kv_type_of(const ComputeWish& wish);

// Tokenizer of a model file, also of one without weights. kBadFile, kUnsupported.
Result<std::shared_ptr<const codec::Tokenizer>> load_tokenizer(const model::ModelFile& file);

// The template a user chose (file or built-in name), else the one in the file; kUnsupported when
// there is neither.
Result<std::shared_ptr<const codec::ChatTemplate>> load_chat_template(
    const model::ModelFile* file, const std::string& chosen, codec::TemplateTokens tokens
);
codec::TemplateTokens template_tokens(const codec::Tokenizer& tokenizer);

// Twelve hexadecimal digits that change when and only when the bits of answers can.
std::string fingerprint(std::string_view weights_digest, std::string_view numerics_id);

}  // namespace artery::cli
