#include "codec/hf/regex.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace artery::codec {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::vector<std::string> matches(std::string_view pattern, std::string_view text) {
  const auto regex = Regex::compile(pattern);
  if (!regex) return {regex.error().message};
  std::vector<std::string> found;
  EXPECT_TRUE(regex->each_match(text, [&](std::size_t begin, std::size_t end) {
    found.emplace_back(text.substr(begin, end - begin));
  }));
  return found;
}

TEST(Regex, MeansWhatOnigurumaMeans) {
  // U+180E is no white space, \h is a hexadecimal digit, \w has marks, $ is the end of a line.
  EXPECT_THAT(matches(R"(\s)", "a\xE1\xA0\x8E\xE3\x80\x80"), ElementsAre("\xE3\x80\x80"));
  EXPECT_THAT(matches(R"(\h+)", "xyAf9 g"), ElementsAre("Af9"));
  EXPECT_THAT(matches(R"(\w+)", "e\xCC\x81-_"), ElementsAre("e\xCC\x81", "_"));
  EXPECT_THAT(matches("a$", "a\nba"), ElementsAre("a", "a"));
  EXPECT_THAT(matches(R"([\u4e00-\u4e8c]+)", "x\xE4\xB8\x80y"), ElementsAre("\xE4\xB8\x80"));
  EXPECT_THAT(matches(R"(\p{Han}+)", "\xE4\xB8\x80\xE3\x80\x81"), ElementsAre("\xE4\xB8\x80"));
  EXPECT_THAT(matches(R"((?i:'s)|[^\s\p{L}]+(?!x))", "'S!!x"), ElementsAre("'S", "!"));
}

TEST(Regex, RefusesWhatWouldMeanSomethingElse) {
  for (const char* pattern :
       {R"(\p{N}{1,3}+)",
        R"([a&&b])",
        R"([a[bc]])",
        R"((a)\1)",
        R"((?<name>a))",
        R"((*COMMIT)a)",
        R"([^\S])",
        R"((?R))",
        R"(\K)",
        R"(a\)"}) {
    const auto regex = Regex::compile(pattern);
    ASSERT_FALSE(regex) << pattern;
    EXPECT_EQ(regex.error().code, Code::kUnsupported) << pattern;
  }
  EXPECT_THAT(Regex::compile("(a").error().message, HasSubstr("'(a'"));
  EXPECT_FALSE(Regex::compile(std::string(100'000, 'a')));
  EXPECT_FALSE(Regex::compile(std::string(5000, '(') + std::string(5000, ')')));
}

TEST(Regex, InvalidBytesMatchNoLetter) {
  EXPECT_THAT(matches(R"([^\p{L}])", "a\xFF\xE4\xB8"), ElementsAre("\xFF", "\xE4", "\xB8"));
}

TEST(Regex, LongTextsGiveTheSameMatches) {
  std::string text;
  while (text.size() < 5 * Regex::kHardBytes) text += "word  and\n\xE4\xB8\xAD, ";
  std::size_t at = 0;
  const auto regex = Regex::compile(R"(\s+(?!\S)|\s|\p{L}+|[^\s\p{L}]+)");
  ASSERT_TRUE(regex);
  regex->each_match(text, [&](std::size_t begin, std::size_t end) {
    ASSERT_EQ(begin, at);
    at = end;
  });
  EXPECT_EQ(at, text.size());
}

}  // namespace
}  // namespace artery::codec
