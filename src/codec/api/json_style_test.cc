#include "codec/api/json_style.h"

#include <gtest/gtest.h>

#include "codec/api/json_tree.h"

namespace artery::codec::api {
namespace {

std::string spelled(std::string_view text, JsonStyle style) {
  const auto tree = JsonTree::parse(text);
  if (!tree) return tree.error();
  std::string out;
  append_json(out, tree->root(), style);
  return out;
}

std::string restyled(std::string_view compact, JsonStyle style) {
  std::string out;
  append_restyled(out, compact, style);
  return out;
}

constexpr std::string_view kNumbers =
    "[1.0,1e16,1e15,-0,1.5e-7,1e-5,0.0001,1e-6,5e-324,-1.25e-5,12]";

TEST(JsonStyle, SpellsNumbersAsSerdeAndAsPythonDo) {
  EXPECT_EQ(
      spelled(kNumbers, kSerdeStyle),
      "[1.0,1e+16,1000000000000000.0,-0.0,1.5e-7,0.00001,0.0001,1e-6,5e-324,-0.0000125,12]"
  );
  EXPECT_EQ(
      spelled(kNumbers, kPythonStyle),
      "[1.0, 1e+16, 1000000000000000.0, -0.0, 1.5e-07, 1e-05, 0.0001, 1e-06, 5e-324, -1.25e-05, 12]"
  );
}

TEST(JsonStyle, RestylesAsWritingAnewWould) {
  for (const std::string_view text :
       {kNumbers,
        std::string_view(R"({"a:b,c":["x, y: \"z\"","\\","é\n"],"e":{},"1e-5":"0.00001 1e-5"})"),
        std::string_view(R"(["\\\"",[[]],{"":null},true,false,"\u0000"])"),
        std::string_view("3"),
        std::string_view(R"("")")}) {
    const std::string compact = spelled(text, kSerdeStyle);
    EXPECT_EQ(restyled(compact, kSerdeStyle), compact);
    EXPECT_EQ(restyled(compact, kSpacedSerdeStyle), spelled(text, kSpacedSerdeStyle));
    EXPECT_EQ(restyled(compact, kPythonStyle), spelled(text, kPythonStyle));
  }
}

TEST(JsonStyle, AnyTextIsTaken) {
  EXPECT_EQ(restyled("\"open", kPythonStyle), "\"open");
  EXPECT_EQ(restyled("1e,--,1.5e", kPythonStyle), "1e, --, 1.5e");
  EXPECT_EQ(restyled("", kPythonStyle), "");
  EXPECT_EQ(restyled("\"a\\\\\",1", kSpacedSerdeStyle), "\"a\\\\\", 1");
}

TEST(JsonStyle, NumbersThatAreNoneBecomeNull) {
  std::string out;
  append_python_number(out, std::numeric_limits<double>::infinity());
  EXPECT_EQ(out, "null");
}

}  // namespace
}  // namespace artery::codec::api
