#include "codec/api/json_tree.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <memory_resource>
#include <random>
#include <string>

#include "codec/api/json_style.h"

namespace artery::codec::api {
namespace {

std::string respelled(std::string_view text) {
  const auto tree = JsonTree::parse(text);
  return tree ? to_json(tree->root()) : "refused: " + tree.error();
}

std::string fault(std::string_view text) {
  const auto tree = JsonTree::parse(text);
  return tree ? "" : tree.error();
}

std::string nested(std::size_t depth, char open, char close) {
  return std::string(depth, open) + std::string(depth, close);
}

TEST(JsonTree, NumbersAreOfThreeKinds) {
  const auto tree = JsonTree::parse(
      "[0,18446744073709551615,18446744073709551616,-1,-0,1.0,"
      "-9223372036854775808,-9223372036854775809,1e0]"
  );
  ASSERT_TRUE(tree);
  using Kind = Json::Kind;
  const Kind kinds[] = {
      Kind::kWhole,
      Kind::kWhole,
      Kind::kDouble,
      Kind::kNegative,
      Kind::kDouble,
      Kind::kDouble,
      Kind::kNegative,
      Kind::kDouble,
      Kind::kDouble
  };
  for (std::size_t i = 0; i < std::size(kinds); ++i)
    EXPECT_EQ(tree->root().items()[i].kind(), kinds[i]) << i;
  EXPECT_EQ(
      respelled("[0,18446744073709551615,18446744073709551616,-1,-0,-0.0,1E+2]"),
      "[0,18446744073709551615,1.8446744073709552e+19,-1,-0.0,-0.0,100.0]"
  );
}

TEST(JsonTree, FractionsAreReadToTheNearestDouble) {
  std::mt19937_64 random(7);
  for (int round = 0; round < 20000; ++round) {
    std::string text = std::to_string(random() % 100) + "." + std::to_string(random());
    if (round % 2 == 0) text += "e" + std::to_string(static_cast<int>(random() % 640) - 330);
    const double wanted = std::strtod(text.c_str(), nullptr);
    const auto tree = JsonTree::parse(text);
    ASSERT_EQ(tree.has_value(), std::isfinite(wanted)) << text;
    EXPECT_EQ(tree ? tree->root().number() : wanted, wanted) << text;
  }
}

TEST(JsonTree, NumbersOutOfRange) {
  for (const char* const text :
       {"1e309", "-1e309", "123456789e301", "0.1e310", "1e99999999999999999999"})
    EXPECT_EQ(
        fault(text),
        "a number out of range at line 1 column " +
            std::to_string(1 + std::string_view(text).size())
    );
  EXPECT_NE(fault(std::string(400, '9')), "");
  for (const char* const text :
       {"1e-400", "0.0e999", "0e99999999999999999999", "1e-99999999999999999999", "0.000001e-330"})
    EXPECT_EQ(respelled(text), "0.0") << text;
  EXPECT_EQ(respelled("-1e-400"), "-0.0");
  EXPECT_EQ(respelled("4.9e-324"), "5e-324");
  EXPECT_EQ(respelled("1.7976931348623157e308"), "1.7976931348623157e+308");
}

TEST(JsonTree, OfEqualKeysTheLastValueStandsAtTheFirstPlace) {
  EXPECT_EQ(respelled(R"({"a":1,"b":2,"a":3})"), R"({"a":3,"b":2})");
  EXPECT_EQ(respelled(R"({"":1,"\u0061":2,"a":3,"":4})"), R"({"":4,"a":3})");
  // Many members take another way.
  std::string many = "{", wanted = "{";
  for (int i = 0; i < 300; ++i)
    many += "\"k" + std::to_string(i * 7 % 100) + "\":" + std::to_string(i) + ",";
  for (int i = 0; i < 100; ++i)
    wanted += "\"k" + std::to_string(i * 7 % 100) + "\":" + std::to_string(i + 200) + ",";
  many.back() = '}';
  wanted.back() = '}';
  EXPECT_EQ(respelled(many), wanted);
}

TEST(JsonTree, DepthIsBounded) {
  EXPECT_EQ(fault(nested(127, '[', ']')), "");
  EXPECT_EQ(fault(nested(128, '[', ']')), "too many nested levels at line 1 column 128");
  EXPECT_NE(fault(std::string(10'000'000, '[')), "");
  std::string objects;
  for (int i = 0; i < 1'000'000; ++i) objects += "{\"a\":";
  EXPECT_NE(fault(objects), "");
}

TEST(JsonTree, WhatIsNoJsonSaysWhere) {
  EXPECT_EQ(fault(""), "the text ends where a value is expected at line 1 column 1");
  EXPECT_EQ(fault("\xEF\xBB\xBF{}"), "expected a value at line 1 column 1");
  EXPECT_EQ(fault("{\"a\":1,\n \"b\" 2}"), "expected : at line 2 column 6");
  EXPECT_EQ(fault("[1,]"), "a comma before the end at line 1 column 4");
  EXPECT_EQ(fault("{} x"), "trailing characters at line 1 column 4");
  EXPECT_EQ(fault("\"a\nb\""), "a control character inside a string at line 1 column 3");
  EXPECT_EQ(
      fault(std::string_view("\"a\0b\"", 5)),
      "a control character inside a string at line 1 column 3"
  );
  for (const char* const text : {"{",           "[",       "[1",
                                 "{\"a\"",      "{\"a\":", "{a:1}",
                                 "{'a':1}",     "nul",     "tru",
                                 "True",        "NaN",     "Infinity",
                                 "-",           "+1",      "01",
                                 "1.",          ".5",      "1e",
                                 "1e+",         "0x1",     "\"",
                                 "\"\\",        "\"\\x\"", "\"\\u12\"",
                                 "\"\\u12g4\"", "[1 2]",   "{\"a\":1 \"b\":2}",
                                 "{,}",         "[,]",     "/**/1",
                                 "1 2",         "]",       "}",
                                 "\v1"})
    EXPECT_NE(fault(text), "") << text;
}

TEST(JsonTree, SurrogatesComeInPairs) {
  EXPECT_EQ(respelled(R"("\ud83d\ude00")"), "\"😀\"");
  EXPECT_EQ(respelled(R"("\u00e9\u4F60\/\b\f\n\r\t\"\\")"), R"("é你/\b\f\n\r\t\"\\")");
  EXPECT_EQ(respelled(R"("a\u0000b")"), R"("a\u0000b")");
  for (const char* const text :
       {R"("\ud83d")",
        R"("\ude00")",
        R"("\ud83dx")",
        R"("\ud83d\n")",
        R"("\ud83d\u0041")",
        R"("\ude00\ud83d")",
        R"({"\ud800":1})"})
    EXPECT_NE(fault(text), "") << text;
}

TEST(JsonTree, InvalidUtf8IsRefusedWhereItStands) {
  for (const char* const bytes :
       {"\x80", "\xC0\xAF", "\xED\xA0\x80", "\xF4\x90\x80\x80", "\xC3", "\xE4\xBD"}) {
    for (std::size_t before = 0; before < 12; ++before) {
      const std::string text = "\"" + std::string(before, 'x') + bytes + "\"";
      EXPECT_EQ(fault(text), "invalid UTF-8 at line 1 column " + std::to_string(before + 2))
          << text;
    }
  }
}

TEST(JsonTree, EveryStopOfAStringIsSeenAtEveryPlace) {
  for (std::size_t before = 0; before < 20; ++before) {
    const std::string plain = std::string(before, 'p') + "é";
    EXPECT_EQ(respelled("[\"" + plain + "\",1]"), "[\"" + plain + "\",1]");
    EXPECT_EQ(respelled("\"" + plain + "\\n" + plain + "\""), "\"" + plain + "\\n" + plain + "\"");
    EXPECT_NE(fault("\"" + plain + "\x1F" + plain + "\""), "");
    EXPECT_EQ(
        respelled("\"" + plain + "\x7F" + plain + "\""), "\"" + plain + "\x7F" + plain + "\""
    );
  }
}

TEST(JsonTree, TextsWithoutEscapesAreViews) {
  const std::string text = R"({"key":"value","two":"a\nb"})";
  const auto tree = JsonTree::parse(text);
  ASSERT_TRUE(tree);
  const std::string_view value = tree->root().find("key")->text();
  EXPECT_GE(value.data(), text.data());
  EXPECT_LT(value.data(), text.data() + text.size());
  EXPECT_EQ(tree->root().find("two")->text(), "a\nb");
  EXPECT_EQ(tree->root().find("three"), nullptr);
}

// Counts what trees ask of the memory behind their arenas.
class Counter : public std::pmr::memory_resource {
 public:
  std::size_t bytes = 0;

 private:
  void* do_allocate(std::size_t size, std::size_t alignment) override {
    bytes += size;
    return std::pmr::new_delete_resource()->allocate(size, alignment);
  }
  void do_deallocate(void* memory, std::size_t size, std::size_t alignment) override {
    std::pmr::new_delete_resource()->deallocate(memory, size, alignment);
  }
  bool do_is_equal(const memory_resource& other) const noexcept override { return this == &other; }
};

TEST(JsonTree, WideTextsTakeMemoryInProportion) {
  Counter counter;
  std::pmr::memory_resource* const before = std::pmr::set_default_resource(&counter);
  const auto grown = [&](std::string_view unit) {
    std::string text = "[";
    while (text.size() < 1'000'000) text += unit;
    text.back() = ']';
    counter.bytes = 0;
    EXPECT_TRUE(JsonTree::parse(text)) << fault(text);
    return counter.bytes / text.size();
  };
  EXPECT_LE(grown("1,"), 16U);
  EXPECT_LE(grown("[],"), 16U);
  EXPECT_LE(grown("{\"\":0},"), 16U);
  EXPECT_LE(grown("[[[[1]]]],"), 16U);
  EXPECT_LE(grown("\"\\n\","), 16U);
  EXPECT_LE(grown("\"text\","), 16U);
  std::pmr::set_default_resource(before);
}

}  // namespace
}  // namespace artery::codec::api
