#include "codec/special_tokens.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <string>
#include <vector>

namespace artery::codec {
namespace {

struct Token {
  std::string text;
  bool control;
};

// The definition: at each place the longest token that may stand there.
SpecialMatch find_by_definition(
    const std::vector<Token>& tokens, const std::string& text, bool parse, ByteRange literal
) {
  for (std::size_t pos = 0; pos < text.size(); ++pos) {
    SpecialMatch best{text.size(), text.size(), -1};
    for (std::size_t id = 0; id < tokens.size(); ++id) {
      const auto& [token, control] = tokens[id];
      const std::size_t end = pos + token.size();
      if (token.empty() || text.compare(pos, token.size(), token) != 0) continue;
      const bool overlaps = literal.begin < end && pos < literal.end && literal.begin < literal.end;
      if (control && (!parse || overlaps)) continue;
      if (best.id < 0 || end > best.end) best = {pos, end, static_cast<TokenId>(id)};
    }
    if (best.id >= 0) return best;
  }
  return {text.size(), text.size(), -1};
}

TEST(SpecialTokens, EqualTheDefinition) {
  EXPECT_TRUE(rc::check([] {
    const auto letters = [](const char* from) {
      return rc::gen::container<std::string>(rc::gen::elementOf(std::string(from)));
    };
    const std::string alphabet = *rc::gen::element<std::string>("<|x", "<x", "abc<");
    std::vector<Token> tokens;
    SpecialTokens special;
    for (int i = *rc::gen::inRange(0, 40); i > 0; --i) {
      Token token{*letters(alphabet.c_str()), *rc::gen::arbitrary<bool>()};
      bool known = false;
      for (const Token& other : tokens) known = known || other.text == token.text;
      if (known) continue;
      special.add(token.text, static_cast<TokenId>(tokens.size()), token.control);
      tokens.push_back(token);
    }
    const std::string text = *letters((alphabet + "y").c_str());
    const auto begin = *rc::gen::inRange<std::size_t>(0, text.size() + 1);
    const ByteRange literal{begin, begin + *rc::gen::inRange<std::size_t>(0, 4)};
    const bool parse = *rc::gen::arbitrary<bool>();
    const SpecialMatch want = find_by_definition(tokens, text, parse, literal);
    const SpecialMatch got = special.find(text, 0, parse, {&literal, 1});
    RC_ASSERT(got.id == want.id);
    RC_ASSERT(got.begin == want.begin);
    RC_ASSERT(got.end == want.end);
  }));
}

}  // namespace
}  // namespace artery::codec
