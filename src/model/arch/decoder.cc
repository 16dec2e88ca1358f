#include "model/arch/decoder.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "model/arch/decoder_model.h"
#include "model/arch/decoder_tensors.h"
#include "model/arch/decoder_weights.h"
#include "model/format/text.h"

namespace artery::model {
namespace {

constexpr std::size_t kNamesShown = 5;

std::string file_stem(const std::string& path) {
  const std::string file = path.substr(path.find_last_of('/') + 1);
  const auto dot = file.rfind('.');
  return dot == std::string::npos || dot == 0 ? file : file.substr(0, dot);
}

std::string model_name(const ModelFile& file) {
  const auto name = file.get_string("general.name");
  if (!name || name->empty() || !is_utf8(*name)) return file_stem(file.path());
  return std::string(*name);
}

// One warning that names the tensors the model does not use.
void warn_unused(
    const ModelFile& file, std::vector<const TensorInfo*> used, std::vector<std::string>& warnings
) {
  std::ranges::sort(used);
  std::vector<std::string> names;
  for (const TensorInfo& info : file.tensors())
    if (!std::ranges::binary_search(used, &info)) names.push_back(printable(info.name));
  if (names.empty()) return;
  const std::size_t count = names.size();
  if (count > kNamesShown) names.resize(kNamesShown);
  warnings.push_back(fmt::format(
      "{}: {} tensor{} not used: {}{}",
      file.path(),
      count,
      count == 1 ? " is" : "s are",
      fmt::join(names, ", "),
      count > kNamesShown ? ", ..." : ""
  ));
}

// "Q5_0, Q6_K (79 % of the weights)": matrices that are unpacked anew in each step.
std::string slow_types(const std::vector<const TensorInfo*>& used) {
  std::vector<std::string_view> names;
  std::uint64_t slow = 0, all = 0;
  for (const TensorInfo* tensor : used) {
    all += tensor->bytes;
    if (tensor->shape.size() < 2 || tensor::WeightMatrix::is_interleaved(tensor->type)) continue;
    slow += tensor->bytes;
    const std::string_view type = tensor::name(tensor->type);
    if (std::ranges::find(names, type) == names.end()) names.push_back(type);
  }
  if (names.empty()) return {};
  return fmt::format("{} ({} % of the weights)", fmt::join(names, ", "), 100 * slow / all);
}

// Of both kinds of layers; the second is empty where it would be the first again.
Result<RopeTables> rope_tables(
    const DecoderSpec& spec,
    std::int64_t context,
    const tensor::WeightVector& divisors,
    tensor::ComputePool& pool
) {
  RopeTables out;
  out.global = TRY(make_rope_table(spec.rope, context, divisors, pool));
  if (spec.windowed.empty() || spec.window_rope == spec.rope) return out;
  out.window = TRY(make_rope_table(spec.window_rope, context, {}, pool));
  return out;
}

}  // namespace

Result<ModelInfo> check_decoder(const ModelFile& file, const DecoderSpec& spec) {
  const DecoderTensors tensors = TRY(check_decoder_tensors(file, spec));
  ModelInfo info;
  info.architecture = spec.architecture;
  info.name = model_name(file);
  info.vocab_size = spec.vocab;
  info.context_length = spec.context;
  info.embedding_length = spec.embedding;
  info.layers = static_cast<int>(spec.layers);
  info.parameters = tensors.parameters;
  info.weight_bytes = tensors.bytes;
  info.read_bytes_per_token = tensors.read_bytes_per_token;
  info.ops_per_token = 2 * tensors.matrix_elements;
  info.slow_types = slow_types(tensors.used);
  warn_unused(file, tensors.used, info.warnings);
  return info;
}

Result<std::unique_ptr<Model>> load_decoder(
    const ModelFile& file,
    const DecoderSpec& spec,
    ModelInfo info,
    tensor::Backend& backend,
    const LoadOptions& options
) {
  std::uint64_t done = 0;
  const auto total = static_cast<std::uint64_t>(info.weight_bytes);
  auto packed = [&](std::uint64_t bytes) {
    done += bytes;
    if (options.on_progress) options.on_progress(done, total);
  };
  const std::int64_t context = info.context_length;
  DecoderWeights weights = TRY(load_decoder_weights(file, spec, context, backend.pool(), packed));
  auto ropes = rope_tables(spec, context, weights.rope_divisors, backend.pool());
  if (!ropes) return fail(ropes.error().code, "{}: {}", file.path(), ropes.error().message);
  info.weight_bytes = weights.bytes;
  return std::make_unique<Decoder>(
      spec, std::move(info), std::move(weights), ropes.take(), backend, options.kv_type
  );
}

}  // namespace artery::model
