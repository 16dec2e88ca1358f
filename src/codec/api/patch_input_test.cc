#include "codec/api/patch_input.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace artery::codec::api {
namespace {

std::string patch_of(const std::vector<std::string>& pieces) {
  PatchInput input;
  std::string out;
  for (const std::string& piece : pieces) input.feed(piece, out);
  input.finish(out);
  return out;
}

struct Case {
  std::string arguments, patch;
};

// Seen of the official package, piece by piece.
const std::vector<Case> kCases = {
    {R"({"input": "*** Begin\n-x = \"1\"\n"})", "*** Begin\n-x = \"1\"\n"},
    {"{ \n\"input\"\t: \r\"a\" , \"x\": 1}", "a"},
    {R"({"input": ""})", ""},
    {R"({"x": "y", "input": "abc"})", R"({"x": "y", "input": "abc"})"},
    {R"({"input": {"a": 1}})", R"({"input": {"a": 1}})"},
    {R"({"inputx": "x"})", R"({"inputx": "x"})"},
    {R"({"in\u0070ut": "x"})", R"({"in\u0070ut": "x"})"},
    {"{}", "{}"},
    {R"({"input)", R"({"input)"},
    {R"({"input": )", R"({"input": )"},
    {R"({"input": "abc)", "abc"},
    {R"({"input": "\u00e9\ud83d\ude00\/\b\f\t\r"})", "\u00e9\U0001F600/\b\f\t\r"},
    {R"({"input": "a\qb"})", R"(a\qb)"},
    {R"({"input": "a\u00zz b"})", R"(a\u00zz b)"},
    {R"({"input": "a\udc00 b"})", R"(a\udc00 b)"},
    {R"({"input": "a\ud83dxy b"})", R"(a\ud83dxy b)"},
    {R"({"input": "a\ud83d\u0041 b"})", R"(a\ud83d\u0041 b)"},
    {R"({"input": "a\uD83D\uD83D\uDE00 b"})", R"(a\uD83D\uD83D\uDE00 b)"},
    {R"({"input": "a\ud83d"x" y"})", R"(a\ud83d"x)"},
    {R"({"input": "\u00\"y"z"})", R"(\u00\)"},
    {R"({"input": "a\)", R"(a\)"},
    {R"({"input": "a\ud83d\u00)", R"(a\ud83d\u00)"},
};

TEST(PatchInput, GivesTheTextHoweverTheArgumentsAreCut) {
  for (const Case& one : kCases) {
    EXPECT_EQ(patch_of({one.arguments}), one.patch) << one.arguments;
    std::vector<std::string> bytes;
    for (const char c : one.arguments) bytes.emplace_back(1, c);
    EXPECT_EQ(patch_of(bytes), one.patch) << one.arguments;
    for (std::size_t cut = 1; cut < one.arguments.size(); ++cut)
      EXPECT_EQ(patch_of({one.arguments.substr(0, cut), one.arguments.substr(cut)}), one.patch)
          << one.arguments << " cut at " << cut;
  }
}

TEST(PatchInput, HoldsBackOnlyTheBeginningAndOneEscape) {
  PatchInput input;
  std::string out;
  input.feed(R"({"input": )", out);
  EXPECT_EQ(out, "");
  input.feed("\"ab", out);
  EXPECT_EQ(out, "ab");
  input.feed(R"(c\ud83d)", out);
  EXPECT_EQ(out, "abc");
  input.feed(R"(\ude00d)", out);
  EXPECT_EQ(out, "abc\U0001F600d");
  input.feed("\" rest", out);
  input.feed("}", out);
  input.finish(out);
  EXPECT_EQ(out, "abc\U0001F600d");
}

}  // namespace
}  // namespace artery::codec::api
