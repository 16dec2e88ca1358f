#pragma once
// The tokenizer, the chat template and the recommended sampling of a model's folder as released:
// tokenizer.json with tokenizer_config.json, special_tokens_map.json, generation_config.json and
// chat_template.jinja beside it. Reads files, owns nothing; any thread, mostly the loading one.

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "codec/hf/hf_tokenizer.h"
#include "codec/tokenizer.h"

namespace artery::cli {

struct HfTokenizerFiles {
  std::unique_ptr<codec::Tokenizer> tokenizer;
  // chat_template.jinja, else "default" of tokenizer_config.json (or its only one); empty: none.
  std::string chat_template;
  std::string chat_template_place;                   // the file it is from; empty without one
  std::vector<codec::NamedTemplate> more_templates;  // the config's others: "tool_use", "rag"
  codec::HfGenerationConfig generation;
};

// `path`: a folder, or its tokenizer.json. `vocab_size`: rows of the model's embedding, 0 when not
// known. kNotFound without a tokenizer.json; kBadFile and kUnsupported as make_hf_tokenizer says,
// the message beginning with the file's path. The other files may be missing.
Result<HfTokenizerFiles> load_hf_tokenizer(
    const std::string& path,
    std::size_t vocab_size = 0,
    std::vector<std::string>* warnings = nullptr
);

// True for a tokenizer.json, and for a folder that has one.
bool names_hf_tokenizer(const std::string& path);

// The tokenizer of whatever has one: the above, or a model file.
Result<std::shared_ptr<const codec::Tokenizer>> load_any_tokenizer(const std::string& path);

}  // namespace artery::cli
