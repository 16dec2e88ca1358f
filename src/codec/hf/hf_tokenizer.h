#pragma once
// Tokenizers from a Hugging Face tokenizer.json, and what the files beside it say of special
// tokens. Pure functions of texts, any thread; the tokenizers made are immutable. Ids are those of
// the `tokenizers` library (0.23) but for one rule of ours: a token that looks like a control token
// (<|...|>, <unused1>, ...) is one, whatever the file calls it, so that ordinary text never becomes
// it. Never reads a file.

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "codec/tokenizer.h"

namespace artery::codec {

// What a model's folder says of its tokenizer outside tokenizer.json.
struct HfTokenizerConfig {
  // Texts of special tokens; empty: not named. One that is no token is ignored, with a warning.
  std::string bos = {}, eos = {}, pad = {}, unk = {};
  // Whether BOS and EOS are put around a text; without a value the post-processor of tokenizer.json
  // says it.
  std::optional<bool> add_bos = {}, add_eos = {};
  std::vector<TokenId> end_of_generation = {};  // beside EOS and the known end tokens
  // Rows of the model's embedding; 0: not known. Missing tokens are filled up as unused; added
  // tokens beyond it are left out; any other token beyond it is an error.
  std::size_t vocab_size = 0;
};

// `tokenizer_json`: the file's text, at most 512 MiB. kBadFile: not JSON, or it contradicts itself
// or `config.vocab_size`; kUnsupported: a part of the pipeline that this build lacks. Messages
// begin with the place in the file, not with its path. What is odd but harmless is one line each in
// `warnings`, or in the log without one.
Result<std::unique_ptr<Tokenizer>> make_hf_tokenizer(
    std::string_view tokenizer_json,
    const HfTokenizerConfig& config,
    std::vector<std::string>* warnings = nullptr
);

struct NamedTemplate {
  std::string name, source;
};

// tokenizer_config.json.
struct HfConfigFile {
  HfTokenizerConfig tokens;
  std::vector<NamedTemplate> chat_templates;  // one without a list of names is called "default"
};

// kBadFile: not JSON, or a field of an unknown shape, which is named.
Result<HfConfigFile> read_tokenizer_config(std::string_view json);

// special_tokens_map.json: fills the texts that `tokens` lacks. kBadFile as above.
Result<> read_special_tokens_map(std::string_view json, HfTokenizerConfig& tokens);

// generation_config.json: the sampling that the model's makers recommend; what it does not say is
// empty.
struct HfGenerationConfig {
  std::vector<TokenId> eos_ids;
  std::optional<bool> do_sample;
  std::optional<double> temperature, top_p, min_p, repetition_penalty;
  std::optional<std::int64_t> top_k;
};
Result<HfGenerationConfig> read_generation_config(std::string_view json);

}  // namespace artery::codec
