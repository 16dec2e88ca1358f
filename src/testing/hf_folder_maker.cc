#include "testing/hf_folder_maker.h"

#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <map>

#include "base/check.h"

namespace artery::testing {
namespace {

const std::map<std::string, std::string, std::less<>> kTop = {
    {"token_embd", "model.embed_tokens"},
    {"output_norm", "model.norm"},
    {"output", "lm_head"},
};
const std::map<std::string, std::string, std::less<>> kLayer = {
    {"attn_norm", "input_layernorm"},
    {"attn_q", "self_attn.q_proj"},
    {"attn_k", "self_attn.k_proj"},
    {"attn_v", "self_attn.v_proj"},
    {"attn_output", "self_attn.o_proj"},
    {"ffn_norm", "post_attention_layernorm"},
    {"ffn_gate", "mlp.gate_proj"},
    {"ffn_up", "mlp.up_proj"},
    {"ffn_down", "mlp.down_proj"},
};

// "blk.3.attn_q.weight" to "model.layers.3.self_attn.q_proj.weight".
std::string source_name(const std::string& name) {
  const std::size_t end = name.rfind('.');
  std::string_view base = std::string_view(name).substr(0, end);
  const std::string_view kind = std::string_view(name).substr(end);
  if (!base.starts_with("blk.")) return fmt::format("{}{}", kTop.at(std::string(base)), kind);
  base.remove_prefix(4);
  const std::size_t dot = base.find('.');
  return fmt::format(
      "model.layers.{}.{}{}",
      base.substr(0, dot),
      kLayer.at(std::string(base.substr(dot + 1))),
      kind
  );
}

// Rows that hold pairs side by side, back to two halves of a head.
std::string halves_again(std::string_view data, std::int64_t rows, std::int64_t head) {
  const auto bytes = data.size() / static_cast<std::size_t>(rows);
  std::string out(data.size(), '\0');
  for (std::int64_t r = 0; r < rows; ++r) {
    const std::int64_t in_head = r % head;
    const std::int64_t to = r - in_head + (in_head % 2) * (head / 2) + in_head / 2;
    out.replace(
        static_cast<std::size_t>(to) * bytes,
        bytes,
        data.substr(static_cast<std::size_t>(r) * bytes, bytes)
    );
  }
  return out;
}

void make_config(const model::ModelFile& gguf, const std::string& type, HfFolderFiles& out) {
  constexpr std::pair<const char*, const char*> kCounts[] = {
      {"num_hidden_layers", "block_count"},
      {"hidden_size", "embedding_length"},
      {"intermediate_size", "feed_forward_length"},
      {"num_attention_heads", "attention.head_count"},
      {"num_key_value_heads", "attention.head_count_kv"},
      {"max_position_embeddings", "context_length"},
      {"head_dim", "attention.key_length"},
  };
  out.set("model_type", fmt::format("\"{}\"", type));
  for (const auto& [to, from] : kCounts) {
    const auto value = gguf.get_unsigned(fmt::format("{}.{}", type, from));
    if (value) out.set(to, fmt::format("{}", *value));
  }
  out.set("vocab_size", fmt::format("{}", gguf.find("token_embd.weight")->shape[1]));
  const double eps = gguf.get_float(type + ".attention.layer_norm_rms_epsilon").value();
  out.set("rms_norm_eps", fmt::format("{}", eps));
  const auto base = gguf.get_float(type + ".rope.freq_base");
  out.set("rope_theta", fmt::format("{}", base ? *base : 10000.0));
  const bool tied = gguf.find("output.weight") == nullptr;
  out.set("tie_word_embeddings", tied ? "true" : "false");
}

}  // namespace

HfFolderFiles to_hf_folder(const model::ModelFile& gguf) {
  HfFolderFiles out;
  const std::string type(gguf.get_string("general.architecture").value());
  CHECK(type == "llama" || type == "qwen2");
  make_config(gguf, type, out);
  const auto heads =
      static_cast<std::int64_t>(gguf.get_unsigned(type + ".attention.head_count").value());
  const std::int64_t head_dim = gguf.find("blk.0.attn_q.weight")->shape[1] / heads;
  std::vector<std::byte> scratch;
  for (const model::TensorInfo& tensor : gguf.tensors()) {
    const auto raw = gguf.rows(tensor, 0, tensor.rows(), scratch).value();
    std::string data(reinterpret_cast<const char*>(raw.data()), raw.size());
    const bool turned = tensor.name.find(".attn_q.") != std::string::npos ||
                        tensor.name.find(".attn_k.") != std::string::npos;
    const std::int64_t rows = tensor.shape.size() == 1 ? tensor.shape[0] : tensor.shape[1];
    if (turned && type == "llama") data = halves_again(data, rows, head_dim);
    out.tensors.set(
        source_name(tensor.name),
        tensor::name(tensor.type),
        {tensor.shape.rbegin(), tensor.shape.rend()},
        std::move(data)
    );
  }
  return out;
}

void HfFolderFiles::set(std::string_view key, std::string_view json) {
  std::erase_if(config, [&](const auto& member) { return member.first == key; });
  if (!json.empty()) config.emplace_back(key, json);
}

std::string HfFolderFiles::config_text() const {
  std::string out;
  for (const auto& [key, value] : config)
    out += fmt::format("{}\"{}\": {}", out.empty() ? "{" : ",\n ", key, value);
  return out + "}\n";
}

void HfFolderFiles::add_to(MemFileSystem& files, const std::string& folder, int shards) const {
  files.add(folder + "/config.json", config_text());
  tensors.add_to(files, folder, shards);
}

Result<> HfFolderFiles::write_to(const std::string& folder, int shards) const {
  std::error_code why;
  std::filesystem::create_directories(folder, why);
  std::ofstream file(folder + "/config.json", std::ios::binary);
  file << config_text();
  file.close();
  if (!file) return fail(Code::kIo, "{}/config.json: cannot be written", folder);
  return tensors.write_to(folder, shards);
}

}  // namespace artery::testing
