#include "codec/bpe/pre_tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <string>
#include <vector>

#include "codec/bpe/word_scanner.h"
#include "codec/hf/regex.h"

namespace artery::codec {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::vector<std::string> words(SplitRule rule, std::string_view text) {
  std::vector<std::string_view> views;
  split_words(rule, text, views);
  return {views.begin(), views.end()};
}

TEST(SplitWords, Gpt2) {
  EXPECT_THAT(words(SplitRule::kGpt2, "I'm  here."), ElementsAre("I", "'m", " ", " here", "."));
  EXPECT_THAT(words(SplitRule::kGpt2, "I'M 12a"), ElementsAre("I", "'", "M", " 12", "a"));
  EXPECT_THAT(words(SplitRule::kGpt2, "a \n\n b  "), ElementsAre("a", " \n\n", " b", "  "));
  EXPECT_THAT(words(SplitRule::kGpt2, "a\tb"), ElementsAre("a", "\t", "b"));
  EXPECT_THAT(words(SplitRule::kGpt2, " 's"), ElementsAre(" '", "s"));
  EXPECT_THAT(words(SplitRule::kGpt2, "we'll've"), ElementsAre("we", "'ll", "'ve"));
}

TEST(SplitWords, SmolLmTakesEveryDigitAlone) {
  EXPECT_THAT(words(SplitRule::kSmolLm, "a 123"), ElementsAre("a", " ", "1", "2", "3"));
  EXPECT_THAT(words(SplitRule::kSmolLm, "a  1  b"), ElementsAre("a", "  ", "1", " ", " b"));
}

TEST(SplitWords, Qwen2) {
  EXPECT_THAT(words(SplitRule::kQwen2, "I'M 12"), ElementsAre("I", "'M", " ", "1", "2"));
  EXPECT_THAT(words(SplitRule::kQwen2, "(a)\n\nb"), ElementsAre("(a", ")\n\n", "b"));
  EXPECT_THAT(words(SplitRule::kQwen2, "a \n \n  b"), ElementsAre("a", " \n \n", " ", " b"));
  EXPECT_THAT(words(SplitRule::kQwen2, "\na \t!"), ElementsAre("\n", "a", " ", "\t", "!"));
  EXPECT_THAT(words(SplitRule::kQwen2, "\tx ?!\r\n"), ElementsAre("\tx", " ?!\r\n"));
  EXPECT_THAT(words(SplitRule::kQwen2, "x'\xC5\xBFy"), ElementsAre("x", "'\xC5\xBF", "y"));
}

TEST(SplitWords, Llama3TakesThreeDigits) {
  EXPECT_THAT(words(SplitRule::kLlama3, "1234567 8"), ElementsAre("123", "456", "7", " ", "8"));
}

TEST(SplitWords, DefaultCutsInPasses) {
  EXPECT_THAT(
      words(SplitRule::kDefault, "a $1234,x"), ElementsAre("a", " ", "$", "123", "4", ",", "x")
  );
  EXPECT_THAT(words(SplitRule::kDefault, "it's"), ElementsAre("it", "'", "s"));
  EXPECT_THAT(words(SplitRule::kDefault, "n 12"), ElementsAre("n", " ", "12"));
}

TEST(SplitWords, InvalidBytesAreOfClassOther) {
  EXPECT_THAT(words(SplitRule::kGpt2, "a\xFF\xFE b"), ElementsAre("a", "\xFF\xFE", " b"));
  EXPECT_THAT(words(SplitRule::kQwen2, "\xE4\xB8"), ElementsAre("\xE4\xB8"));
}

constexpr SplitRule kRules[] = {
    SplitRule::kGpt2,
    SplitRule::kSmolLm,
    SplitRule::kQwen2,
    SplitRule::kLlama3,
    SplitRule::kO200k,
    SplitRule::kTekken,
    SplitRule::kDeepSeekV3,
    SplitRule::kDefault,
};

std::vector<std::string> scanned(SplitRule rule, std::string_view text) {
  std::vector<std::string> out;
  for_each_word(rule, text, [&](std::string_view word) { out.emplace_back(word); });
  return out;
}

TEST(SplitWords, JoinedTheyAreTheText) {
  const std::string parts[] = {" ", "\n", "\r", "\t", "a", "1", "'", "s", "!", "\xC3\xA9", "\xFF"};
  // Every text of four parts.
  for (std::size_t n = 0; n < 11 * 11 * 11 * 11; ++n) {
    std::string text;
    for (std::size_t rest = n, i = 0; i < 4; ++i, rest /= 11) text += parts[rest % 11];
    for (SplitRule rule : kRules) {
      const std::vector<std::string> all = words(rule, text);
      std::string joined;
      for (const std::string& word : all) {
        ASSERT_FALSE(word.empty());
        joined += word;
      }
      ASSERT_EQ(joined, text);
      ASSERT_EQ(scanned(rule, text), all);
    }
  }
}

// The matches of a pattern that matches every character.
std::vector<std::string> matched(std::string_view pattern, const std::string& text) {
  const auto regex = Regex::compile(pattern);
  std::vector<std::string> out;
  regex->each_match(text, [&](std::size_t begin, std::size_t end) {
    out.push_back(text.substr(begin, end - begin));
  });
  return out;
}

TEST(WordScanner, EqualsSplitWords) {
  EXPECT_TRUE(rc::check([] {
    const auto parts = *rc::gen::container<std::vector<std::string>>(rc::gen::oneOf(
        rc::gen::element<std::string>(
            " ", "  ", "\n", "\r\n", "\t", "\xC2\xA0", "\xE3\x80\x80", "\xC2\x85", "\x1C"
        ),
        rc::gen::element<std::string>(
            "'", "'s", "'LL", "'re", "'Ve", "'\xC5\xBF", "'l", "'m", "'d", "'T"
        ),
        rc::gen::element<std::string>(
            "a",
            "Zz",
            "AB",
            "\xC7\x85",
            "\xCA\xB0",
            "1",
            "234",
            "\xC2\xBD",
            "\xE2\x85\xA7",
            "\xC3\xA9",
            "\xE4\xB8\xAD",
            "\xCC\x81"
        ),
        rc::gen::element<std::string>("!", "?!", "_", "$", "<|", "\xE2\x80\x94", "\xFF", "\xE4\xB8")
    ));
    std::string text;
    for (const std::string& part : parts) text += part;
    for (SplitRule rule : kRules) RC_ASSERT(scanned(rule, text) == words(rule, text));
    for (SplitRule rule : {SplitRule::kGpt2, SplitRule::kQwen2, SplitRule::kLlama3})
      RC_ASSERT(scanned(rule, text) == matched(patterns_of(rule).front(), text));
  }));
}

TEST(SplitWords, O200kKeepsCapitalsThenSmallLetters) {
  EXPECT_THAT(
      words(SplitRule::kO200k, "HelloWORLDxY's 1234"),
      ElementsAre("Hello", "WORLDx", "Y's", " ", "123", "4")
  );
  EXPECT_THAT(
      words(SplitRule::kTekken, "HelloWORLD's 12"),
      ElementsAre("Hello", "WORLD", "'s", " ", "1", "2")
  );
  EXPECT_THAT(words(SplitRule::kO200k, "a//\n/b"), ElementsAre("a", "//\n/", "b"));
}

TEST(SplitWords, DeepSeekV3CutsInPasses) {
  EXPECT_THAT(
      words(SplitRule::kDeepSeekV3, "x1234\xE4\xB8\xAD\xE3\x81\x82y.z!!\n"),
      ElementsAre("x", "123", "4", "\xE4\xB8\xAD\xE3\x81\x82", "y", ".z", "!!\n")
  );
}

TEST(FindPreTokenizer, KnowsFamiliesAndNamesTheUnknown) {
  EXPECT_EQ(find_pre_tokenizer("qwen2")->rule, SplitRule::kQwen2);
  EXPECT_TRUE(find_pre_tokenizer("qwen2")->nfc);
  EXPECT_EQ(find_pre_tokenizer("deepseek-r1-qwen")->rule, SplitRule::kQwen2);
  EXPECT_TRUE(find_pre_tokenizer("llama-bpe")->whole_words);
  EXPECT_EQ(find_pre_tokenizer("")->rule, SplitRule::kDefault);
  const auto unknown = find_pre_tokenizer("martian");
  ASSERT_FALSE(unknown);
  EXPECT_EQ(unknown.error().code, Code::kUnsupported);
  EXPECT_THAT(unknown.error().message, HasSubstr("'martian'"));
  EXPECT_THAT(unknown.error().message, HasSubstr("smollm"));
}

}  // namespace
}  // namespace artery::codec
