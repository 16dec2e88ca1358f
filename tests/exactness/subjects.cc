#include "subjects.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <map>

namespace artery::exactness {
namespace {

using tensor::DType;
using tensor::KvType;
using testing::TinyModelOptions;

struct Tiny {
  std::string name;
  TinyModelOptions options;
  KvType kv_type = KvType::kI16;
};

// Mixtures of experts of block types; the families below have them in float.
std::vector<Tiny> mixtures() {
  const auto make = [](const char* architecture, DType type, int experts, int used) {
    TinyModelOptions options;
    options.architecture = architecture;
    options.weight_type = type;
    options.feed_forward = 32;
    options.context = 704;
    options.experts = experts;
    options.experts_used = used;
    options.seed = 50 + static_cast<std::uint64_t>(experts);
    return options;
  };
  std::vector<Tiny> out = {
      {"qwen3moe_q4_0", make("qwen3moe", DType::kQ4_0, 9, 3)},
      {"qwen2moe_q8_0", make("qwen2moe", DType::kQ8_0, 5, 2)},
  };
  out[1].options.shared_feed_forward = 64;
  return out;
}

// Widths are odd where the type allows: no multiple of 16 columns, of 64 values a head, of 16 rows.
const std::vector<Tiny>& tiny_models() {
  static const std::vector<Tiny> models = [] {
    const auto make = [](const char* architecture, DType type, int heads, int kv_heads, int dim) {
      TinyModelOptions options;
      options.architecture = architecture;
      options.weight_type = type;
      options.heads = heads;
      options.kv_heads = kv_heads;
      options.head_dim = dim;
      options.embedding = 96;
      options.feed_forward = 160;
      options.context = 704;
      options.seed = 11 + static_cast<std::uint64_t>(type);
      return options;
    };
    std::vector<Tiny> out = {
        {"llama_f32", make("llama", DType::kF32, 3, 3, 20)},
        {"llama_f16", make("llama", DType::kF16, 6, 2, 14)},
        {"qwen2_bf16", make("qwen2", DType::kBF16, 4, 1, 10)},
        {"qwen2_q4_0", make("qwen2", DType::kQ4_0, 6, 2, 16)},
        {"llama_q4_1", make("llama", DType::kQ4_1, 3, 1, 64)},
        {"llama_q8_0", make("llama", DType::kQ8_0, 8, 2, 36)},
        {"qwen2_q8_0_kv_f32", make("qwen2", DType::kQ8_0, 2, 2, 48), KvType::kF32},
        {"llama_q4_1_kv_f16", make("llama", DType::kQ4_1, 4, 2, 40), KvType::kF16},
        {"llama_f16_kv_f32", make("llama", DType::kF16, 4, 1, 22), KvType::kF32},
    };
    for (Tiny& tiny : out) {
      const bool blocks = tensor::traits(tiny.options.weight_type).block_values > 1;
      if (blocks) continue;
      tiny.options.embedding = 58;
      tiny.options.feed_forward = 103;
    }
    out[0].options.tied = true;
    for (Tiny& tiny : mixtures()) out.push_back(std::move(tiny));
    return out;
  }();
  return models;
}

// Around the borders of pages (16), attention blocks (64) and chunks (17, 64, 512).
const std::vector<int> kTinyLengths = {129, 2,   15,  16,  17,  31,  33,  48, 63,
                                       64,  65,  79,  81,  127, 1,   128, 34, 160,
                                       200, 255, 256, 257, 330, 511, 513, 600};
// Of tests/golden/families, with contexts of 256: windows of 16 and 24, with and without layers
// that see everything; experts, sinks, norms of heads.
const std::vector<std::string> kFamilies = {
    "gemma3", "gpt_oss", "gpt_oss_mxfp4", "mistral", "mixtral", "phi3", "qwen3"
};
const std::vector<int> kFamilyLengths = {
    129, 2, 15, 17, 31, 33, 64, 65, 79, 127, 96, 34, 16, 160, 200, 178, 230
};
const std::vector<int> kSmolLengths = {5, 17, 64, 33, 100, 16, 129, 48, 65, 1, 81, 300};
const std::vector<int> kSmolLongLengths = {513, 600, 255, 257, 200, 63};

Result<std::unique_ptr<Subject>> load_smollm2() {
  if (sanitizer_build()) return fail(Code::kUnavailable, "left to builds without sanitizers");
  const std::string path = weights_path("SmolLM2-135M-Instruct.Q4_1.gguf");
  if (!std::filesystem::exists(path)) {
    return fail(Code::kNotFound, "{} is not here (scripts/fetch-model)", path);
  }
  auto out = TRY(Subject::file(path, 704));
  std::vector<int> lengths = kSmolLengths;
  lengths.push_back(kSmolLongLengths[0]);
  if (run_long_tests()) {
    lengths.insert(lengths.end(), kSmolLongLengths.begin() + 1, kSmolLongLengths.end());
  }
  out->make_questions(lengths, 9);
  return out;
}

Result<std::unique_ptr<Subject>> load(const std::string& name) {
  if (name == kSmolLM2) return load_smollm2();
  if (std::ranges::find(kFamilies, name) != kFamilies.end()) {
    auto out =
        TRY(Subject::file(std::string(ARTERY_SOURCE_DIR) + "/tests/golden/families/" + name, 256));
    out->make_questions(kFamilyLengths, 24);
    return out;
  }
  for (const Tiny& tiny : tiny_models()) {
    if (tiny.name != name) continue;
    auto out = TRY(Subject::tiny(tiny.options, tiny.kv_type));
    out->make_questions(kTinyLengths, 24);
    return out;
  }
  return fail(Code::kNotFound, "no model is called {}", name);
}

}  // namespace

bool sanitizer_build() {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  return true;
#elif defined(__has_feature)
  return __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) ||
         __has_feature(memory_sanitizer);
#else
  return false;
#endif
}

bool run_long_tests() {
  const char* set = std::getenv("ARTERY_TEST_LONG");
  return set != nullptr && std::string(set) == "1";
}

const std::vector<std::string>& tiny_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> out;
    for (const Tiny& tiny : tiny_models()) out.push_back(tiny.name);
    out.insert(out.end(), kFamilies.begin(), kFamilies.end());
    return out;
  }();
  return names;
}

Result<Subject*> find_subject(const std::string& name) {
  static std::map<std::string, Result<std::unique_ptr<Subject>>> loaded;
  auto it = loaded.find(name);
  if (it == loaded.end()) it = loaded.emplace(name, load(name)).first;
  if (!it->second) return tl::unexpected<Error>(it->second.error());
  return it->second->get();
}

std::string weights_path(const std::string& file) {
  const char* given = std::getenv("ARTERY_MODELS");
  const std::string folder =
      given != nullptr ? given : std::string(ARTERY_SOURCE_DIR) + "/build/models";
  return folder + "/" + file;
}

std::vector<tensor::Isa> isas() {
  std::vector<tensor::Isa> out;
  for (const auto isa : {tensor::Isa::kScalar, tensor::Isa::kAvx2, tensor::Isa::kAvx512}) {
    if (tensor::supported(isa)) out.push_back(isa);
  }
  return out;
}

}  // namespace artery::exactness
