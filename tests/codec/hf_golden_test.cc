// Tokenizers made from a tokenizer.json against ../shared/golden/models/tokenizers: the families
// that have ids only (hf-only/), and the form of those vocabularies that a GGUF has too. The files
// are those of scripts/fetch-tokenizers.

#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "codec/hf/hf_tokenizer.h"
#include "codec/tokenizer.h"
#include "vocabularies.h"

namespace artery::codec {
namespace {

namespace json = boost::json;

std::string folder() { return shared_path("golden/models/tokenizers/"); }

std::vector<json::object> read_rows(const std::string& path) {
  std::ifstream file(path);
  std::vector<json::object> rows;
  for (std::string line; std::getline(file, line);) rows.push_back(json::parse(line).as_object());
  return rows;
}

std::vector<TokenId> ids_of(const json::value& value) {
  const json::value& list = value.is_object() ? value.at("ids") : value;
  std::vector<TokenId> ids;
  for (const json::value& id : list.as_array()) ids.push_back(json::value_to<TokenId>(id));
  return ids;
}

struct Case {
  const char* tokenizer;
  const char* rows;
};

class HfGolden : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    const std::string name = std::string("hf/") + GetParam().tokenizer;
    tokenizer_ = real_tokenizer(name);
    if (HasFailure()) FAIL();
    if (tokenizer_ == nullptr) GTEST_SKIP() << missing_reason(name);
    if (!std::filesystem::exists(folder())) GTEST_SKIP() << folder() << " is not here";
  }
  // Of hf-only the texts are those of the same number in another file.
  static std::map<std::int64_t, std::string> texts() {
    std::map<std::int64_t, std::string> found;
    for (const json::object& row : read_rows(folder() + "smollm2.jsonl"))
      found[row.at("n").as_int64()] = std::string(row.at("text").as_string());
    return found;
  }

  const Tokenizer* tokenizer_ = nullptr;
};

TEST_P(HfGolden, EncodesAsTheLibrary) {
  const auto rows = read_rows(folder() + GetParam().rows);
  ASSERT_EQ(rows.size(), 729U);
  const auto others = texts();
  for (const json::object& row : rows) {
    const std::string text = row.contains("text") ? std::string(row.at("text").as_string())
                                                  : others.at(row.at("n").as_int64());
    const auto plain = ids_of(row.at("plain"));
    const auto special = row.contains("special") ? ids_of(row.at("special")) : plain;
    EXPECT_EQ(tokenizer_->encode(text, {}), plain) << row.at("n") << " " << json::string(text);
    EXPECT_EQ(tokenizer_->encode(text, {.plain = true}), plain) << row.at("n");
    EXPECT_EQ(tokenizer_->encode(text, {.parse_special = true}), special)
        << row.at("n") << " " << json::string(text);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Tokenizers,
    HfGolden,
    testing::Values(
        Case{"llama3_1", "hf-only/llama3_1.jsonl"},
        Case{"qwen3", "hf-only/qwen3.jsonl"},
        Case{"gptoss", "hf-only/gptoss.jsonl"},
        Case{"deepseek_v3", "hf-only/deepseek_v3.jsonl"},
        Case{"gemma3", "gemma3.jsonl"}
    ),
    [](const auto& param) { return std::string(param.param.tokenizer); }
);

}  // namespace
}  // namespace artery::codec
