#include "deepseek_tokenizer.h"

#include <cstdlib>
#include <fstream>
#include <iterator>

#include "codec/hf/hf_tokenizer.h"

namespace artery::codec {

std::string deepseek_tokenizer_json() {
  const char* const folder = std::getenv("ARTERY_MODELS");
  const std::string models =
      folder != nullptr ? folder : std::string(ARTERY_SOURCE_DIR) + "/build/models";
  std::ifstream file(models + "/deepseek-v4-tokenizer.json", std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  // Token 128799, the name V4.1 gives it.
  const std::string_view old_name = "<｜place▁holder▁no▁799｜>", name = "<｜System｜>";
  const std::size_t at = text.find(old_name);
  if (at == text.npos) return {};
  return text.replace(at, old_name.size(), name);
}

const Tokenizer* deepseek_tokenizer() {
  static const std::unique_ptr<const Tokenizer> kTokenizer = [] {
    auto made = make_hf_tokenizer(deepseek_tokenizer_json(), {});
    return made ? made.take() : nullptr;
  }();
  return kTokenizer.get();
}

}  // namespace artery::codec
