// The server over the real engine and a model that says a given text: what only the two together
// can show. Forced text (FR-A1), leaving clients (FR-G1), counts over the cache (FR-E4).

#include "server/test_client.h"
#include "testing/scripted_model.h"

namespace artery::server {
namespace {

namespace json = boost::json;

class RealEngineTest : public ServerTest {
 protected:
  void start_real(const std::string& text, int step_delay_us = 0) {
    open();
    testing::ScriptedModelConfig model_config;
    model_config.vocab_size = 259;
    model_config.context_length = 2048;
    model_config.end_token = kEndToken;
    model_config.script = byte_ids(text);
    auto model = std::make_unique<testing::ScriptedModel>(model_config);
    model->set_step_delay_us(step_delay_us);
    engine::Config engine_config;
    engine_config.kv_pool_bytes = 64 << 20;
    engine_config.inbox_max = 4096;
    auto made =
        engine::make_engine(std::move(model), engine_config, system_clock(), server->observer());
    ASSERT_TRUE(made) << made.error().message;
    real = made.take();
    Serving serving;
    serving.engine = real;
    auto tokenizer = codec::Tokenizer::make(byte_vocab(false));
    ASSERT_TRUE(tokenizer);
    serving.tokenizer = tokenizer.take();
    serving.chat_template = std::make_shared<TestTemplate>();
    serving.model_name = "tiny";
    serving.system_fingerprint = "fp_test";
    server->attach(std::move(serving));
  }
  std::int64_t status_field(const char* field) {
    return get("/artery/status").json().at(field).as_int64();
  }

