#include "codec/stream/detokenizer.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <string>
#include <vector>

#include "codec/test_vocabs.h"

namespace artery::codec {
namespace {

const std::string kBad = "\xEF\xBF\xBD";

std::string whole(const std::string& bytes) {
  Utf8Stream stream;
  std::string text = stream.push(bytes);
  return text + stream.finish();
}

// What Python 3.11's bytes.decode("utf-8", errors="replace") gives.
TEST(Utf8Stream, ReplacesMaximalSubpartsAsPythonDoes) {
  const struct {
    std::string bytes, text;
  } cases[] = {
      {"abc", "abc"},
      {"\x80", kBad},
      {"\xA6\x83\xE3\x80", kBad + kBad + kBad},
      {"\xC0\x80", kBad + kBad},
      {"\xE0\x80\x80", kBad + kBad + kBad},
      {"\xED\xA0\x80", kBad + kBad + kBad},
      {"\xF0\x80\x80\x80", kBad + kBad + kBad + kBad},
      {"\xF4\x90\x80\x80", kBad + kBad + kBad + kBad},
      {"\xF0\x9F\x98", kBad},
      {"\xF0\x9F\x98z", kBad + "z"},
      {"\xF0\x9F\xF0\x9F\x98\x80", kBad + "\xF0\x9F\x98\x80"},
      {"\xE4\xB8\xE4\xB8\xAD", kBad + "\xE4\xB8\xAD"},
      {"\xC3\xC3\xA9", kBad + "\xC3\xA9"},
      {"\xFE\xFF", kBad + kBad},
      {"a\xF1\x80\x80\xE1\x80\xC2"
       "b\x80"
       "c",
       "a" + kBad + kBad + kBad + "b" + kBad + "c"},
      {std::string("\0", 1), std::string("\0", 1)},
  };
  for (const auto& c : cases) EXPECT_EQ(whole(c.bytes), c.text) << testing::PrintToString(c.bytes);
}

TEST(Utf8Stream, HoldsOnlyAnOpenCharacter) {
  Utf8Stream stream;
  EXPECT_EQ(stream.push("a\xF0\x9F"), "a");
  EXPECT_EQ(stream.push("\x98"), "");
  EXPECT_EQ(stream.push("\x80z"), "\xF0\x9F\x98\x80z");
  EXPECT_EQ(stream.push("\xE4"), "");
  EXPECT_EQ(stream.push("b"), kBad + "b");
  EXPECT_EQ(stream.finish(), "");
}

// Bytes that come near to being characters.
rc::Gen<std::string> near_utf8() {
  return rc::gen::map(
      rc::gen::container<std::vector<std::string>>(rc::gen::element<std::string>(
          "a",
          "\xC3",
          "\xA9",
          "\xE4",
          "\xB8",
          "\xAD",
          "\xED",
          "\xA0",
          "\xF0",
          "\x9F",
          "\x98",
          "\x80",
          "\xF4",
          "\x8F",
          "\x90",
          "\xFF",
          "\xE2\x82\xAC"
      )),
      [](const std::vector<std::string>& parts) {
        std::string bytes;
        for (const std::string& part : parts) bytes += part;
        return bytes;
      }
  );
}

bool is_valid_utf8(const std::string& text) { return whole(text) == text; }

TEST(Utf8Stream, EverySplitGivesTheSameText) {
  EXPECT_TRUE(rc::check("splits of random bytes", [] {
    const auto deltas = *rc::gen::container<std::vector<std::string>>(near_utf8());
    std::string bytes, text;
    Utf8Stream stream;
    for (const std::string& delta : deltas) {
      bytes += delta;
      const std::string shown = stream.push(delta);
      RC_ASSERT(is_valid_utf8(shown));
      text += shown;
    }
    text += stream.finish();
    RC_ASSERT(text == whole(bytes));
  }));
  EXPECT_TRUE(rc::check("byte by byte", [](const std::string& bytes) {
    std::string text;
    Utf8Stream stream;
    for (char c : bytes) text += stream.push(std::string_view(&c, 1));
    text += stream.finish();
    RC_ASSERT(text == whole(bytes));
  }));
}

std::string run(Detokenizer detokenizer, const std::vector<TokenId>& ids) {
  std::string text;
  for (TokenId id : ids) text += detokenizer.push(id);
  return text + detokenizer.finish();
}

TEST(Detokenizer, EqualsDecodeWithReplacement) {
  for (const VocabData& data : {small_byte_level_vocab(), small_sentence_piece_vocab()}) {
    const auto tokenizer = Tokenizer::make(data).take();
    const auto count = static_cast<TokenId>(data.tokens.size());
    EXPECT_TRUE(rc::check([&] {
      const auto ids =
          *rc::gen::container<std::vector<TokenId>>(rc::gen::inRange<TokenId>(-1, count + 1));
      const bool skip = *rc::gen::arbitrary<bool>();
      const std::string want = whole(tokenizer->decode(ids, skip));
      RC_ASSERT(run(Detokenizer(*tokenizer, skip, false), ids) == want);
    }));
  }
}

TEST(Detokenizer, ALeadingSpaceIsRealBehindAPrompt) {
  const auto tokenizer = Tokenizer::make(small_sentence_piece_vocab()).take();
  const auto ids = tokenizer->encode("world", {});
  EXPECT_EQ(run(Detokenizer(*tokenizer, true, true), ids), " world");
  EXPECT_EQ(run(Detokenizer(*tokenizer, true, false), ids), "world");
}

}  // namespace
}  // namespace artery::codec
