#pragma once
// Real vocabularies for tests: from ../shared/models, or from model files under build/models (or
// $ARTERY_MODELS). Each is loaded once per process. Main thread only.

#include <memory>
#include <string>

#include "codec/tokenizer.h"

namespace artery::codec {

// "gpt2", "qwen2", "smollm2", "stories260k", "gemma3", "qwen2.5-coder-0.5b"; "hf/NAME" is the
// tokenizer.json of scripts/fetch-tokenizers. nullptr when the file is not on this machine; a file
// that is there and does not load is a test failure.
const Tokenizer* real_tokenizer(const std::string& name);

// Why real_tokenizer gives nothing.
std::string missing_reason(const std::string& name);

// build/tokenizers/ or $ARTERY_TOKENIZERS, with a slash behind.
std::string tokenizers_folder();

std::string shared_path(const std::string& relative);

}  // namespace artery::codec
