#include "subject.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"
#include "engine/kv_pool.h"
#include "load.h"
#include "model/format/open.h"
#include "testing/mem_file_system.h"
#include "testing/seq_random.h"

namespace artery::exactness {
namespace {

using engine::Request;
using engine::SamplingParams;

constexpr std::uint64_t kFamilies = 3;
constexpr std::int64_t kPagesMin = 4;  // an engine serves no context below 64 tokens

// What an engine owns: it hands every forward to the subject's model.
class Borrowed final : public model::Model {
 public:
  Borrowed(model::Model& model, Gate& gate) : model_(model), gate_(gate) {}
  const model::ModelInfo& info() const override { return model_.info(); }
  model::KvLayout kv_layout() const override { return model_.kv_layout(); }
  void forward(const model::ForwardBatch& batch, std::span<float> logits) override {
    gate_.pass();
    model_.forward(batch, logits);
  }

 private:
  model::Model& model_;
  Gate& gate_;
};

std::vector<TokenId> text(std::uint64_t family, int length, std::int64_t vocab) {
  testing::SeqRandom random(family);
  std::vector<TokenId> out;
  for (int i = 0; i < length; ++i) {
    out.push_back(static_cast<TokenId>(random.between(3, vocab - 1)));
  }
  return out;
}

// The ways of choosing that take turns.
void set_sampling(std::size_t index, Request& request) {
  SamplingParams& params = request.sampling;
  params.seed = 77 + index;
  switch (index % 6) {
    case 0:
      params.temperature = 0;
      params.logprobs = 3;
      break;
    case 1:
      params.temperature = 0.8;
      params.top_p = 0.95;
      params.top_k = 50;
      params.logprobs = 2;
      break;
    case 2:
      params.repetition_penalty = 1.3;
      params.presence_penalty = 0.5;
      params.frequency_penalty = 0.4;
      params.logprobs = 0;
      break;
    case 3:
      request.n = 2;
      params.min_p = 0.02;
      params.logprobs = 1;
      break;
    case 4:
      params.temperature = 0.7;
      params.top_p = 0.9;
      params.logprobs = 0;
      request.prompt_logprobs = 1;  // every prompt row's logits; bypasses the cache
      break;
    default:
      params.temperature = 1.3;
      params.logit_bias = {{5, 2.0f}, {9, -1.5f}};
      params.stop_ids = {5, 11, 200};
      params.min_tokens = 3;
      params.logprobs = 0;
  }
}

}  // namespace

std::string describe(const Setting& setting) {
  return fmt::format(
      "{} threads {} chunk {} cache {} pages {} step tokens {} seqs {} step seconds {} "
      "drafts {} store {}",
      tensor::name(setting.isa),
      setting.threads,
      setting.chunk,
      setting.cache,
      setting.pages,
      setting.batched_tokens,
      setting.seqs,
      setting.step_seconds,
      setting.drafts,
      setting.store != nullptr
  );
}

Result<std::unique_ptr<Subject>> Subject::tiny(
    const testing::TinyModelOptions& options, tensor::KvType kv_type
) {
  testing::MemFileSystem files;
  files.add("tiny.gguf", testing::tiny_model(options).bytes());
  const auto file = TRY(model::GgufFile::open("tiny.gguf", files));
  std::unique_ptr<Subject> out(new Subject);  // not make_unique: the constructor is private
  model::LoadOptions load_options;
  load_options.kv_type = kv_type;
  TRY(out->load(*file, load_options));
  return out;
}

Result<std::unique_ptr<Subject>> Subject::file(const std::string& path, std::int64_t context_max) {
  const auto file = TRY(model::open_model(path));
  std::unique_ptr<Subject> out(new Subject);
  model::LoadOptions options;
  options.context_max = context_max;
  TRY(out->load(*file, options));
  return out;
}

Result<void> Subject::load(const model::ModelFile& file, const model::LoadOptions& options) {
  model_ = TRY(model::load_model(file, backend_, options));
  return {};
}

std::unique_ptr<engine::Engine> Subject::start(const Setting& setting, std::int64_t pages) {
  backend_.select(setting.isa, setting.threads);
  engine::Config config;
  config.kv_pool_bytes =
      std::max(pages, kPagesMin) * engine::KvPool::page_bytes(model_->kv_layout());
  config.max_num_seqs = setting.seqs;
  config.max_num_batched_tokens = setting.batched_tokens;
  config.prefill_chunk_max = setting.chunk;
  config.enable_prefix_caching = setting.cache;
  config.step_seconds_max = setting.step_seconds;
  config.cache_secret = "exactness";
  config.store = setting.store;
  config.windows_in_store = setting.windows_in_store;
  config.window_ttl_s = setting.window_ttl_s;
  if (setting.drafts > 0) {
    config.speculation = {
        .mode = engine::SpeculationMode::kAlways, .tokens = setting.drafts, .match_min = 1
    };
  }
  auto made = engine::make_engine(std::make_unique<Borrowed>(*model_, gate_), config);
  CHECK(made.has_value(), "{}", made.error().message);
  return std::move(*made);
}

void Subject::make_questions(const std::vector<int>& lengths, int answer_max) {
  testing::SeqRandom random(9);
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    Request request;
    // The family moves at another pace than the sampling, so that each meets each.
    request.prompt = text(1 + i / 2 % kFamilies, lengths[i], info().vocab_size);
    if (random.chance(0.3)) {
      const auto at = static_cast<std::size_t>(random.between(0, lengths[i] - 1));
      request.prompt[at] = 3 + request.prompt[at] % 50;
    }
    request.max_tokens = random.between(std::max(1, answer_max / 3), answer_max);
    set_sampling(i, request);
    questions_.push_back(std::move(request));
  }
  references_.resize(questions_.size());
}

const Trace& Subject::reference(std::size_t question) {
  std::unique_ptr<Trace>& known = references_.at(question);
  if (known != nullptr) return *known;
  const Request& request = questions_[question];
  Load alone;
  alone.members = {{.question = question}};
  const auto engine = start(Setting{}, pages_of_all(*this, alone));
  known = std::make_unique<Trace>(request.n);
  auto events = std::make_shared<engine::EventStream>();
  const auto id = engine->submit(request, events);
  CHECK(id.has_value(), "{}", id.error().message);
  while (!known->finished()) {
    if (const auto event = events->wait(1000)) known->absorb(*event);
  }
  return *known;
}

}  // namespace artery::exactness
