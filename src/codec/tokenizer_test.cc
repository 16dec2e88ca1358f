#include "codec/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "codec/bpe/merge_table.h"
#include "codec/test_vocabs.h"

namespace artery::codec {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::unique_ptr<Tokenizer> make(VocabData data) {
  auto made = Tokenizer::make(std::move(data));
  EXPECT_TRUE(made) << made.error().message;
  return made.take();
}

TEST(ByteLevelBpe, MergesByRank) {
  const auto t = make(small_byte_level_vocab());
  EXPECT_THAT(t->encode("hello world", {}), ElementsAre(259, 261, 'r', 'l', 'd'));
  EXPECT_THAT(t->encode("aaaaaa", {}), ElementsAre(263, 262));
  EXPECT_THAT(t->encode("", {}), IsEmpty());
  EXPECT_EQ(t->piece(259), "hello");
  EXPECT_EQ(t->piece(261), " wo");
  EXPECT_EQ(t->piece(-1), "");
  EXPECT_EQ(t->piece(269), "");
}

TEST(ByteLevelBpe, ParsesControlTokensWhereAskedLongestFirst) {
  const auto t = make(small_byte_level_vocab());
  const EncodeOptions parse{.parse_special = true};
  EXPECT_THAT(t->encode("a<|end|>b", parse), ElementsAre('a', 265, 'b'));
  EXPECT_THAT(t->encode("<|start|>xy", parse), ElementsAre(267, 'y'));
  EXPECT_THAT(t->encode("<|start|><|st", parse), ElementsAre(266, '<', '|', 's', 't'));
  const auto plain = t->encode("<|end|>", {});
  EXPECT_EQ(std::count(plain.begin(), plain.end(), 265), 0);
  EXPECT_EQ(t->decode(plain, false), "<|end|>");
  EXPECT_THAT(t->encode("a<tool>b", {}), ElementsAre('a', 268, 'b'));
}

TEST(ByteLevelBpe, LiteralRangesStayText) {
  const auto t = make(small_byte_level_vocab());
  const std::string text = "<|end|>a<|end|>b<|end|><tool>";
  const auto ends = [&](std::vector<ByteRange> literal) {
    const auto ids = t->encode(text, {.parse_special = true, .literal = literal});
    EXPECT_EQ(t->decode(ids, false), text);
    EXPECT_EQ(std::count(ids.begin(), ids.end(), 268), 1);  // user-defined: as if not marked
    return std::count(ids.begin(), ids.end(), 265);
  };
  EXPECT_EQ(ends({}), 3);
  EXPECT_EQ(ends({{8, 15}}), 2);           // exactly the second
  EXPECT_EQ(ends({{14, 15}}), 2);          // its last byte
  EXPECT_EQ(ends({{8, 9}}), 2);            // its first byte
  EXPECT_EQ(ends({{7, 8}, {15, 16}}), 3);  // around it
  EXPECT_EQ(ends({{3, 3}}), 3);            // an empty range overlaps nothing
  EXPECT_EQ(ends({{0, 1}, {8, 9}, {16, 17}}), 0);
  EXPECT_EQ(ends({{0, 1000}}), 0);
}

TEST(ByteLevelBpe, ShorterControlTokenBesideALiteralRange) {
  const auto t = make(small_byte_level_vocab());
  const ByteRange last[] = {{9, 10}};
  EXPECT_THAT(
      t->encode("<|start|>x", {.parse_special = true, .literal = last}), ElementsAre(266, 'x')
  );
}

TEST(ByteLevelBpe, AddsBosAndEosOnce) {
  VocabData data = small_byte_level_vocab();
  data.add_bos = data.add_eos = true;
  const auto t = make(data);
  const EncodeOptions all{.add_special = true, .parse_special = true};
  EXPECT_THAT(t->encode("a", all), ElementsAre(266, 'a', 265));
  EXPECT_THAT(t->encode("<|start|>a<|end|>", all), ElementsAre(266, 'a', 265));
  EXPECT_THAT(t->encode("<|start|><|start|>a", all), ElementsAre(266, 266, 'a', 265));
  EXPECT_THAT(t->encode("a", {.parse_special = true}), ElementsAre('a'));
  EXPECT_THAT(t->encode("", all), ElementsAre(266, 265));
}

TEST(ByteLevelBpe, MissingByteVanishesAndItsNeighboursMeet) {
  VocabData data = small_byte_level_vocab();
  data.tokens['X'] = "(none)";
  const auto t = make(data);
  EXPECT_THAT(t->encode("aXa", {}), ElementsAre(262));
}

TEST(ByteLevelBpe, WholeWordsWhereTheFamilyHasThem) {
  VocabData data = small_byte_level_vocab("llama-bpe");
  const TokenId word = add_token(data, "xyz", TokenKind::kNormal);
  EXPECT_THAT(make(data)->encode("xyz", {}), ElementsAre(word));
  data.pre = "qwen2";
  EXPECT_THAT(make(data)->encode("xyz", {}), ElementsAre('x', 'y', 'z'));
}

TEST(ByteLevelBpe, ControlTokensLeaveDecodeOnRequest) {
  const auto t = make(small_byte_level_vocab());
  const TokenId ids[] = {266, 'a', 268, 265, -5, 9999};
  EXPECT_EQ(t->decode(ids, false), "<|start|>a<tool><|end|>");
  EXPECT_EQ(t->decode(ids, true), "a<tool>");
  EXPECT_TRUE(t->is_control(265));
  EXPECT_FALSE(t->is_control(268));
  EXPECT_FALSE(t->is_control(-1));
  EXPECT_TRUE(t->is_end_of_generation(265));
  EXPECT_FALSE(t->is_end_of_generation(266));
}

TEST(ByteLevelBpe, RepeatedWordsAreWhatTheyAreAlone) {
  const auto t = make(small_byte_level_vocab());
  std::string text;
  std::vector<TokenId> want;
  for (int i = 0; i < 2000; ++i) {
    const std::string word = std::string(" w") + static_cast<char>('a' + i % 26) + "hello"[i % 5];
    const auto ids = t->encode(word, {});
    text += word;
    want.insert(want.end(), ids.begin(), ids.end());
  }
  EXPECT_EQ(t->encode(text, {}), want);
}

// Merging by the definition: again and again the leftmost pair of lowest rank.
std::vector<TokenId> merge_by_definition(const MergeTable& table, std::vector<TokenId> word) {
  while (true) {
    std::size_t best = word.size();
    MergeTable::Merge merge;
    for (std::size_t i = 0; i + 1 < word.size(); ++i) {
      const auto here = table.find(word[i], word[i + 1]);
      if (here.rank < merge.rank) {
        merge = here;
        best = i;
      }
    }
    if (best == word.size()) return word;
    word[best] = merge.joined;
    word.erase(word.begin() + static_cast<std::ptrdiff_t>(best) + 1);
  }
}

TEST(WordMerger, EqualsTheDefinitionOnRandomTables) {
  EXPECT_TRUE(rc::check("both ways of merging equal rescanning", [] {
    MergeTable table(40);
    for (std::uint32_t rank = 0; rank < 40; ++rank)
      table.add(*rc::gen::inRange(0, 8), *rc::gen::inRange(0, 8), rank, *rc::gen::inRange(0, 12));
    auto word = *rc::gen::container<std::vector<TokenId>>(rc::gen::inRange(0, 6));
    const auto want = merge_by_definition(table, word);
    WordMerger merger(table);
    auto by_heap = word;
    merger.merge_by_heap(by_heap);
    RC_ASSERT(by_heap == want);
    if (word.size() <= WordMerger::kShort) merger.merge_short(word);
    RC_ASSERT(word == want || word.size() > WordMerger::kShort);
  }));
}

TEST(SentencePiece, MergesByScoreWithDummySpaceAndBytes) {
  const auto t = make(small_sentence_piece_vocab());
  const VocabData& vocab = t->vocab();
  const auto id = [&](std::string_view text) {
    const auto at = std::find(vocab.tokens.begin(), vocab.tokens.end(), text);
    return static_cast<TokenId>(at - vocab.tokens.begin());
  };
  const std::string space = "\xE2\x96\x81";
  EXPECT_THAT(t->encode("world", {}), ElementsAre(id(space + "world")));
  EXPECT_THAT(
      t->encode("hello world", {}), ElementsAre(id(space), id("hello"), id(space + "world"))
  );
  EXPECT_THAT(t->encode(" a", {}), ElementsAre(id(space + space), id("a")));
  EXPECT_THAT(t->encode("\n", {}), ElementsAre(id(space), 3 + '\n'));
  EXPECT_THAT(t->encode("\xF0\x9F", {}), ElementsAre(id(space), 3 + 0xF0, 3 + 0x9F));
  EXPECT_THAT(t->encode("", {}), IsEmpty());
  EXPECT_EQ(t->decode(t->encode("hello world", {}), false), "hello world");
}

TEST(SentencePiece, OneBosAndADummySpaceBehindIt) {
  const auto t = make(small_sentence_piece_vocab());
  const auto bare = t->encode("world", {.add_special = true});
  const auto with_text = t->encode("<s>world", {.add_special = true, .parse_special = true});
  EXPECT_EQ(bare, with_text);
  EXPECT_EQ(bare.size(), 2U);
  EXPECT_EQ(t->decode(bare, true), "world");
  EXPECT_EQ(t->decode(bare, false), "<s>world");
}

TEST(SentencePiece, ControlTokensNeverComeFromPlainText) {
  VocabData data = small_sentence_piece_vocab();
  // Pieces from which merges could build the control token's text.
  for (const char* piece : {"<s", "<", "s", ">", "</", "</s"})
    add_token(data, piece, TokenKind::kNormal);
  const auto t = make(data);
  const auto ids = t->encode("<s></s><unk><0x41>", {});
  for (TokenId id : ids) EXPECT_FALSE(t->is_control(id));
  EXPECT_EQ(t->decode(ids, false), "<s></s><unk><0x41>");
}

TEST(SentencePiece, UserDefinedTokensFirst) {
  VocabData data = small_sentence_piece_vocab();
  const TokenId three = add_token(data, "   ", TokenKind::kUserDefined);
  data.add_space_prefix = false;
  const auto t = make(data);
  EXPECT_THAT(t->encode("   ", {}), ElementsAre(three));
  EXPECT_EQ(t->decode(t->encode("a   [TABLE]", {}), false), "a   [TABLE]");
}

TEST(SentencePiece, UnknownWhereBytesAreMissing) {
  VocabData data = small_sentence_piece_vocab();
  data.kinds[3 + 0xC3] = TokenKind::kUnused;
  const auto t = make(data);
  EXPECT_EQ(t->encode("\xC3\xBC", {}).back(), data.unknown);
}

TEST(SentencePiece, ScoresThatAreNoNumbersStillOrder) {
  VocabData data = small_sentence_piece_vocab();
  for (std::size_t i = 0; i < data.scores.size(); i += 2)
    data.scores[i] = std::numeric_limits<float>::quiet_NaN();
  const auto t = make(data);
  EXPECT_EQ(t->decode(t->encode("hello world", {}), false), "hello world");
}

// The plain twin merges a whole text at once, without tables and caches.
TEST(Tokenizer, FastEqualsPlain) {
  std::vector<std::unique_ptr<Tokenizer>> all;
  for (const char* pre : {"gpt-2", "smollm", "qwen2", "llama-bpe", "default"}) {
    VocabData data = small_byte_level_vocab(pre);
    // A token that no merge makes, and one that merges make otherwise than its text says.
    add_token(data, "xyz", TokenKind::kNormal);
    add_token(data, "lle", TokenKind::kNormal);
    data.merges.push_back("l le");
    data.tokens['X'] = "(none)";
    all.push_back(make(data));
  }
  all.push_back(make(small_sentence_piece_vocab()));
  VocabData data = small_sentence_piece_vocab();
  add_token(data, "d\xE2\x96\x81w", TokenKind::kNormal, 1);  // words hang together
  add_token(data, "\xC3\xA9\xC3\xA9", TokenKind::kNormal);
  all.push_back(make(data));
  EXPECT_TRUE(rc::check([&] {
    const auto parts = *rc::gen::container<std::vector<std::string>>(rc::gen::element<std::string>(
        " ",
        " ",
        "w",
        "or",
        "l",
        "d",
        "he",
        "hello",
        "xyz",
        "lle",
        "X",
        "aaa",
        "1",
        "\xC3\xA9",
        "\xE2",
        "[TABLE]",
        "<tool>"
    ));
    std::string text;
    for (int copies = *rc::gen::inRange(1, 40); copies > 0; --copies)
      for (const std::string& part : parts) text += part;
    for (const auto& t : all) RC_ASSERT(t->encode(text, {}) == t->encode(text, {.plain = true}));
  }));
}

TEST(Tokenizer, EveryTextComesBack) {
  for (const char* pre : {"gpt-2", "smollm", "llama-bpe", "default"}) {
    const auto t = make(small_byte_level_vocab(pre));
    EXPECT_TRUE(rc::check([&](const std::string& text) {
      RC_ASSERT(t->decode(t->encode(text, {}), false) == text);
      RC_ASSERT(t->decode(t->encode(text, {.parse_special = true}), false) == text);
    }));
  }
  const auto t = make(small_sentence_piece_vocab());
  EXPECT_TRUE(rc::check([&] {
    const auto parts = *rc::gen::container<std::vector<std::string>>(rc::gen::element<std::string>(
        " ", "  ", "<s>", "[TABLE]", "hello", "\xC3\xA9", "\xFF", "</s> "
    ));
    std::string text;
    for (const std::string& part : parts) text += part;
    RC_ASSERT(t->decode(t->encode(text, {}), false) == text);
    RC_ASSERT(t->decode(t->encode(text, {.parse_special = true}), false) == text);
  }));
}

TEST(Tokenizer, RefusesBrokenVocabularies) {
  const auto error = [](VocabData data) {
    const auto made = Tokenizer::make(std::move(data));
    EXPECT_FALSE(made);
    return made ? Error{} : made.error();
  };
  VocabData data = small_byte_level_vocab();
  data.kinds.pop_back();
  EXPECT_EQ(error(data).code, Code::kBadFile);
  EXPECT_THAT(error(data).message, HasSubstr("268 token types for 269 tokens"));
  data = small_sentence_piece_vocab();
  data.scores.pop_back();
  EXPECT_THAT(error(data).message, HasSubstr("scores for"));
  data = small_byte_level_vocab();
  data.merges.clear();
  EXPECT_EQ(error(data).code, Code::kBadFile);
  data = small_byte_level_vocab();
  data.merges[1] = "ab";
  EXPECT_THAT(error(data).message, HasSubstr("merge 1 'ab' has no space"));
  EXPECT_EQ(error(small_byte_level_vocab("martian")).code, Code::kUnsupported);
  EXPECT_EQ(error(VocabData{}).code, Code::kBadFile);
}

}  // namespace
}  // namespace artery::codec
