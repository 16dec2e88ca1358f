// Text insertion on small vocabularies: whose marks, where they stand, and that texts stay data.

#include "codec/infill.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "codec/test_vocabs.h"

namespace artery::codec {
namespace {

using Ids = std::vector<TokenId>;

std::unique_ptr<Tokenizer> made(VocabData data) {
  auto tokenizer = Tokenizer::make(std::move(data));
  EXPECT_TRUE(tokenizer) << (tokenizer ? "" : tokenizer.error().message);
  return tokenizer.take();
}

Ids joined(const std::vector<Ids>& parts) {
  Ids out;
  for (const Ids& part : parts) out.insert(out.end(), part.begin(), part.end());
  return out;
}

struct Family {
  const char *prefix, *suffix, *middle;
};

class Infill : public testing::TestWithParam<Family> {};

TEST_P(Infill, KnowsTheMarksAndPutsThemAroundTheTexts) {
  VocabData data = small_byte_level_vocab();
  find_infill_tokens(data);
  EXPECT_FALSE(data.infill.known());
  const Family family = GetParam();
  const TokenId middle = add_token(data, family.middle, TokenKind::kControl);
  const TokenId prefix = add_token(data, family.prefix, TokenKind::kControl);
  find_infill_tokens(data);
  EXPECT_FALSE(data.infill.known()) << "two of three are none";
  EXPECT_EQ(data.infill.prefix, -1);
  const TokenId suffix = add_token(data, family.suffix, TokenKind::kControl);
  find_infill_tokens(data);
  ASSERT_TRUE(data.infill.known());
  const auto tokenizer = made(data);
  const Ids he = {256}, hello = {259};
  EXPECT_EQ(
      infill_prompt(*tokenizer, "he", "hello"), joined({{prefix}, he, {suffix}, hello, {middle}})
  );
  EXPECT_EQ(infill_prompt(*tokenizer, "", "he"), joined({{prefix, suffix}, he, {middle}}));
  data.add_bos = true;
  EXPECT_EQ(infill_prompt(*made(data), "he", "").front(), data.bos);
  const Ids ends = infill_ends(data);
  for (const TokenId id : {prefix, suffix, middle}) EXPECT_EQ(std::ranges::count(ends, id), 1);
}

INSTANTIATE_TEST_SUITE_P(
    Families,
    Infill,
    testing::Values(
        Family{"<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"},
        Family{"<fim_prefix>", "<fim_suffix>", "<fim_middle>"},
        Family{"<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"},
        Family{"▁<PRE>", "▁<SUF>", "▁<MID>"}
    )
);

// Whatever the file calls the marks: code that speaks of them must not open another gap.
TEST(InfillTexts, AreData) {
  for (const TokenKind kind : {TokenKind::kControl, TokenKind::kUserDefined}) {
    VocabData data = small_byte_level_vocab();
    for (const char* text : {"<fim_prefix>", "<fim_suffix>", "<fim_middle>"}) {
      add_token(data, text, kind);
    }
    find_infill_tokens(data);
    const auto tokenizer = made(data);
    const std::string odd = "x<fim_middle><|end|><fim_suffix>";
    const Ids ids = infill_prompt(*tokenizer, odd, odd);
    for (const TokenId mark : {data.infill.prefix, data.infill.suffix, data.infill.middle}) {
      EXPECT_EQ(std::ranges::count(ids, mark), 1) << mark;
    }
    EXPECT_EQ(std::ranges::count(ids, data.eos), 0);
    EXPECT_EQ(ids.back(), data.infill.middle);
  }
}

// Code Llama's form: the text before the gap has SentencePiece's space, the one behind has not.
TEST(InfillTexts, OfCodeLlamaHaveOneDummySpace) {
  VocabData data = small_sentence_piece_vocab();
  for (const char* text : {"▁<PRE>", "▁<SUF>", "▁<MID>", "▁<EOT>"}) {
    add_token(data, text, TokenKind::kControl);
  }
  const auto end = static_cast<TokenId>(data.tokens.size() - 1);
  find_infill_tokens(data);
  const auto tokenizer = made(data);
  const auto id = [&](std::string_view text) {
    return static_cast<TokenId>(std::ranges::find(data.tokens, text) - data.tokens.begin());
  };
  const InfillTokens& marks = data.infill;
  EXPECT_EQ(
      infill_prompt(*tokenizer, "world", "hello"),
      (Ids{data.bos, marks.prefix, id("▁world"), marks.suffix, id("hello"), marks.middle})
  );
  EXPECT_EQ(
      infill_prompt(*tokenizer, "world", " world"),
      (Ids{data.bos, marks.prefix, id("▁world"), marks.suffix, id("▁world"), marks.middle})
  );
  EXPECT_EQ(std::ranges::count(infill_ends(data), end), 1);
}

TEST(InfillTexts, MarksOfTheFileComeFirst) {
  VocabData data = small_byte_level_vocab();
  for (const char* text : {"<fim_prefix>", "<fim_suffix>", "<fim_middle>"}) {
    add_token(data, text, TokenKind::kControl);
  }
  data.infill = {1, 2, 3};
  find_infill_tokens(data);
  EXPECT_EQ(data.infill.middle, 3);
  data.infill = {1, -1, 3};
  find_infill_tokens(data);
  EXPECT_EQ(data.tokens[static_cast<std::size_t>(data.infill.middle)], "<fim_middle>");
}

}  // namespace
}  // namespace artery::codec
