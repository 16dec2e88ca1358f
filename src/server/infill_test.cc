// `suffix` of /v1/completions: the gap's prompt, what ends it, and refusals.

#include "server/stream_fixture.h"

namespace artery::server {
namespace {

constexpr std::string_view kPath = "/v1/completions";
constexpr TokenId kPrefix = kMoreControlTokens, kSuffix = kPrefix + 1, kMiddle = kPrefix + 2,
                  kPad = kPrefix + 3;

class InfillTest : public StreamTest {
 protected:
  void start_infill() {
    more_control = {"<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>", "<|fim_pad|>"};
    start();
  }
};

TEST_F(InfillTest, FillsTheGap) {
  start_infill();
  say("b");
  const std::string body = R"({"prompt":"a","suffix":"c","n":2,"logprobs":1})";
  const json::value whole = post(kPath, body).json();
  EXPECT_EQ(
      engine->requests().back().prompt, (std::vector<TokenId>{kPrefix, 'a', kSuffix, 'c', kMiddle})
  );
  EXPECT_EQ(whole.at("choices").as_array().size(), 2U);
  EXPECT_EQ(text_of(whole.at("choices").at(1).at("text")), "b");
  EXPECT_EQ(whole.at("usage").at("prompt_tokens").as_int64(), 5);
  EXPECT_EQ(join(stream(std::string(kPath), body), 2).texts[0], "b");
  post(kPath, R"({"prompt":["a","d"],"suffix":"c"})");
  EXPECT_EQ(
      engine->requests().back().prompt, (std::vector<TokenId>{kPrefix, 'd', kSuffix, 'c', kMiddle})
  );
}

TEST_F(InfillTest, MarksEndIt) {
  start_infill();
  post(kPath, R"({"prompt":"a","suffix":"c"})");
  const auto ends = engine->requests().back().sampling.stop_ids;
  for (const TokenId id : {kEndToken, kPad, kMiddle, kPrefix}) {
    EXPECT_EQ(std::count(ends.begin(), ends.end(), id), 1) << id;
  }
  post(kPath, R"({"prompt":"a","suffix":"c","ignore_eos":true})");
  EXPECT_TRUE(engine->requests().back().sampling.stop_ids.empty());
  post(kPath, R"({"prompt":"a","suffix":""})");
  EXPECT_EQ(engine->requests().back().sampling.stop_ids, (std::vector<TokenId>{kEndToken}));
  EXPECT_EQ(engine->requests().back().prompt, (std::vector<TokenId>{'a'})) << "none is asked for";
}

TEST_F(InfillTest, TextsAreData) {
  start_infill();
  post(kPath, R"({"prompt":"<|fim_middle|>","suffix":"<|end|>"})");
  const auto prompt = engine->requests().back().prompt;
  EXPECT_EQ(std::count(prompt.begin(), prompt.end(), kMiddle), 1);
  EXPECT_EQ(std::count(prompt.begin(), prompt.end(), kEndToken), 0);
}

TEST_F(InfillTest, RefusesByName) {
  start_infill();
  const char* bad[] = {
      R"({"prompt":"a","suffix":"c","echo":true})",
      R"({"prompt":[1,2],"suffix":"c"})",
      R"({"prompt":"a","suffix":7})",
  };
  for (const char* body : bad) {
    const TestResponse response = post(kPath, body);
    EXPECT_EQ(response.status, 400) << body;
    EXPECT_EQ(text_of(response.json().at("error").at("param")), "suffix") << response.body;
  }
  const TestResponse chat =
      post("/v1/chat/completions", R"({"messages":[{"role":"user","content":"x"}],"suffix":"c"})");
  EXPECT_EQ(chat.status, 400);
  EXPECT_NE(chat.body.find("/v1/completions"), std::string::npos) << chat.body;
}

TEST_F(InfillTest, AModelWithoutMarksSaysSo) {
  start();
  const TestResponse response = post(kPath, R"({"prompt":"a","suffix":"c"})");
  EXPECT_EQ(response.status, 400);
  EXPECT_EQ(text_of(response.json().at("error").at("param")), "suffix");
  EXPECT_NE(response.body.find("no tokens that mark a gap"), std::string::npos) << response.body;
}

}  // namespace
}  // namespace artery::server
