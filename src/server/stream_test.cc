// Generation: streams and whole answers from the same deltas, byte by byte.

#include "server/stream_fixture.h"

namespace artery::server {
namespace {

TEST_F(StreamTest, ChatStreamHasTheShapeClientsExpect) {
  start();
  const TestResponse response =
      stream("/v1/chat/completions", R"({"messages":[{"role":"user","content":"x"}]})");
  EXPECT_EQ(response.status, 200);
  EXPECT_EQ(response.header("content-type"), "text/event-stream; charset=utf-8");
  EXPECT_EQ(response.header("x-accel-buffering"), "no");
  EXPECT_EQ(response.header("cache-control"), "no-cache");
  const auto lines = events(response.body);
  ASSERT_GE(lines.size(), 4U);
  EXPECT_EQ(lines.back(), "[DONE]");
  const auto first = json::parse(lines.front());
  EXPECT_EQ(text_of(first.at("object")), "chat.completion.chunk");
  EXPECT_EQ(text_of(first.at("choices").at(0).at("delta").at("role")), "assistant");
  const auto last = json::parse(lines[lines.size() - 2]);
  EXPECT_TRUE(last.at("choices").at(0).at("delta").as_object().empty());
  EXPECT_EQ(text_of(last.at("choices").at(0).at("finish_reason")), "stop");
  for (std::size_t i = 0; i + 1 < lines.size(); ++i) {
    const auto chunk = json::parse(lines[i]);
    EXPECT_EQ(chunk.at("choices").as_array().size(), 1U);
    EXPECT_FALSE(chunk.as_object().contains("usage"));
    EXPECT_EQ(chunk.at("id"), first.at("id"));
    EXPECT_EQ(chunk.at("created"), first.at("created"));
  }
  EXPECT_EQ(join(response).texts[0], "Hello");
}

TEST_F(StreamTest, UsageChunkComesOnlyWhenAskedFor) {
  start();
  for (const char* path : {"/v1/chat/completions", "/v1/completions"}) {
    const std::string prompt = R"("messages":[{"role":"user","content":"x"}],"prompt":"x")";
    const TestResponse response =
        post(path, "{" + prompt + R"(,"stream":true,"stream_options":{"include_usage":true}})");
    const auto lines = events(response.body);
    ASSERT_GE(lines.size(), 3U);
    const auto last = json::parse(lines[lines.size() - 2]);
    EXPECT_TRUE(last.at("choices").as_array().empty());
    for (std::size_t i = 0; i + 2 < lines.size(); ++i) {
      EXPECT_TRUE(json::parse(lines[i]).at("usage").is_null()) << lines[i];
    }
    const auto whole = post(path, "{" + prompt + "}").json();
    EXPECT_EQ(last.at("usage"), whole.at("usage"));
    const auto& usage = whole.at("usage");
    const auto prompt_tokens = usage.at("prompt_tokens").as_int64();
    EXPECT_EQ(usage.at("completion_tokens").as_int64(), 6);  // Hello and the end token
    EXPECT_EQ(usage.at("total_tokens").as_int64(), prompt_tokens + 6);
    EXPECT_EQ(usage.at("prompt_tokens_details").at("cached_tokens").as_int64(), prompt_tokens / 2);
    EXPECT_EQ(
        usage.at("prompt_cache_hit_tokens").as_int64() +
            usage.at("prompt_cache_miss_tokens").as_int64(),
        prompt_tokens
    );
  }
}

TEST_F(StreamTest, ContinuousUsageIsInEveryChunk) {
  start();
  const TestResponse response = post(
      "/v1/completions",
      R"({"prompt":"abc","stream":true,"stream_options":{"include_usage":true,"continuous_usage_stats":true}})"
  );
  std::int64_t before = 0;
  for (const std::string& line : events(response.body)) {
    if (line == "[DONE]") break;
    const auto usage = json::parse(line).at("usage");
    EXPECT_EQ(usage.at("prompt_tokens").as_int64(), 3);
    EXPECT_GE(usage.at("completion_tokens").as_int64(), before);
    before = usage.at("completion_tokens").as_int64();
  }
  EXPECT_EQ(before, 6);
}

TEST_F(StreamTest, CharactersAreNeverCut) {
  start();
  const std::string text = "😹 日本語 नमस्ते 👩‍👩‍👧‍👦 🙂";
  say(text);
  for (const int burst : {1, 2, 3, 7, 1000}) {
    engine->set_tokens_per_event(burst);
    for (const char* path : {"/v1/chat/completions", "/v1/completions"}) {
      const std::string body =
          R"({"messages":[{"role":"user","content":"x"}],"prompt":"x","max_tokens":160})";
      const TestResponse response = stream(path, body);
      EXPECT_EQ(response.body.find("\xEF\xBF\xBD"), std::string::npos);
      EXPECT_EQ(join(response).texts[0], text);
      const auto choice = post(path, body).json().at("choices").at(0);
      EXPECT_EQ(
          text_of(
              choice.as_object().contains("text") ? choice.at("text")
                                                  : choice.at("message").at("content")
          ),
          text
      );
    }
  }
  // What can never become a character is shown as one, not dropped and not passed on.
  say("a\xff\xf0\x9f");
  EXPECT_EQ(
      join(stream("/v1/completions", R"({"prompt":"x"})")).texts[0], "a\xEF\xBF\xBD\xEF\xBF\xBD"
  );
}

TEST_F(StreamTest, StopStringsAcrossTokens) {
  start();
  const std::string said = "She loved to play outside.\nOne day";
  say(said);
  struct Case {
    const char* stop;
    std::size_t length;       // characters before the stop string
    std::int64_t completion;  // tokens up to the one that completed it
    const char* finish;
  };
  const Case cases[] = {
      {R"([" loved to"])", 3, 12, "stop"},
      {R"("ed to pl")", 7, 15, "stop"},
      {R"(["zzz","\n"])", 26, 27, "stop"},
      {R"("outsider")", said.size(), static_cast<std::int64_t>(said.size()) + 1, "stop"},
      {R"(["play","lay"])", 13, 17, "stop"},
  };
  for (const int burst : {1, 3, 1000}) {
    engine->set_tokens_per_event(burst);
    for (const Case& one : cases) {
      const std::string body =
          fmt::format(R"({{"prompt":"x","max_tokens":64,"stop":{}}})", one.stop);
      const std::string expected = said.substr(0, one.length);
      const auto whole = post("/v1/completions", body).json();
      EXPECT_EQ(text_of(whole.at("choices").at(0).at("text")), expected) << body;
      EXPECT_EQ(text_of(whole.at("choices").at(0).at("finish_reason")), one.finish);
      EXPECT_EQ(whole.at("usage").at("completion_tokens").as_int64(), one.completion) << body;
      const TestResponse response = stream("/v1/completions", body);
      const Joined joined = join(response);
      EXPECT_EQ(joined.texts[0], expected) << body << burst;
      EXPECT_EQ(joined.finish[0], one.finish);
    }
  }
  const auto with =
      post(
          "/v1/completions",
          R"({"prompt":"x","max_tokens":64,"stop":" loved","include_stop_str_in_output":true})"
      )
          .json();
  EXPECT_EQ(text_of(with.at("choices").at(0).at("text")), "She loved");
  EXPECT_EQ(text_of(with.at("choices").at(0).at("stop_reason")), " loved");
  const auto late =
      post("/v1/completions", R"({"prompt":"x","max_tokens":64,"stop":"o","min_tokens":8})").json();
  EXPECT_EQ(text_of(late.at("choices").at(0).at("text")), "She loved t");
  // The engine is told, so that it does not go on until the limit.
  EXPECT_TRUE(eventually([&] { return engine->status().running == 0; }));
}

TEST_F(StreamTest, EndTokensFollowTheRequest) {
  start();
  post("/v1/completions", R"({"prompt":"x","stop_token_ids":[65]})");
  post("/v1/completions", R"({"prompt":"x","stop_token_ids":[65],"ignore_eos":true})");
  const auto seen = engine->requests();
  ASSERT_EQ(seen.size(), 2U);
  EXPECT_EQ(seen[0].sampling.stop_ids, (std::vector<TokenId>{65, kEndToken}));
  EXPECT_EQ(seen[1].sampling.stop_ids, (std::vector<TokenId>{65}));
  engine->set_author([](const engine::Request&, int) {
    return FakeEngine::Script{byte_ids("hi"), 65, {}};
  });
  auto choice =
      post("/v1/completions", R"({"prompt":"x","stop_token_ids":[65]})").json().at("choices").at(0);
  EXPECT_EQ(text_of(choice.at("text")), "hi");
  EXPECT_EQ(choice.at("stop_reason").as_int64(), 65);
  choice = post(
               "/v1/completions",
               R"({"prompt":"x","stop_token_ids":[65],"include_stop_str_in_output":true})"
  )
               .json()
               .at("choices")
               .at(0);
  EXPECT_EQ(text_of(choice.at("text")), "hiA");
  // An end token's text is never content.
  say("");
  const auto empty = post("/v1/completions", R"({"prompt":"x"})").json();
  EXPECT_EQ(text_of(empty.at("choices").at(0).at("text")), "");
  EXPECT_EQ(text_of(empty.at("choices").at(0).at("finish_reason")), "stop");
}

TEST_F(StreamTest, PassesSamplingOn) {
  start();
  post(
      "/v1/chat/completions",
      R"({"messages":[{"role":"user","content":"x"}],"temperature":0.5,"top_p":0.9,"top_k":7,"min_p":0.1,)"
      R"("presence_penalty":0.25,"frequency_penalty":-0.5,"repetition_penalty":1.25,"seed":-1,"n":3,)"
      R"("max_tokens":9,"max_completion_tokens":11,"min_tokens":2,"logit_bias":{"5":-100},"priority":-3,)"
      R"("cache_salt":"s","logprobs":true,"top_logprobs":4})"
  );
  post("/v1/completions", R"({"prompt":"x"})");
  post("/v1/completions", R"({"prompt":"x"})");
  const auto seen = engine->requests();
  ASSERT_EQ(seen.size(), 3U);
  const engine::SamplingParams& s = seen[0].sampling;
  EXPECT_EQ(s.temperature, 0.5);
  EXPECT_EQ(s.top_p, 0.9);
  EXPECT_EQ(s.top_k, 7);
  EXPECT_EQ(s.min_p, 0.1);
  EXPECT_EQ(s.presence_penalty, 0.25);
  EXPECT_EQ(s.frequency_penalty, -0.5);
  EXPECT_EQ(s.repetition_penalty, 1.25);
  EXPECT_EQ(s.seed, ~std::uint64_t{0});
  EXPECT_EQ(s.min_tokens, 2);
  EXPECT_EQ(s.logprobs, 4);
  EXPECT_EQ(s.logit_bias, (std::vector<std::pair<TokenId, float>>{{5, -100.0F}}));
  EXPECT_EQ(seen[0].n, 3);
  EXPECT_EQ(seen[0].max_tokens, 11);
  EXPECT_EQ(seen[0].priority, -3);
  EXPECT_EQ(seen[0].salt, "s");
  EXPECT_EQ(seen[1].sampling.temperature, 1.0);
  EXPECT_EQ(seen[1].max_tokens, 16);
  EXPECT_EQ(seen[1].sampling.logprobs, -1);
  // Without a seed each request has its own.
  EXPECT_NE(seen[1].sampling.seed, seen[2].sampling.seed);
}

TEST_F(StreamTest, TheServersSeedIsForRequestsWithout) {
  config.seed = 7;
  start();
  post("/v1/completions", R"({"prompt":"x"})");
  post("/v1/completions", R"({"prompt":"x","seed":9})");
  const auto seen = engine->requests();
  ASSERT_EQ(seen.size(), 2U);
  EXPECT_EQ(seen[0].sampling.seed, 7U);
  EXPECT_EQ(seen[1].sampling.seed, 9U);
}

TEST_F(StreamTest, SeveralPromptsAndChoices) {
  start();
  engine->set_author([](const engine::Request& request, int choice) {
    return FakeEngine::Script{
        byte_ids(fmt::format("{}{}", static_cast<char>(request.prompt[0]), choice)), kEndToken, {}
    };
  });
  for (const char* prompts : {R"(["a","b","c"])", "[[97],[98],[99]]"}) {
    const std::string body = fmt::format(R"({{"prompt":{},"n":2}})", prompts);
    const auto whole = post("/v1/completions", body).json();
    const auto& choices = whole.at("choices").as_array();
    ASSERT_EQ(choices.size(), 6U);
    const Joined joined = join(stream("/v1/completions", body), 6);
    const char* expected[] = {"a0", "a1", "b0", "b1", "c0", "c1"};
    for (std::size_t i = 0; i < 6; ++i) {
      EXPECT_EQ(choices[i].at("index").as_int64(), static_cast<std::int64_t>(i));
      EXPECT_EQ(text_of(choices[i].at("text")), expected[i]);
      EXPECT_EQ(joined.texts[i], expected[i]);
      EXPECT_EQ(joined.finish[i], "stop");
    }
    EXPECT_EQ(whole.at("usage").at("prompt_tokens").as_int64(), 3);
    EXPECT_EQ(whole.at("usage").at("completion_tokens").as_int64(), 18);
  }
}

TEST_F(StreamTest, LogprobsOfCompletions) {
  start();
  say("h\xC3\xA9");
  const auto whole = post("/v1/completions", R"({"prompt":"x","logprobs":3})");
  EXPECT_EQ(whole.body.find("nfinity"), std::string::npos);
  EXPECT_EQ(whole.body.find("NaN"), std::string::npos);
  const auto answer = whole.json();
  const auto& logprobs = answer.at("choices").at(0).at("logprobs");
  EXPECT_EQ(json::serialize(logprobs.at("tokens")), R"(["h","bytes:\\xc3","bytes:\\xa9"])");
  EXPECT_EQ(json::serialize(logprobs.at("text_offset")), "[0,1,2]");
  EXPECT_EQ(logprobs.at("token_logprobs").at(0).as_double(), -0.25);
  const auto& top = logprobs.at("top_logprobs").at(0).as_object();
  EXPECT_EQ(top.size(), 3U);
  EXPECT_EQ(top.at("h").as_double(), -0.25);
  EXPECT_EQ(top.at("j").to_number<double>(), -9999.0);
  const Joined joined = join(stream("/v1/completions", R"({"prompt":"x","logprobs":3})"));
  EXPECT_EQ(joined.logprob_tokens[0], logprobs.at("tokens").as_array());
  // 0: the chosen one only.
  const auto chosen = post("/v1/completions", R"({"prompt":"x","logprobs":0})").json();
  EXPECT_EQ(
      chosen.at("choices").at(0).at("logprobs").at("top_logprobs").at(0).as_object().size(), 1U
  );
  EXPECT_TRUE(post("/v1/completions", R"({"prompt":"x"})")
                  .json()
                  .at("choices")
                  .at(0)
                  .at("logprobs")
                  .is_null());
}

TEST_F(StreamTest, LogprobsOfChat) {
  start();
  say("\xC3\xA9");
  const std::string body =
      R"({"messages":[{"role":"user","content":"x"}],"logprobs":true,"top_logprobs":2})";
  const auto answer = post("/v1/chat/completions", body).json();
  const auto& content = answer.at("choices").at(0).at("logprobs").at("content").as_array();
  ASSERT_EQ(content.size(), 2U);
  EXPECT_EQ(json::serialize(content[0].at("bytes")), "[195]");
  EXPECT_EQ(content[0].at("top_logprobs").as_array().size(), 2U);
  EXPECT_EQ(content[0].at("top_logprobs").at(0).at("logprob"), content[0].at("logprob"));
  EXPECT_EQ(content[0].at("top_logprobs").at(1).at("logprob").to_number<double>(), -9999.0);
  const Joined joined = join(stream("/v1/chat/completions", body));
  EXPECT_EQ(joined.logprob_tokens[0], content);
  EXPECT_EQ(joined.texts[0], "\xC3\xA9");
}

TEST_F(StreamTest, EchoesThePrompt) {
  add_bos = true;
  start();
  say("!!");
  EXPECT_EQ(join(stream("/v1/completions", R"({"prompt":"abc","echo":true})")).texts[0], "abc!!");
  EXPECT_EQ(
      text_of(post("/v1/completions", R"({"prompt":[257,97],"echo":true})")
                  .json()
                  .at("choices")
                  .at(0)
                  .at("text")),
      "a!!"
  );
  const std::string scored = R"({"prompt":"abc","echo":true,"logprobs":1,"n":2})";
  const auto answer = post("/v1/completions", scored).json();
  for (int i = 0; i < 2; ++i) {
    const auto& choice = answer.at("choices").at(static_cast<std::size_t>(i));
    EXPECT_EQ(text_of(choice.at("text")), "abc!!");
    const auto& logprobs = choice.at("logprobs");
    EXPECT_EQ(json::serialize(logprobs.at("tokens")), R"(["<|start|>","a","b","c","!","!"])");
    EXPECT_TRUE(logprobs.at("token_logprobs").at(0).is_null());
    EXPECT_TRUE(logprobs.at("top_logprobs").at(0).is_null());
    EXPECT_EQ(logprobs.at("token_logprobs").at(1).as_double(), -0.25);
    EXPECT_EQ(json::serialize(logprobs.at("text_offset")), "[0,0,1,2,3,4]");
  }
  const Joined joined = join(stream("/v1/completions", scored), 2);
  EXPECT_EQ(joined.texts[1], "abc!!");
  EXPECT_EQ(joined.logprob_tokens[1].size(), 6U);
  EXPECT_EQ(engine->requests().back().prompt_logprobs, 1);
  // A question about the prompt alone.
  const auto none =
      post("/v1/completions", R"({"prompt":"abc","echo":true,"max_tokens":0,"logprobs":1})").json();
  EXPECT_EQ(text_of(none.at("choices").at(0).at("text")), "abc");
  EXPECT_EQ(text_of(none.at("choices").at(0).at("finish_reason")), "length");
  EXPECT_EQ(none.at("usage").at("completion_tokens").as_int64(), 0);
}

TEST_F(StreamTest, TimingsWhenAskedFor) {
  start();
  const auto answer = post("/v1/completions", R"({"prompt":"abcd","timings":true})").json();
  const auto& timings = answer.at("timings");
  EXPECT_EQ(timings.at("queue_s").to_number<double>(), 0.5);
  EXPECT_EQ(timings.at("decode_s").to_number<double>(), 4.0);
  // The first token is prefill's.
  const auto generated = answer.at("usage").at("completion_tokens").to_number<double>();
  ASSERT_GT(generated, 1);
  EXPECT_EQ(timings.at("decode_tokens_per_s").to_number<double>(), (generated - 1) / 4.0);
  EXPECT_EQ(timings.at("prompt_tokens_computed").as_int64(), 2);
  EXPECT_EQ(timings.at("prefill_tokens_per_s").to_number<double>(), 1.0);
  EXPECT_FALSE(
      post("/v1/completions", R"({"prompt":"abcd"})").json().as_object().contains("timings")
  );
  const auto lines = events(stream("/v1/completions", R"({"prompt":"abcd","timings":true})").body);
  EXPECT_TRUE(json::parse(lines[lines.size() - 2]).as_object().contains("timings"));
}

TEST_F(StreamTest, ContextLimits) {
  start();
  say(std::string(600, 'y'));
  const std::string long_prompt(513, 'x');
  const std::string messages =
      R"({"messages":[{"role":"user","content":")" + long_prompt + R"("}],"stream":true})";
  for (const std::string& body :
       {R"({"prompt":")" + long_prompt + R"("})",
        R"({"prompt":")" + long_prompt + R"(","stream":true})"}) {
    const TestResponse response = post("/v1/completions", body);
    EXPECT_EQ(response.status, 400);
    EXPECT_EQ(response.error("code"), "context_length_exceeded");
    EXPECT_EQ(response.error("param"), "prompt");
    EXPECT_NE(response.error("message").find("513"), std::string::npos);
    EXPECT_NE(response.error("message").find("512"), std::string::npos);
    EXPECT_EQ(response.header("content-type"), "application/json");
  }
  EXPECT_EQ(post("/v1/chat/completions", messages).error("param"), "messages");
  // max_tokens beyond the room is clipped.
  const auto fits =
      post("/v1/completions", R"({"prompt":")" + std::string(500, 'x') + R"(","max_tokens":32000})")
          .json();
  EXPECT_EQ(fits.at("usage").at("completion_tokens").as_int64(), 12);
  EXPECT_EQ(text_of(fits.at("choices").at(0).at("finish_reason")), "length");
}

TEST_F(StreamTest, RefusesWhenFull) {
  start();
  engine->set_inbox_max(1);
  engine->pause(true);
  TestClient first(server->port());
  first.send(message("POST", "/v1/completions", "", R"({"prompt":"a"})"));
  ASSERT_TRUE(eventually([&] { return engine->status().running == 1; }));
  for (const char* body :
       {R"({"prompt":"a"})", R"({"prompt":"a","stream":true})", R"({"prompt":["a","b"]})"}) {
    const TestResponse response = post("/v1/completions", body);
    EXPECT_EQ(response.status, 429);
    EXPECT_NE(response.header("retry-after"), "");
    EXPECT_EQ(response.error("type"), "rate_limit_error");
  }
  engine->pause(false);
  EXPECT_EQ(first.read_response().status, 200);
  // Half of the prompts fit: none may stay behind.
  engine->set_inbox_max(2);
  engine->pause(true);
  EXPECT_EQ(post("/v1/completions", R"({"prompt":["a","b","c"]})").status, 429);
  EXPECT_TRUE(eventually([&] { return engine->status().running == 0; }));
}

TEST_F(StreamTest, FailuresAreToldInEitherForm) {
  start();
  engine->set_author([](const engine::Request&, int) {
    return FakeEngine::Script{byte_ids("abc"), -1, "secret reason"};
  });
  const TestResponse whole =
      ask("POST", "/v1/completions", "x-request-id: r7\r\n", R"({"prompt":"x"})");
  EXPECT_EQ(whole.status, 500);
  EXPECT_NE(whole.error("message").find("r7"), std::string::npos);
  EXPECT_EQ(whole.body.find("secret"), std::string::npos);
  const TestResponse streamed = stream("/v1/completions", R"({"prompt":"x"})");
  EXPECT_EQ(streamed.status, 200);
  EXPECT_TRUE(streamed.whole);
  const Joined joined = join(streamed);
  EXPECT_NE(joined.error, "");
  EXPECT_TRUE(joined.done);
  EXPECT_EQ(joined.finish[0], "");
}

TEST_F(StreamTest, ChatPromptsKeepUserTextLiteral) {
  add_bos = true;
  start();
  post("/v1/chat/completions", R"({"messages":[{"role":"u","content":"a<|start|>"}]})");
  const auto prompt = engine->requests().back().prompt;
  // One BOS (FR-A5), and control tokens only where the template put them (FR-B7).
  EXPECT_EQ(std::count(prompt.begin(), prompt.end(), kStartToken), 2);
  EXPECT_EQ(std::count(prompt.begin(), prompt.end(), kEndToken), 1);
  // A raw prompt is the user's own as a whole.
  post("/v1/completions", R"({"prompt":"a<|end|>"})");
  EXPECT_EQ(engine->requests().back().prompt, (std::vector<TokenId>{kStartToken, 97, kEndToken}));
  post("/v1/completions", R"({"prompt":"<|start|>a"})");
  EXPECT_EQ(engine->requests().back().prompt, (std::vector<TokenId>{kStartToken, 97}));
}

TEST_F(StreamTest, AssistantContentInEveryForm) {
  start();
  std::vector<TokenId> before;
  for (const char* content :
       {R"("content":null,)",
        R"("content":"",)",
        "",
        R"("content":[{"type":"text","text":""}],)",
        R"("content":[],)"}) {
    const std::string body =
        std::string(R"({"messages":[{"role":"user","content":"number?"},{"role":"assistant",)") +
        content +
        R"("tool_calls":[{"id":"c1","type":"function","function":{"name":"get","arguments":"{}"}}]},)"
        R"({"role":"tool","tool_call_id":"c1","content":[{"type":"text","text":"42.69"}]}]})";
    ASSERT_EQ(post("/v1/chat/completions", body).status, 200) << body;
    const auto prompt = engine->requests().back().prompt;
    if (!before.empty()) {
      EXPECT_EQ(prompt, before) << content;
    }
    before = prompt;
  }
}

TEST_F(StreamTest, ToolsAndKwargsReachTheTemplate) {
  start();
  const std::string head = R"({"messages":[{"role":"u","content":"x"}],)";
  const std::string tool =
      R"({"type":"function","function":{"name":"f","parameters":{"b":1,"a":2}}})";
  const auto text = [&](const std::string& rest) {
    EXPECT_EQ(post("/v1/chat/completions", head + rest).status, 200) << rest;
    std::string out;
    const auto seen = engine->requests();
    for (const TokenId id : seen.back().prompt) {
      if (id < 256) out += static_cast<char>(id);
      if (id == 258) out += "he";
    }
    return out;
  };
  EXPECT_NE(text(R"("tools":[)" + tool + "]}").find("[" + tool + "]"), std::string::npos);
  EXPECT_EQ(
      text(R"("tool_choice":"none","tools":[)" + tool + "]}").find("parameters"), std::string::npos
  );
  EXPECT_NE(
      text(R"("chat_template_kwargs":{"thinking":false}})").find(R"({"thinking":false})"),
      std::string::npos
  );
  EXPECT_EQ(text(R"("continue_final_message":true})"), "u\nx");
}

}  // namespace
}  // namespace artery::server
