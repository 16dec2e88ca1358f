// tokenizer_config.json, special_tokens_map.json and generation_config.json.

#include <cmath>

#include "codec/hf/hf_tokenizer.h"
#include "codec/hf/json_node.h"
#include "codec/hf/tokenizer_spec.h"

namespace artery::codec {
namespace {

namespace json = boost::json;

// "<s>", {"content": "<s>", ...} or null.
Result<std::string> token_text(const JsonNode& node) {
  if (node.missing()) return std::string();
  if (node.is_string()) return std::string(TRY(node.text()));
  if (node.is_object()) return std::string(TRY(node["content"].text()));
  return fail(Code::kBadFile, "{}: expected a string or an object with \"content\"", node.place());
}

Result<> fill_token(const JsonNode& node, std::string& text) {
  if (text.empty()) text = TRY(token_text(node));
  return {};
}

Result<> fill_tokens(const JsonNode& root, HfTokenizerConfig& tokens) {
  TRY(fill_token(root["bos_token"], tokens.bos));
  TRY(fill_token(root["eos_token"], tokens.eos));
  TRY(fill_token(root["pad_token"], tokens.pad));
  TRY(fill_token(root["unk_token"], tokens.unk));
  return {};
}

Result<std::optional<bool>> optional_flag(const JsonNode& node) {
  if (node.missing()) return std::optional<bool>();
  return std::optional<bool>(TRY(node.boolean(false)));
}

Result<std::optional<double>> optional_number(const JsonNode& node) {
  if (node.missing()) return std::optional<double>();
  const double found = TRY(node.number());
  if (!std::isfinite(found)) return fail(Code::kBadFile, "{}: is not finite", node.place());
  return std::optional<double>(found);
}

Result<std::vector<NamedTemplate>> read_templates(const JsonNode& node) {
  std::vector<NamedTemplate> templates;
  if (node.missing()) return templates;
  if (node.is_string()) {
    templates.push_back({"default", std::string(TRY(node.text()))});
    return templates;
  }
  if (!node.is_array())
    return fail(
        Code::kBadFile, "{}: expected a string or a list of names and templates", node.place()
    );
  for (std::size_t i = 0; i < TRY(node.array())->size(); ++i) {
    const JsonNode item = node.at(i);
    templates.push_back(
        {std::string(TRY(item["name"].text())), std::string(TRY(item["template"].text()))}
    );
  }
  return templates;
}

}  // namespace

Result<HfConfigFile> read_tokenizer_config(std::string_view text) {
  const json::value document = TRY(parse_json(text));
  const JsonNode root(&document, "");
  TRY(root.object());
  HfConfigFile config;
  TRY(fill_tokens(root, config.tokens));
  config.tokens.add_bos = TRY(optional_flag(root["add_bos_token"]));
  config.tokens.add_eos = TRY(optional_flag(root["add_eos_token"]));
  config.chat_templates = TRY(read_templates(root["chat_template"]));
  return config;
}

Result<> read_special_tokens_map(std::string_view text, HfTokenizerConfig& tokens) {
  const json::value document = TRY(parse_json(text));
  const JsonNode root(&document, "");
  TRY(root.object());
  return fill_tokens(root, tokens);
}

Result<HfGenerationConfig> read_generation_config(std::string_view text) {
  const json::value document = TRY(parse_json(text));
  const JsonNode root(&document, "");
  TRY(root.object());
  HfGenerationConfig config;
  const JsonNode eos = root["eos_token_id"];
  if (eos.is_array()) {
    for (std::size_t i = 0; i < TRY(eos.array())->size(); ++i)
      config.eos_ids.push_back(static_cast<TokenId>(TRY(eos.at(i).index(kTokensMax))));
  } else if (!eos.missing()) {
    config.eos_ids.push_back(static_cast<TokenId>(TRY(eos.index(kTokensMax))));
  }
  config.do_sample = TRY(optional_flag(root["do_sample"]));
  config.temperature = TRY(optional_number(root["temperature"]));
  config.top_p = TRY(optional_number(root["top_p"]));
  config.min_p = TRY(optional_number(root["min_p"]));
  config.repetition_penalty = TRY(optional_number(root["repetition_penalty"]));
  if (!root["top_k"].missing()) config.top_k = TRY(root["top_k"].index(kTokensMax));
  return config;
}

}  // namespace artery::codec
