// Texts to token ids against ../shared/golden/codec/tokenizer.jsonl: DeepSeek's tokenizer with its
// added tokens and, as prompts encode plain stretches, without.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "base/hash.h"
#include "codec/api/json_style.h"
#include "codec/api/json_tree.h"
#include "deepseek_tokenizer.h"

namespace artery::codec {
namespace {

using api::Json;

const std::string kRecord =
    std::string(ARTERY_SOURCE_DIR) + "/../shared/golden/codec/tokenizer.jsonl";

std::string joined(std::span<const TokenId> ids) {
  std::string text;
  for (const TokenId id : ids) text += fmt::format("{}{}", text.empty() ? "" : ",", id);
  return text;
}

std::string digest(const std::vector<TokenId>& ids) {
  const std::string text = joined(ids);
  const std::size_t shown = std::min<std::size_t>(ids.size(), 8);
  return fmt::format(
      R"({{"count":{},"sha256":"{}","first":[{}],"last":[{}]}})",
      ids.size(),
      hex(sha256(std::as_bytes(std::span(text)))),
      joined(std::span(ids).first(shown)),
      joined(std::span(ids).last(shown))
  );
}

std::string text_of(const Json& line) {
  if (const Json* text = line.find("text"); text != nullptr) return std::string(text->text());
  const auto repeat = line.find("repeat")->items();
  std::string text;
  for (std::uint64_t i = 0; i < repeat[1].whole(); ++i) text += repeat[0].text();
  return text;
}

// Whether `ids` are those that the line has under `name`, or have the digest there.
bool equal(const Json& line, std::string_view name, const std::vector<TokenId>& ids) {
  const Json* const wanted = line.find(name);
  if (wanted != nullptr) return api::to_json(*wanted) == fmt::format("[{}]", joined(ids));
  const Json* const wanted_digest = line.find(fmt::format("{}_digest", name));
  return wanted_digest != nullptr && api::to_json(*wanted_digest) == digest(ids);
}

TEST(RecipeTokenizer, EveryTextHasItsTokens) {
  std::ifstream file(kRecord);
  if (!file) GTEST_SKIP() << "no " << kRecord;
  const Tokenizer* const tokenizer = deepseek_tokenizer();
  if (tokenizer == nullptr) GTEST_SKIP() << kNoDeepseekTokenizer;
  std::size_t cases = 0, wrong = 0;
  for (std::string text; std::getline(file, text); ++cases) {
    const auto line = api::JsonTree::parse(text);
    ASSERT_TRUE(line) << line.error();
    const std::string input = text_of(line->root());
    const auto ids = tokenizer->encode(input, {.parse_special = true});
    const auto plain = tokenizer->encode(input, {.no_added = true});
    const bool fits = equal(line->root(), "ids", ids) && equal(line->root(), "plain_ids", plain);
    if (!fits && ++wrong <= 5)
      ADD_FAILURE() << text.substr(0, 1000) << "\n" << joined(ids).substr(0, 500);
  }
  EXPECT_EQ(cases, 973U);
  EXPECT_EQ(wrong, 0U);
}

TEST(RecipeTokenizer, PlainTextNeverBecomesAnAddedToken) {
  const Tokenizer* const tokenizer = deepseek_tokenizer();
  if (tokenizer == nullptr) GTEST_SKIP() << kNoDeepseekTokenizer;
  for (const char* const text : {"<think>", "</think>", "<｜User｜>", "｜DSML｜", "<｜image｜>"}) {
    EXPECT_EQ(tokenizer->encode(text, {.parse_special = true}).size(), 1U) << text;
    const auto ids = tokenizer->encode(text, {.parse_special = true, .no_added = true});
    EXPECT_GT(ids.size(), 1U) << text;
    for (const TokenId id : ids) EXPECT_LT(id, 128'000) << text;
  }
}

}  // namespace
}  // namespace artery::codec
