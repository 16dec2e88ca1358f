#include "model/registry.h"

#include <fmt/format.h>

#include <array>
#include <utility>

#include "model/arch/decoder.h"
#include "model/arch/decoder_needs.h"
#include "model/arch/families.h"
#include "model/format/text.h"

namespace artery::model {
namespace {

template <Result<DecoderSpec> (*spec)(const ModelFile&)>
Result<ModelInfo> check(const ModelFile& file) {
  return check_decoder(file, TRY(spec(file)));
}

template <Result<DecoderSpec> (*spec)(const ModelFile&)>
Result<std::unique_ptr<Model>> load(
    const ModelFile& file, ModelInfo info, tensor::Backend& backend, const LoadOptions& options
) {
  return load_decoder(file, TRY(spec(file)), std::move(info), backend, options);
}

template <Result<DecoderSpec> (*spec)(const ModelFile&)>
Result<MemoryNeeds> needs(const ModelFile& file, const NeedsWish& wish) {
  return decoder_needs(file, TRY(spec(file)), wish);
}

constexpr std::array kArchitectures = {
    Architecture{"gemma3", check<gemma3_spec>, load<gemma3_spec>, needs<gemma3_spec>},
    Architecture{"gpt-oss", check<gpt_oss_spec>, load<gpt_oss_spec>, needs<gpt_oss_spec>},
    Architecture{"llama", check<llama_spec>, load<llama_spec>, needs<llama_spec>},
    Architecture{"phi3", check<phi3_spec>, load<phi3_spec>, needs<phi3_spec>},
    Architecture{"qwen2", check<qwen2_spec>, load<qwen2_spec>, needs<qwen2_spec>},
    Architecture{"qwen2moe", check<qwen2moe_spec>, load<qwen2moe_spec>, needs<qwen2moe_spec>},
    Architecture{"qwen3", check<qwen3_spec>, load<qwen3_spec>, needs<qwen3_spec>},
    Architecture{"qwen3moe", check<qwen3moe_spec>, load<qwen3moe_spec>, needs<qwen3moe_spec>},
};

}  // namespace

std::span<const Architecture> architectures() { return kArchitectures; }

Result<const Architecture*> find_architecture(const ModelFile& file) {
  if (file.find_key("general.architecture") == nullptr)
    return fail(Code::kBadFile, "{}: general.architecture is missing", file.path());
  const std::string_view name = TRY(file.get_string("general.architecture"));
  if (!is_utf8(name)) {
    return fail(
        Code::kBadFile,
        "{}: general.architecture is not valid UTF-8: '{}'",
        file.path(),
        printable(name)
    );
  }
  for (const Architecture& known : kArchitectures)
    if (known.name == name) return &known;
  return fail(
      Code::kUnsupported,
      "{}: unknown architecture '{}' (supported: {})",
      file.path(),
      printable(name),
      fmt::join(supported_architectures(), ", ")
  );
}

std::vector<std::string> supported_architectures() {
  std::vector<std::string> names;
  for (const Architecture& known : kArchitectures) names.emplace_back(known.name);
  return names;
}

}  // namespace artery::model
