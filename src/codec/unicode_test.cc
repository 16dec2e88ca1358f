#include "codec/unicode.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <utf8proc.h>

#include <cstdlib>
#include <ctime>
#include <string>
#include <vector>

namespace artery::codec {
namespace {

TEST(DecodeUtf8, FollowsTable3_7) {
  struct Case {
    std::string text;
    Utf8State state;
    std::uint8_t bytes;
  };
  const Case cases[] = {
      {"a", Utf8State::kValid, 1},
      {"\xC3\xA9", Utf8State::kValid, 2},
      {"\xE4\xB8\xAD", Utf8State::kValid, 3},
      {"\xF0\x9F\x98\x80", Utf8State::kValid, 4},
      {"\xF4\x8F\xBF\xBF", Utf8State::kValid, 4},
      {"\x80", Utf8State::kInvalid, 1},
      {"\xC0\x80", Utf8State::kInvalid, 1},
      {"\xC1\xBF", Utf8State::kInvalid, 1},
      {"\xE0\x9F\xBF", Utf8State::kInvalid, 1},
      {"\xED\xA0\x80", Utf8State::kInvalid, 1},
      {"\xF0\x8F\xBF\xBF", Utf8State::kInvalid, 1},
      {"\xF4\x90\x80\x80", Utf8State::kInvalid, 1},
      {"\xF5", Utf8State::kInvalid, 1},
      {"\xE4\xB8z", Utf8State::kInvalid, 2},
      {"\xF0\x9F\x98z", Utf8State::kInvalid, 3},
      {"\xC3", Utf8State::kCut, 1},
      {"\xE4\xB8", Utf8State::kCut, 2},
      {"\xF0\x9F\x98", Utf8State::kCut, 3},
  };
  for (const Case& c : cases) {
    const Utf8Char got = decode_utf8(c.text, 0);
    EXPECT_EQ(got.state, c.state) << testing::PrintToString(c.text);
    EXPECT_EQ(got.bytes, c.bytes) << testing::PrintToString(c.text);
  }
}

TEST(DecodeUtf8, InvertsAppendForEveryScalarValue) {
  for (char32_t code = 0; code <= 0x10FFFF; ++code) {
    if (code >= 0xD800 && code <= 0xDFFF) continue;
    std::string text;
    append_utf8(text, code);
    const Utf8Char got = decode_utf8(text, 0);
    ASSERT_EQ(got.state, Utf8State::kValid) << static_cast<unsigned>(code);
    ASSERT_EQ(got.code, code);
    ASSERT_EQ(got.bytes, text.size());
  }
}

TEST(Classify, KnowsTheClassesOfThePatterns) {
  const auto class_of = [](const char* text) { return classify(text, 0).char_class; };
  EXPECT_EQ(class_of("a"), CharClass::kLetter);
  EXPECT_EQ(class_of("\xE4\xB8\xAD"), CharClass::kLetter);
  EXPECT_EQ(class_of("\xC2\xAA"), CharClass::kLetter);      // feminine ordinal, Lo
  EXPECT_EQ(class_of("\xC2\xBD"), CharClass::kNumber);      // one half, No
  EXPECT_EQ(class_of("\xE2\x85\xA7"), CharClass::kNumber);  // Roman eight, Nl
  EXPECT_EQ(class_of("\xC2\x85"), CharClass::kSpace);       // next line
  EXPECT_EQ(class_of("\xE3\x80\x80"), CharClass::kSpace);   // ideographic space
  EXPECT_EQ(class_of("\xE2\x80\x8B"), CharClass::kOther);   // zero width space is no White_Space
  EXPECT_EQ(class_of("\x1C"), CharClass::kOther);
  EXPECT_EQ(class_of("\xCC\x81"), CharClass::kOther);  // a mark
  EXPECT_EQ(class_of("\xFF"), CharClass::kOther);
}

TEST(ToNfc, ComposesOrdersAndKeepsInvalidBytes) {
  const struct {
    std::string in, out;
  } cases[] = {
      {"plain", "plain"},
      {"e\xCC\x81", "\xC3\xA9"},
      {"\xE1\x84\x92\xE1\x85\xA1\xE1\x86\xAB", "\xED\x95\x9C"},  // Hangul by jamo
      {"q\xCC\x87\xCC\xA3", "q\xCC\xA3\xCC\x87"},                // marks in order
      {"\xE2\x84\xAB", "\xC3\x85"},                              // angstrom
      {"\xE0\xA5\x98", "\xE0\xA4\x95\xE0\xA4\xBC"},              // composition exclusion
      {"\xE3\x81\x8B\xE3\x82\x99", "\xE3\x81\x8C"},              // kana and voice mark
      {"e\xCC\x81\xFF"
       "e\xCC\x81\xCC",
       "\xC3\xA9\xFF\xC3\xA9\xCC"},        // around bad bytes
      {"e\xFF\xCC\x81", "e\xFF\xCC\x81"},  // not across them
  };
  for (const auto& c : cases) {
    std::string buffer;
    EXPECT_EQ(to_nfc(c.in, buffer), c.out) << testing::PrintToString(c.in);
  }
}

// The library over the whole text at once, without a guess at what cannot change.
std::string nfc_by_library(const std::string& text) {
  utf8proc_uint8_t* made = nullptr;
  const utf8proc_ssize_t bytes = utf8proc_map(
      reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
      static_cast<utf8proc_ssize_t>(text.size()),
      &made,
      static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE)
  );
  EXPECT_GE(bytes, 0);
  std::string out(reinterpret_cast<const char*>(made), static_cast<std::size_t>(bytes));
  std::free(made);
  return out;
}

TEST(ToNfc, EveryCharacterAsInTheLibrary) {
  for (char32_t code = 1; code <= 0x10FFFF; ++code) {
    if ((code >= 0xD800 && code <= 0xDFFF) || normal_forms_leave(code)) continue;
    std::string text = "ae";
    append_utf8(text, code);
    text += "o";
    append_utf8(text, code);
    append_utf8(text, 0x301);
    append_utf8(text, code);
    std::string buffer;
    ASSERT_EQ(to_nfc(text, buffer), nfc_by_library(text)) << std::hex << std::uint32_t{code};
  }
}

TEST(ToNfc, RandomTextsAsInTheLibrary) {
  EXPECT_TRUE(rc::check([] {
    const auto codes = *rc::gen::container<std::vector<char32_t>>(rc::gen::oneOf(
        rc::gen::element<char32_t>(
            'e', ' ', 0xE9, 0x301, 0x323, 0x338, 0x2190, 0x3D, 0x304B, 0x3099
        ),
        rc::gen::element<char32_t>(0x1112, 0x1161, 0x11AB, 0xD55C, 0x212B, 0x958, 0x4E2D, 0x1F600),
        rc::gen::inRange<char32_t>(0x300, 0x370),
        rc::gen::inRange<char32_t>(0x900, 0xE00)
    ));
    std::string text, buffer;
    for (char32_t code : codes)
      if (!normal_forms_leave(code)) append_utf8(text, code);
    RC_ASSERT(std::string(to_nfc(text, buffer)) == nfc_by_library(text));
  }));
}

TEST(NormalForms, DecomposeAndCompose) {
  std::string buffer;
  EXPECT_EQ(to_normal_form(NormalForm::kNfd, "\xC3\xA9!", buffer), "e\xCC\x81!");
  EXPECT_EQ(to_normal_form(NormalForm::kNfkc, "\xEF\xAC\x81\xC2\xB2", buffer), "fi2");
  EXPECT_EQ(
      to_normal_form(NormalForm::kNfkd, "\xEF\xBC\xA1\xC3\xA9\xFF", buffer), "Ae\xCC\x81\xFF"
  );
  EXPECT_EQ(to_normal_form(NormalForm::kNfkd, "abc", buffer), "abc");
}

TEST(NormalForms, CharactersNewerThanTheLibrarysTablesStay) {
  std::string buffer;
  // U+AB69 of Unicode 13; U+1ABF, a mark of class 220 there, keeps its place.
  EXPECT_EQ(to_normal_form(NormalForm::kNfkc, "\xEA\xAD\xA9", buffer), "\xEA\xAD\xA9");
  const std::string marks = "a\xCC\x81\xE1\xAA\xBF";
  EXPECT_EQ(to_nfc(marks, buffer), "\xC3\xA1\xE1\xAA\xBF");
  const std::string behind = "a\xE1\xAA\xBF\xCC\x81";
  EXPECT_EQ(to_nfc(behind, buffer), behind);
}

TEST(ToNfc, LongRunsOfMarksTakeNoSquareTime) {
  std::string text = "a";
  for (int i = 0; i < 200000; ++i)
    text += i % 2 == 0 ? "\xCC\x95" : "\xCC\x80";  // classes 232, 230
  std::string buffer;
  const std::clock_t start = std::clock();
  const std::string_view out = to_nfc(text, buffer);
  const double seconds = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
  EXPECT_EQ(out.substr(0, 4), "\xC3\xA0\xCC\x80");
  EXPECT_EQ(out.size(), text.size() - 1);
  // A sort by exchanges takes minutes here.
  EXPECT_LT(seconds, 5.0);
}

}  // namespace
}  // namespace artery::codec
