#include "cli/speculative_config.h"

#include <gtest/gtest.h>

namespace artery::cli {
namespace {

using engine::SpeculationMode;

TEST(SpeculativeConfig, Words) {
  EXPECT_EQ(parse_speculative_config("auto").value().mode, SpeculationMode::kWherePays);
  EXPECT_EQ(parse_speculative_config("off").value().mode, SpeculationMode::kOff);
  EXPECT_EQ(parse_speculative_config("none").value().mode, SpeculationMode::kOff);
}

TEST(SpeculativeConfig, TheFieldsOfVllm) {
  const auto config = parse_speculative_config(
      R"({"method":"ngram","num_speculative_tokens":6,"prompt_lookup_min":2,"prompt_lookup_max":5})"
  );
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->mode, SpeculationMode::kAlways);
  EXPECT_EQ(config->tokens, 6);
  EXPECT_EQ(config->match_min, 2);
  EXPECT_EQ(config->match_max, 5);
  EXPECT_EQ(parse_speculative_config(R"({"method":"ngram"})").value().tokens, 4);
  const auto narrow = parse_speculative_config(R"({"method":"ngram","prompt_lookup_max":2})");
  EXPECT_EQ(narrow.value().match_min, 2);
  const auto wide = parse_speculative_config(R"({"method":"ngram","prompt_lookup_min":40})");
  EXPECT_EQ(wide.value().match_max, 40);
}

TEST(SpeculativeConfig, WrongValuesAreNamed) {
  const std::pair<const char*, const char*> cases[] = {
      {"", "not JSON"},
      {"{", "not JSON"},
      {"[]", "an array"},
      {"{}", "method is missing"},
      {R"({"method":"eagle"})", "\"eagle\""},
      {R"({"method":"ngram","num_speculative_tokens":0})", "num_speculative_tokens is 0"},
      {R"({"method":"ngram","num_speculative_tokens":99})", "1 to 16"},
      {R"({"method":"ngram","num_speculative_tokens":"4"})", "num_speculative_tokens"},
      {R"({"method":"ngram","prompt_lookup_min":5,"prompt_lookup_max":2})", "prompt_lookup_max"},
      {R"({"method":"ngram","tokens":4})", "unknown field tokens"},
  };
  for (const auto& [text, words] : cases) {
    const auto config = parse_speculative_config(text);
    ASSERT_FALSE(config) << text;
    EXPECT_EQ(config.error().field, "--speculative-config");
    EXPECT_NE(config.error().message.find(words), std::string::npos) << config.error().message;
  }
}

}  // namespace
}  // namespace artery::cli
