// `artery inspect`: what is in a model file or a KV store, and whether it is sound.

#include <algorithm>
#include <cmath>

#include "base/clock.h"
#include "base/file_system.h"
#include "cli/hf_tokenizer_loader.h"
#include "cli/model_facts.h"
#include "cli/model_file.h"
#include "cli/options.h"
#include "cli/report.h"
#include "cli/serving.h"
#include "cli/store_text.h"
#include "cli/table.h"
#include "cli/verbs.h"
#include "cli/vocab_loader.h"
#include "codec/stream/detokenizer.h"
#include "codec/tokenizer.h"
#include "engine/kv_pool.h"
#include "kvstore/survey.h"
#include "model/format/gguf.h"
#include "model/format/hf_folder.h"
#include "model/load.h"
#include "tensor/compute_pool.h"
#include "tensor/dtype.h"
#include "tensor/quant/decode.h"

namespace artery::cli {
namespace json = boost::json;
namespace {

constexpr std::size_t kShownBytesMax = 200;
constexpr std::size_t kShownItemsMax = 8;

// Printable text of a string from a file: whole characters, control characters escaped, cut.
std::string shown(std::string_view bytes) {
  codec::Utf8Stream stream;
  const bool cut = bytes.size() > kShownBytesMax;
  std::string text = stream.push(bytes.substr(0, kShownBytesMax));
  if (!cut) text += stream.finish();
  std::string out;
  for (const char c : text) {
    if (c == '\n')
      out += "\\n";
    else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f)
      out += fmt::format("\\x{:02x}", static_cast<unsigned>(c));
    else
      out += c;
  }
  return cut ? fmt::format("{}... ({} bytes)", out, bytes.size()) : out;
}

std::string array_text(const model::GgufArray& array) {
  std::string out = fmt::format("{}[{}]", model::name(array.item_type), array.count);
  if (array.strings.empty()) return out;
  out += ":";
  for (std::size_t i = 0; i < std::min(kShownItemsMax, array.strings.size()); ++i)
    out += " '" + shown(array.strings[i]) + "'";
  return array.strings.size() > kShownItemsMax ? out + " ..." : out;
}

struct ValueText {
  std::string operator()(std::uint64_t v) const { return fmt::format("{}", v); }
  std::string operator()(std::int64_t v) const { return fmt::format("{}", v); }
  std::string operator()(double v) const { return fmt::format("{}", v); }
  std::string operator()(bool v) const { return v ? "true" : "false"; }
  std::string operator()(std::string_view v) const { return shown(v); }
  std::string operator()(const model::GgufArray& v) const { return array_text(v); }
};

struct ValueJson {
  json::value operator()(std::uint64_t v) const { return v; }
  json::value operator()(std::int64_t v) const { return v; }
  json::value operator()(double v) const {
    // JSON has no NaN and no infinity.
    return std::isfinite(v) ? json::value(v) : json::value(fmt::format("{}", v));
  }
  json::value operator()(bool v) const { return v; }
  json::value operator()(std::string_view v) const { return json::value(shown(v)); }
  json::value operator()(const model::GgufArray& v) const { return json::value(array_text(v)); }
};

std::string shape_text(const std::vector<std::int64_t>& shape) {
  std::string out = "[";
  for (const std::int64_t size : shape)
    out += (out.size() > 1 ? ", " : "") + fmt::format("{}", size);
  return out + "]";
}

void file_rows(Table& table, const model::ModelFile& file) {
  table.row("file", file.path());
  const auto* gguf = dynamic_cast<const model::GgufFile*>(&file);
  if (gguf != nullptr)
    table.row("format", file.format(), gguf->version());
  else
    table.row("format", file.format(), json::string(file.format()));
  table.row("size", bytes_text(static_cast<double>(file.file_bytes())), file.file_bytes());
  if (gguf != nullptr)
    table.row("alignment", fmt::format("{}", gguf->alignment()), gguf->alignment());
  json::array parts;
  for (const std::string& part : file.file_names()) {
    if (file.files().size() > 1) table.line(fmt::format("  file {}: {}", parts.size(), part));
    parts.emplace_back(part);
  }
  table.json_only("files", std::move(parts));
  json::array warnings;
  for (const std::string& warning : file.warnings()) {
    table.line("warning: " + warning);
    warnings.emplace_back(warning);
  }
  table.json_only("warnings", std::move(warnings));
}

void metadata_rows(Table& table, const model::ModelFile& file) {
  table.line(fmt::format("\n{} metadata keys", file.metadata().size()));
  json::object all;
  for (const model::GgufKey& key : file.metadata()) {
    const std::string name = shown(key.key);
    table.line(fmt::format(
        "  {:<44}{:<9}{}",
        name,
        model::name(key.value.type),
        std::visit(ValueText{}, key.value.value)
    ));
    all[name] = std::visit(ValueJson{}, key.value.value);
  }
  table.json_only("metadata", std::move(all));
}

// What a folder calls the tensor itself, where that differs.
std::string origin(const model::TensorInfo& tensor) {
  std::string out;
  if (!tensor.source.empty()) out += " from " + shown(tensor.source);
  const bool other_type = tensor.source_type != tensor::name(tensor.type);
  if (!tensor.source_type.empty() && other_type) out += " " + tensor.source_type;
  return out;
}

void tensor_rows(Table& table, const model::ModelFile& file) {
  table.line(fmt::format("\n{} tensors", file.tensors().size()));
  const bool many = file.files().size() > 1;
  json::array all;
  std::map<std::string_view, std::pair<int, std::uint64_t>> by_type;
  for (const model::TensorInfo& tensor : file.tensors()) {
    const std::string_view type = tensor::name(tensor.type);
    table.line(fmt::format(
        "  {:<36}{:<9}{:<22}{:>12} at {}{}{}",
        shown(tensor.name),
        type,
        shape_text(tensor.shape),
        tensor.bytes,
        tensor.offset,
        many ? fmt::format(" of file {}", tensor.file) : "",
        origin(tensor)
    ));
    all.push_back({
        {"name", shown(tensor.name)},
        {"type", json::string_view(type.data(), type.size())},
        {"shape", json::value_from(tensor.shape)},
        {"bytes", tensor.bytes},
        {"offset", tensor.offset},
        {"file", tensor.file},
    });
    if (!tensor.source.empty()) all.back().as_object()["source"] = shown(tensor.source);
    if (!tensor.source_type.empty()) all.back().as_object()["source_type"] = tensor.source_type;
    auto& [count, bytes] = by_type[type];
    ++count;
    bytes += tensor.bytes;
  }
  table.json_only("tensors", std::move(all));
  for (const auto& [type, sum] : by_type)
    table.line(fmt::format(
        "  {}: {} tensors, {}", type, sum.first, bytes_text(static_cast<double>(sum.second))
    ));
}

// The first value of a tensor that is not finite; -1 when all are.
Result<std::int64_t> first_bad_value(
    const model::ModelFile& file, const model::TensorInfo& tensor
) {
  if (!tensor::traits(tensor.type).is_weight || tensor.shape.empty()) return -1;
  std::vector<std::byte> scratch;
  std::vector<float> row(static_cast<std::size_t>(tensor.cols()));
  std::int64_t at = 0;
  for (std::int64_t r = 0; r < tensor.rows(); ++r) {
    tensor::quant::decode_row(tensor.type, TRY(file.rows(tensor, r, 1, scratch)), row);
    for (const float value : row) {
      if (!std::isfinite(value)) return at;
      ++at;
    }
  }
  return -1;
}

Result<> check_values(const model::ModelFile& file) {
  for (const model::TensorInfo& tensor : file.tensors()) {
    const std::int64_t at = TRY(first_bad_value(file, tensor));
    if (at >= 0)
      return fail(
          Code::kBadFile,
          "{}: tensor {} has a value that is NaN or infinite, the first at index {}",
          file.path(),
          shown(tensor.name),
          at
      );
  }
  return {};
}

// Builds the tokenizer, to see that it can be built; its number of tokens.
Result<std::size_t> check_vocabulary(
    const model::ModelFile& file, const model::ModelInfo& info, std::vector<std::string>& warnings
) {
  if (!file.folder().empty()) {
    const auto rows = static_cast<std::size_t>(info.vocab_size);
    HfTokenizerFiles files = TRY(load_hf_tokenizer(file.folder(), rows, &warnings));
    return files.tokenizer->vocab().tokens.size();
  }
  codec::VocabData vocab = TRY(load_vocab(file, &warnings));
  const std::size_t tokens = vocab.tokens.size();
  TRY(codec::Tokenizer::make(std::move(vocab)));
  return tokens;
}

// As `serve` keeps it unless told otherwise.
Result<> kv_row(Table& table, const model::ModelFile& file) {
  const model::KvLayout layout = TRY(model_needs(file, {})).kv;
  const std::int64_t bytes =
      engine::KvPool::page_bytes(layout, model::KvKind::kGlobal) / kPageTokens;
  table.row(
      "kv bytes per token",
      fmt::format(
          "{}, with --kv-cache-dtype {}, in records of up to {} pages",
          bytes,
          tensor::name(layout.groups.front().geometry.type),
          layout.record_pages
      ),
      bytes
  );
  return {};
}

// Everything `serve` would refuse the file for.
Result<> check_file(Table& table, const model::ModelFile& file, bool values) {
  const model::ModelInfo info = TRY(model::check_model(file));
  std::vector<std::string> said_by_check_model;
  const std::size_t tokens = TRY(check_vocabulary(file, info, said_by_check_model));
  table.line("");
  table.row("tokens", fmt::format("{}", tokens), tokens);
  for (const std::string& warning : info.warnings) table.line("warning: " + warning);
  if (!info.slow_types.empty()) table.line("note: " + slow_types_advice(info));
  table.row("parameters", fmt::format("{}", info.parameters), info.parameters);
  table.row("context", fmt::format("{}", info.context_length), info.context_length);
  TRY(kv_row(table, file));
  if (values) TRY(check_values(file));
  table.row("verdict", values ? "sound, all values finite" : "sound");
  return {};
}

// Hashing reads the whole file, so not of large ones.
void digest_row(Table& table, const model::ModelFile& file) {
  constexpr std::uint64_t kHashedMax = std::uint64_t{1} << 30;
  if (file.file_bytes() > kHashedMax) return;
  tensor::ComputePool pool(tensor::default_threads());
  table.row("digest", model::weights_digest(file, cache_folder(), pool));
}

Result<int> inspect_store(const Options& options, const std::string& folder) {
  const std::int64_t now_s = system_clock().unix_ms() / 1000;
  const kvstore::Survey survey = TRY(kvstore::survey_store(folder, system_file_system(), now_s));
  Table table;
  store_rows(table, survey, now_s);
  table.print(options.on("json"));
  return survey.troubles.empty() ? kExitDone : kExitBadFile;
}

Result<int> run_inspect(const Options& options) {
  const std::string path = TRY(options.require("model"));
  if (kvstore::is_store_folder(path, system_file_system())) return inspect_store(options, path);
  const std::unique_ptr<model::ModelFile> file = TRY(open_model_file(path));
  Table table;
  file_rows(table, *file);
  metadata_rows(table, *file);
  tensor_rows(table, *file);
  if (dynamic_cast<const model::BareSafetensors*>(file.get()) != nullptr) {
    table.row("verdict", "a sound safetensors file; no model without config.json beside it");
    table.print(options.on("json"));
    return kExitDone;
  }
  digest_row(table, *file);
  const Result<> checked = check_file(table, *file, options.on("check-values"));
  if (!checked) table.row("verdict", "refused: " + checked.error().message);
  table.print(options.on("json"));
  if (!checked) return tl::unexpected<Error>(checked.error());
  return kExitDone;
}

}  // namespace

Verb inspect_verb() {
  Flag file = model_flag();
  file.value_name = "FILE";
  file.help = "a GGUF or safetensors file, a folder of such, or a KV store's folder";
  return {
      "inspect",
      "what is in a model file or a KV store's folder; exit code 3 when it is bad",
      "artery inspect model.gguf\n"
      "artery inspect ~/.cache/artery/kv --json",
      {
          file,
          {.name = "check-values",
           .kind = FlagKind::kSwitch,
           .fallback = "false",
           .help = "also read all weights and look for NaN and infinity",
           .in_config = false},
          json_flag(),
      },
      run_inspect,
  };
}

}  // namespace artery::cli
