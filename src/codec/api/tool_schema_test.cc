#include "codec/api/tool_schema.h"

#include <gtest/gtest.h>

#include "codec/api/json_tree.h"
#include "codec/api/schema_check.h"
#include "codec/api/serde_words.h"
#include "codec/api/uri_text.h"

namespace artery::codec::api {
namespace {

// "" when the schema is fine.
std::string fault(std::string_view schema) {
  const auto tree = JsonTree::parse(schema);
  if (!tree) return tree.error();
  const auto checked = check_schema(tree->root());
  return checked ? "" : checked.error();
}

// The parameters of a tool as they come back, or the error.
std::string settled(std::string_view schema, bool strict) {
  const auto tree = JsonTree::parse(schema);
  if (!tree) return tree.error();
  DeclaredTool tool;
  tool.name = "f";
  tool.parameters = &tree->root();
  tool.strict = strict;
  const std::span<const DeclaredTool> tools(&tool, 1);
  if (const auto checked = check_tool_schemas(tools); !checked) return checked.error();
  const auto settled = settle_tools(tools);
  return settled ? settled->front().parameters : settled.error();
}

TEST(Schemas, KeywordsAreCheckedAgainstTheirDraft) {
  EXPECT_EQ(fault(R"({"type":"object","properties":{"a":{"type":"string"}}})"), "");
  EXPECT_EQ(
      fault(R"({"properties":{"a":{"type":"strin"}}})"),
      "\"strin\" is not valid under any of the schemas listed in the 'anyOf' keyword"
  );
  EXPECT_EQ(fault(R"({"minLength":-1.0})"), "-1.0 is less than the minimum of 0");
  EXPECT_EQ(fault(R"({"required":["a","a"]})"), R"(["a","a"] has non-unique elements)");
  EXPECT_EQ(fault(R"({"items":[{}]})"), R"([{}] is not of types "boolean", "object")");
  const std::string draft7 = R"("$schema":"http://json-schema.org/draft-07/schema#")";
  EXPECT_EQ(fault("{" + draft7 + R"(,"items":[{}]})"), "");
  EXPECT_EQ(
      fault(R"({"$schema":"http://json-schema.org/draft-04/schema#","exclusiveMaximum":true})"),
      "\"maximum\" is a required property"
  );
}

// Which of two errors wins: see Vocabulary::by_value.
TEST(Schemas, TheFirstErrorIsTheOfficialOne) {
  EXPECT_EQ(fault(R"({"required":3,"properties":4})"), "4 is not of type \"object\"");
  EXPECT_EQ(fault(R"({"minLength":"x","type":4})"), "\"x\" is not of type \"integer\"");
  EXPECT_EQ(fault(R"({"type":3,"$ref":"#/nope"})").find("3 is not valid"), 0U);
}

TEST(Schemas, ReferencesMustEndInside) {
  EXPECT_EQ(fault(R"({"$ref":"#/$defs/a","$defs":{"a":{"$ref":"#"}}})"), "");
  EXPECT_EQ(fault(R"({"$ref":"#/$defs/x"})"), "Pointer '/$defs/x' does not exist");
  EXPECT_EQ(fault(R"({"$ref":"#x"})"), "Anchor 'x' does not exist");
  EXPECT_EQ(fault(R"({"$defs":{"a":{"$ref":"#nowhere"}}})"), "");  // nothing leads there
  EXPECT_EQ(
      fault(R"({"$defs":{"a":{"$ref":"http://e.x/s"}}})"),
      "Resource 'http://e.x/s' is not present in a registry and retrieving it failed: Retrieval is "
      "disabled, cannot fetch http://e.x/s"
  );
  EXPECT_EQ(
      fault(R"({"$ref":"a b"})"), "Invalid URI reference 'a b': unexpected character at index 1"
  );
}

// A chain of references takes no stack, a ring of them comes to its end.
TEST(Schemas, ChainsOfReferencesAreFollowed) {
  std::string schema = R"({"$ref":"#/$defs/0","$defs":{)";
  constexpr int kLinks = 3'000;
  for (int i = 0; i < kLinks; ++i) {
    schema += (i > 0 ? ",\"" : "\"") + std::to_string(i) + R"(":{"$ref":"#/$defs/)" +
              std::to_string(i + 1) + "\"}";
  }
  EXPECT_EQ(fault(schema + "}}"), "Pointer '/$defs/3000' does not exist");
  EXPECT_EQ(fault(schema + R"(,"3000":{"$ref":"#"}}})"), "");
}

TEST(Schemas, RegularExpressions) {
  for (const char* const fine :
       {"",
        "^a+$",
        "(?<=a)b",
        "(?<n>a)",
        "\\d{2,3}?",
        "[^]a]",
        "[a-z]",
        "\\p{L}",
        "\\p{Greek}",
        "(a)\\1",
        "a{1}{2}",
        "}",
        "[[:alpha:]]",
        "(?i-s:a)",
        "\\u00e9",
        "a++"})
    EXPECT_TRUE(is_regex(fine)) << fine;
  for (const char* const bad :
       {"(",
        ")",
        "[",
        "*a",
        "a**",
        "{",
        "a{2,1}",
        "[z-a]",
        "\\",
        "(?>a)",
        "\\k<n>",
        "\\1",
        "(?<n>a)(?<n>b)",
        "\\p{Foo}",
        "a{,3}",
        "\\x4",
        "(?=a)*",
        "\\u{110000}",
        "[a-\\d]"})
    EXPECT_FALSE(is_regex(bad)) << bad;
  EXPECT_FALSE(is_regex(std::string(100'000, '(')));
}

TEST(Schemas, UriText) {
  EXPECT_EQ(uri_fault("http://[::1]:8/%41?a=b#c"), std::nullopt);
  EXPECT_EQ(uri_fault("#a#b"), "unexpected character at index 2");
  EXPECT_EQ(uri_fault("http://h/%zz"), "invalid percent-encoded octet at index 9");
  EXPECT_EQ(resolve_uri("http://x/a/b", "../c?d"), "http://x/c?d");
  EXPECT_EQ(resolve_uri("http://x/a/b", "#f"), "http://x/a/b");
  EXPECT_EQ(resolve_uri("http://x", "c"), "http://x/c");
}

TEST(StrictSchemas, ComeBackInTheirNormalForm) {
  EXPECT_EQ(
      settled(
          R"({"properties":{"a":{"format":"email","type":"string","minLength":1,"enum":["x"]},)"
          R"("n":{"maximum":2,"type":"number","minimum":1.50}},"title":"t","type":"object"})",
          true
      ),
      R"({"type":"object","properties":{"a":{"type":"string","format":"email","enum":["x"]},)"
      R"("n":{"type":"number","minimum":1.5,"maximum":2}},"additionalProperties":false,)"
      R"("required":["a","n"]})"
  );
  EXPECT_EQ(settled(R"({"type":"object","title":"t"})", false), R"({"type":"object","title":"t"})");
}

TEST(StrictSchemas, SayInSerdesWordsWhatIsWrong) {
  const std::string prefix = "Invalid tool parameters schema : ";
  const auto of = [](std::string_view property) {
    return settled(R"({"type":"object","properties":{"a":)" + std::string(property) + "}}", true);
  };
  EXPECT_EQ(of("{}"), prefix + "one of `type`, `anyOf`, `$ref` field is required");
  EXPECT_EQ(of(R"({"type":3})"), prefix + "invalid type: integer `3`, expected variant identifier");
  EXPECT_EQ(of(R"({"anyOf":[{"$ref":"x"}]})"), prefix + "field `anyOf`: missing field `type`");
  EXPECT_EQ(
      of(R"({"type":"integer","minimum":1.0})"),
      prefix + "invalid type: floating point `1.0`, expected i64"
  );
  EXPECT_EQ(of(R"({"type":"object"})"), "An object with no properties is not allowed.");
  EXPECT_EQ(
      of(R"({"type":"object","properties":{"b":{"type":"null"}},"required":["b","b"]})"),
      "Duplicate required property 'b'"
  );
}

TEST(StrictSchemas, RustShowsStringsItsWay) {
  EXPECT_EQ(rust_debug("a\"\\\n\té\x01"), R"("a\"\\\n\té\u{1}")");
}

}  // namespace
}  // namespace artery::codec::api
