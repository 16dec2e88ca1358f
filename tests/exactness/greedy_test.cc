// Greedy continuations of real models against the float64 truth of golden/models, through the
// engine, several prompts in one batch. The reference path must say the truth's tokens up to the
// first margin below 1e-3; the fast path those of every robust prefix (margins above 0.5).

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <boost/json.hpp>
#include <filesystem>
#include <utility>

#include "base/file_system.h"
#include "subjects.h"

namespace artery::exactness {
namespace {

namespace json = boost::json;

constexpr double kMarginMin = 1e-3;

struct Continuation {
  std::string name;
  std::vector<TokenId> prompt;
  std::vector<TokenId> truth;  // as many tokens as must be equal
};

enum class Wanted { kTruth, kRobust };

std::vector<TokenId> ids(const json::value& array) {
  std::vector<TokenId> out;
  for (const json::value& id : array.as_array()) out.push_back(id.to_number<TokenId>());
  return out;
}

// How many tokens `wanted` asks for of one entry of prompts.json.
std::size_t binding(const json::object& greedy, Wanted wanted) {
  if (wanted == Wanted::kRobust) return greedy.at("robust_prefix").to_number<std::size_t>();
  std::size_t count = 0;
  for (const json::value& margin : greedy.at("margins").as_array()) {
    if (margin.to_number<double>() < kMarginMin) break;
    ++count;
  }
  return count;
}

Result<json::value> read_json(const std::string& path) {
  const std::string text = TRY(system_file_system().read(path, std::size_t{1} << 26));
  return json::parse(text);
}

// Those of at most `tokens_max` prompt tokens, shortest first.
Result<std::vector<Continuation>> continuations(
    const std::string& model, Wanted wanted, std::size_t tokens_max
) {
  const std::string folder = std::string(ARTERY_SOURCE_DIR) + "/../shared/golden/models/" + model;
  std::vector<Continuation> out;
  const json::value prompts = TRY(read_json(folder + "/prompts.json"));
  for (const json::value& entry : prompts.at("prompts").as_array()) {
    const json::object& object = entry.as_object();
    if (!object.contains("greedy")) continue;  // an empty prompt
    const json::object& greedy = object.at("greedy").as_object();
    Continuation one{std::string(object.at("name").as_string()), ids(object.at("ids")), {}};
    one.truth = ids(greedy.at("tokens"));
    one.truth.resize(std::min(one.truth.size(), binding(greedy, wanted)));
    if (!one.truth.empty() && one.prompt.size() <= tokens_max) out.push_back(std::move(one));
  }
  if (wanted == Wanted::kRobust && std::filesystem::exists(folder + "/robust.json")) {
    const json::value robust = TRY(read_json(folder + "/robust.json"));
    for (const json::value& entry : robust.at("prompts").as_array()) {
      Continuation one{fmt::format("robust {}", out.size()), ids(entry.at("ids")), {}};
      const json::object& greedy = entry.at("greedy").as_object();
      one.truth = ids(greedy.at("tokens"));
      one.truth.resize(std::min(one.truth.size(), binding(greedy, wanted)));
      if (one.prompt.size() <= tokens_max) out.push_back(std::move(one));
    }
  }
  std::ranges::sort(out, {}, [](const Continuation& one) {
    return std::pair(one.prompt.size(), one.name);
  });
  return out;
}

struct Numerics {
  std::unique_ptr<tensor::Backend> (*make)(tensor::ComputePool& pool);
  tensor::KvType kv_type;
};
const Numerics kReference = {tensor::make_reference_backend, tensor::KvType::kF64};
const Numerics kFast = {
    [](tensor::ComputePool& pool) { return tensor::make_fast_backend(pool, tensor::best_isa()); },
    tensor::KvType::kI16
};

// Asks for all of them at once.
void expect_tokens(
    const std::string& path, const Numerics& numerics, const std::vector<Continuation>& all
) {
  tensor::ComputePool pool(tensor::default_threads());
  const auto backend = numerics.make(pool);
  const auto file = model::GgufFile::open(path);
  ASSERT_TRUE(file) << file.error().message;
  model::LoadOptions options;
  options.kv_type = numerics.kv_type;
  options.context_max = 2048;
  auto model = model::load_model(**file, *backend, options);
  if (!model) FAIL() << model.error().message;
  engine::Config config;
  config.max_num_batched_tokens = 256;
  const auto engine = engine::make_engine(std::move(*model), config);
  ASSERT_TRUE(engine) << engine.error().message;
  std::vector<std::shared_ptr<engine::EventStream>> streams;
  for (const Continuation& one : all) {
    engine::Request request;
    request.prompt = one.prompt;
    request.max_tokens = std::ssize(one.truth);
    request.sampling.temperature = 0;
    streams.push_back(std::make_shared<engine::EventStream>());
    const auto id = (*engine)->submit(std::move(request), streams.back());
    ASSERT_TRUE(id) << id.error().message;
  }
  std::int64_t compared = 0;
  for (std::size_t i = 0; i < all.size(); ++i) {
    Trace trace(1);
    while (!trace.finished()) {
      if (const auto event = streams[i]->wait(1000)) trace.absorb(*event);
    }
    EXPECT_EQ(trace.choices[0].tokens, all[i].truth) << all[i].name;
    compared += std::ssize(all[i].truth);
  }
  fmt::print("{} prompts, {} tokens compared\n", all.size(), compared);
  EXPECT_GT(compared, 0);
}

void expect_truth(
    const std::string& model, const std::string& file, const Numerics& numerics, std::size_t most
) {
  const std::string path = weights_path(file);
  if (!std::filesystem::exists(path)) GTEST_SKIP() << path << " is not here";
  if (sanitizer_build() && model != "stories260k") {
    GTEST_SKIP() << "left to builds without sanitizers";
  }
  const bool reference = numerics.kv_type == tensor::KvType::kF64;
  const std::size_t tokens_max = run_long_tests() ? 2000 : 120;
  auto all = continuations(model, reference ? Wanted::kTruth : Wanted::kRobust, tokens_max);
  if (!all) GTEST_SKIP() << all.error().message;
  if (!run_long_tests() && all->size() > most) all->resize(most);
  expect_tokens(path, numerics, *all);
}

constexpr const char* kSmolFile = "SmolLM2-135M-Instruct.Q4_1.gguf";
constexpr const char* kGemma = "gemma3";
constexpr const char* kGemmaFile = "gemma-3-270m-q4_k_m.gguf";
constexpr const char* kQwen = "qwen2.5-coder-0.5b";
constexpr const char* kQwenFile = "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf";

TEST(Greedy, ReferenceSaysTheTruthOfStories260K) {
  expect_truth("stories260k", "stories260K.gguf", kReference, 100);
}

TEST(Greedy, ReferenceSaysTheTruthOfSmolLM2) { expect_truth("smollm2", kSmolFile, kReference, 3); }

TEST(Greedy, ReferenceSaysTheTruthOfQwen) {
  if (!run_long_tests()) GTEST_SKIP() << "long: set ARTERY_TEST_LONG=1";
  expect_truth(kQwen, kQwenFile, kReference, 100);
}

TEST(Greedy, FastKeepsRobustPrefixesOfStories260K) {
  expect_truth("stories260k", "stories260K.gguf", kFast, 100);
}

TEST(Greedy, FastKeepsRobustPrefixesOfSmolLM2) { expect_truth("smollm2", kSmolFile, kFast, 100); }

TEST(Greedy, ReferenceSaysTheTruthOfGemma) {
  if (!run_long_tests()) GTEST_SKIP() << "long: set ARTERY_TEST_LONG=1";
  expect_truth(kGemma, kGemmaFile, kReference, 100);
}

TEST(Greedy, FastKeepsRobustPrefixesOfGemma) { expect_truth(kGemma, kGemmaFile, kFast, 8); }

TEST(Greedy, FastKeepsRobustPrefixesOfQwen) {
  if (!run_long_tests()) GTEST_SKIP() << "long: set ARTERY_TEST_LONG=1";
  expect_truth(kQwen, kQwenFile, kFast, 100);
}

}  // namespace
}  // namespace artery::exactness
