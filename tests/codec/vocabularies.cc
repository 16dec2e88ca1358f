#include "vocabularies.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include "cli/vocab_loader.h"
#include "codec/hf/hf_tokenizer.h"
#include "model/format/gguf.h"

namespace artery::codec {
namespace {

std::string models_path(const std::string& file) {
  const char* folder = std::getenv("ARTERY_MODELS");
  const std::string base = folder != nullptr ? folder : ARTERY_SOURCE_DIR "/build/models";
  return base + "/" + file;
}

std::string path_of(const std::string& name) {
  if (name.starts_with("hf/")) return tokenizers_folder() + name.substr(3) + "/tokenizer.json";
  static const std::map<std::string, std::string> paths = {
      {"gpt2", shared_path("models/ggml-vocab-gpt-2.gguf")},
      {"qwen2", shared_path("models/ggml-vocab-qwen2.gguf")},
      {"smollm2", models_path("SmolLM2-135M-Instruct.Q4_1.gguf")},
      {"stories260k", models_path("stories260K.gguf")},
      {"gemma3", models_path("gemma-3-270m-q4_k_m.gguf")},
      {"qwen2.5-coder-0.5b", models_path("qwen2.5-coder-0.5b-instruct-q4_k_m.gguf")},
  };
  return paths.at(name);
}

std::string read_file(const std::string& path) {
  std::stringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

std::unique_ptr<Tokenizer> load_json(const std::string& path) {
  const std::string config_path = path.substr(0, path.rfind('/')) + "/tokenizer_config.json";
  auto config = read_tokenizer_config(read_file(config_path));
  if (!config) {
    ADD_FAILURE() << config_path << ": " << config.error().message;
    return nullptr;
  }
  auto made = make_hf_tokenizer(read_file(path), config->tokens);
  if (!made) {
    ADD_FAILURE() << path << ": " << made.error().message;
    return nullptr;
  }
  return made.take();
}

std::unique_ptr<Tokenizer> load(const std::string& path) {
  if (path.ends_with(".json")) return load_json(path);
  auto file = model::GgufFile::open(path);
  if (!file) {
    ADD_FAILURE() << file.error().message;
    return nullptr;
  }
  auto data = cli::load_vocab(**file);
  if (!data) {
    ADD_FAILURE() << data.error().message;
    return nullptr;
  }
  auto made = Tokenizer::make(data.take());
  if (!made) {
    ADD_FAILURE() << made.error().message;
    return nullptr;
  }
  return made.take();
}

}  // namespace

std::string tokenizers_folder() {
  const char* folder = std::getenv("ARTERY_TOKENIZERS");
  return folder != nullptr ? std::string(folder) + "/" : ARTERY_SOURCE_DIR "/build/tokenizers/";
}

std::string shared_path(const std::string& relative) {
  return std::string(ARTERY_SOURCE_DIR "/../shared/") + relative;
}

const Tokenizer* real_tokenizer(const std::string& name) {
  static std::map<std::string, std::unique_ptr<Tokenizer>> loaded;
  const std::string path = path_of(name);
  if (!std::filesystem::exists(path)) return nullptr;
  if (!loaded.contains(name)) loaded[name] = load(path);
  return loaded[name].get();
}

std::string missing_reason(const std::string& name) { return path_of(name) + " is not here"; }

}  // namespace artery::codec
