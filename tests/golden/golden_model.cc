#include "golden_model.h"

#include <boost/json.hpp>
#include <cstdlib>
#include <filesystem>

#include "base/file_system.h"
#include "model/format/gguf.h"

namespace artery::golden {
namespace {

namespace fs = std::filesystem;
namespace json = boost::json;

template <typename T>
std::vector<T> integers(const json::value& array) {
  std::vector<T> out;
  for (const json::value& item : array.as_array()) out.push_back(item.to_number<T>());
  return out;
}

Prompt read_prompt(const json::object& entry, const std::string& folder) {
  Prompt prompt;
  prompt.name = entry.at("name").as_string();
  prompt.ids = integers<TokenId>(entry.at("ids"));
  if (const json::value* positions = entry.if_contains("positions"))
    prompt.positions = integers<std::int32_t>(*positions);
  if (const json::value* full = entry.if_contains("full_logits"))
    prompt.full_logits = folder + "/" + std::string(full->as_string());
  return prompt;
}

std::string models_folder() {
  const char* given = std::getenv("ARTERY_MODELS");
  return given != nullptr ? given : std::string(ARTERY_SOURCE_DIR) + "/build/models";
}

}  // namespace

Result<GoldenModel> find_golden_model(const std::string& name, const std::string& weights) {
  GoldenModel out;
  out.folder = std::string(ARTERY_SOURCE_DIR) + "/../shared/golden/models/" + name;
  out.weights = models_folder() + "/" + weights;
  for (const std::string& path : {out.folder + "/prompts.json", out.weights})
    if (!fs::exists(path)) return fail(Code::kNotFound, "{} is not here", path);
  const std::string text =
      TRY(system_file_system().read(out.folder + "/prompts.json", std::size_t{1} << 26));
  const json::value all = json::parse(text);
  for (const json::value& entry : all.at("prompts").as_array()) {
    Prompt prompt = read_prompt(entry.as_object(), out.folder);
    if (!prompt.ids.empty()) out.prompts.push_back(std::move(prompt));
  }
  const json::value& peer = all.at("llama_cpp_vs_truth").at("default_f16_kv");
  out.peer.kl_mean = peer.at("kl_mean").to_number<double>();
  out.peer.kl_p99 = peer.at("kl_p99").to_number<double>();
  out.peer.top1_agreement = peer.at("top1_agreement").to_number<double>();
  return out;
}

bool run_long_tests() {
  const char* set = std::getenv("ARTERY_TEST_LONG");
  return set != nullptr && std::string(set) == "1";
}

std::vector<Prompt> chosen_prompts(const GoldenModel& model, std::size_t tokens_max) {
  std::vector<Prompt> out;
  for (const Prompt& prompt : model.prompts)
    if (prompt.ids.size() <= tokens_max || run_long_tests()) out.push_back(prompt);
  return out;
}

Result<LoadedModel> load_golden(const GoldenModel& golden, Numerics numerics) {
  LoadedModel out;
  const bool reference = numerics == Numerics::kReference;
  out.pool = std::make_unique<tensor::ComputePool>(tensor::default_threads());
  out.backend = reference ? tensor::make_reference_backend(*out.pool)
                          : tensor::make_fast_backend(*out.pool, tensor::best_isa());
  const auto file = TRY(model::GgufFile::open(golden.weights));
  model::LoadOptions options;
  options.kv_type = reference ? tensor::KvType::kF64 : tensor::KvType::kI16;
  options.context_max = 2048;
  out.model = TRY(model::load_model(*file, *out.backend, options));
  return out;
}

Result<ReferenceLogits*> ReferenceLogits::of(const GoldenModel& golden) {
  static std::map<std::string, ReferenceLogits> made;
  const auto found = made.find(golden.weights);
  if (found != made.end()) return &found->second;
  ReferenceLogits fresh;
  fresh.loaded_ = TRY(load_golden(golden, Numerics::kReference));
  fresh.runner_ = TRY(testing::ModelRunner::make(*fresh.loaded_.model, 2048));
  return &made.emplace(golden.weights, std::move(fresh)).first->second;
}

const std::vector<float>& ReferenceLogits::at_all_positions(const Prompt& prompt) {
  std::vector<float>& logits = done_[prompt.name];
  if (logits.empty()) logits = runner_.run_all(prompt.ids, kChunk);
  return logits;
}

}  // namespace artery::golden