  std::shared_ptr<engine::Engine> real;
};

TEST_F(RealEngineTest, SaysTheForcedTextInEveryForm) {
  const std::string text = "😹 日本語 नमस्ते 👩‍👩‍👧‍👦 🙂";
  start_real(text);
  const std::string body =
      R"({"messages":[{"role":"user","content":"x"}],"prompt":"x","max_tokens":160,"temperature":0)";
  for (const char* path : {"/v1/completions", "/v1/chat/completions"}) {
    const auto whole = post(path, body + "}").json();
    const auto& choice = whole.at("choices").at(0).as_object();
    const json::value& said =
        choice.contains("text") ? choice.at("text") : choice.at("message").at("content");
    EXPECT_EQ(said.as_string(), text);
    EXPECT_EQ(choice.at("finish_reason").as_string(), "stop");
    const TestResponse response = post(path, body + R"(,"stream":true})");
    EXPECT_EQ(response.body.find("\xEF\xBF\xBD"), std::string::npos);
    std::string joined;
    for (const std::string& event : events(response.body)) {
      if (event == "[DONE]") continue;
      const json::value chunk = json::parse(event);
      for (const json::value& part : chunk.at("choices").as_array()) {
        const json::object& fields = part.as_object();
        if (fields.contains("text")) joined += fields.at("text").as_string().c_str();
        if (fields.contains("delta") && fields.at("delta").as_object().contains("content")) {
          joined += fields.at("delta").at("content").as_string().c_str();
        }
      }
    }
    EXPECT_EQ(joined, text);
  }
}

TEST_F(RealEngineTest, StopStringsEndTheEnginesWork) {
  start_real(std::string(300, 'y') + "STOP" + std::string(1000, 'z'));
  const auto answer =
      post("/v1/completions", R"({"prompt":"x","max_tokens":2000,"temperature":0,"stop":"STOP"})")
          .json();
  EXPECT_EQ(answer.at("choices").at(0).at("text").as_string(), std::string(300, 'y'));
  EXPECT_EQ(answer.at("usage").at("completion_tokens").as_int64(), 304);
  EXPECT_TRUE(eventually([&] { return real->status().pages_in_use == 0; }));
  EXPECT_LT(real->status().generated_tokens, 1000);
}

TEST_F(RealEngineTest, CountsPromptTokensTheSameWithAndWithoutTheCache) {
  start_real("ok");
  const std::string body =
      R"({"prompt":")" + std::string(400, 'p') + R"(","temperature":0,"timings":true})";
  const auto tokens = post("/tokenize", R"({"prompt":")" + std::string(400, 'p') + R"("})").json();
  std::int64_t cached[2] = {0, 0};
  for (int i = 0; i < 2; ++i) {
    const auto answer = post("/v1/completions", body).json();
    const auto& usage = answer.at("usage");
    EXPECT_EQ(usage.at("prompt_tokens").as_int64(), tokens.at("count").as_int64());
    cached[i] = usage.at("prompt_tokens_details").at("cached_tokens").as_int64();
    EXPECT_LE(cached[i], 399);
    EXPECT_EQ(
        usage.at("prompt_cache_hit_tokens").as_int64() +
            usage.at("prompt_cache_miss_tokens").as_int64(),
        400
    );
    EXPECT_EQ(answer.at("timings").at("prompt_tokens_computed").as_int64(), 400 - cached[i]);
  }
  EXPECT_EQ(cached[0], 0);
  EXPECT_GT(cached[1], 300);
  EXPECT_EQ(ask("POST", "/reset_prefix_cache").status, 200);
  const auto again = post("/v1/completions", body).json();
  EXPECT_EQ(again.at("usage").at("prompt_cache_hit_tokens").as_int64(), 0);
}

TEST_F(RealEngineTest, LongPromptsAreRefusedWithBothNumbers) {
  start_real("ok");
  for (const char* more : {"", R"(,"stream":true)"}) {
    const TestResponse response =
        post("/v1/completions", R"({"prompt":")" + std::string(2049, 'p') + "\"" + more + "}");
    EXPECT_EQ(response.status, 400);
    EXPECT_EQ(response.error("code"), "context_length_exceeded");
    EXPECT_NE(response.error("message").find("2049"), std::string::npos);
    EXPECT_NE(response.error("message").find("2048"), std::string::npos);
  }
}

TEST_F(RealEngineTest, ScoresThePrompt) {
  start_real("ok");
  const auto answer =
      post("/v1/completions", R"({"prompt":"abc","echo":true,"max_tokens":0,"logprobs":2})").json();
  const auto& choice = answer.at("choices").at(0);
  EXPECT_EQ(choice.at("text").as_string(), "abc");
  const auto& logprobs = choice.at("logprobs");
  EXPECT_EQ(logprobs.at("tokens").as_array().size(), 3U);
  EXPECT_TRUE(logprobs.at("token_logprobs").at(0).is_null());
  EXPECT_TRUE(logprobs.at("token_logprobs").at(1).is_number());
  EXPECT_EQ(answer.at("usage").at("completion_tokens").as_int64(), 0);
}

TEST_F(RealEngineTest, AThousandAbortsLeaveNoPageBehind) {
  start_real(std::string(1500, 'y'), 200);
  std::uint64_t state = 7;
  for (int i = 0; i < 1000; ++i) {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    const std::uint64_t draw = state >> 33;
    TestClient client(server->port());
    const std::string prompt(1 + draw % 60, static_cast<char>('a' + draw % 26));
    client.send(message(
        "POST",
        "/v1/completions",
        "",
        fmt::format(
            R"({{"prompt":"{}","max_tokens":1500,"stream":{},"n":{}}})",
            prompt,
            draw % 3 != 0,
            1 + draw % 2
        )
    ));
    if (draw % 7 == 0) client.fill(static_cast<int>(draw % 20));
    if (draw % 2 == 0) client.reset();
  }
  EXPECT_TRUE(
      eventually([&] { return real->status().running + real->status().waiting == 0; }, 30000)
  );
  // A step under way still holds the pages of those that ended meanwhile.
  EXPECT_TRUE(eventually([&] { return status_field("pages_in_use") == 0; }, 5000));
  EXPECT_GT(real->status().aborted, 0);
  EXPECT_EQ(
      post("/v1/completions", R"({"prompt":"x","max_tokens":3,"temperature":0})")
          .json()
          .at("choices")
          .at(0)
          .at("text")
          .as_string(),
      "yyy"
  );
}

}  // namespace
}  // namespace artery::server
