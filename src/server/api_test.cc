// The API without generation in depth: states, routes, keys, errors, validation, tokenize.

#include <cmath>

#include "server/test_client.h"

namespace artery::server {
namespace {

class ApiTest : public ServerTest {
 protected:
  // A refused body, on both generating paths where `chat` is not empty.
  void expect_refused(const std::string& body, const std::string& param, int status = 400) {
    const TestResponse response = post("/v1/completions", body);
    EXPECT_EQ(response.status, status) << body << "\n" << response.body;
    EXPECT_EQ(response.error("param"), param) << body << "\n" << response.body;
    EXPECT_NE(response.error("message"), "") << body;
    EXPECT_NE(response.error("type"), "") << body;
  }
  struct WrongValues {
    const char* field;
    std::vector<const char*> values;  // JSON
  };
  void expect_each_refused(const std::vector<WrongValues>& cases) {
    for (const WrongValues& one : cases) {
      for (const char* value : one.values) {
        const std::string prompt = std::string(one.field) == "prompt" ? "" : R"("prompt":"a",)";
        expect_refused(fmt::format(R"({{{}"{}":{}}})", prompt, one.field, value), one.field);
      }
    }
  }
  void expect_chat_refused(const std::string& body, const std::string& param, int status = 400) {
    const TestResponse response = post("/v1/chat/completions", body);
    EXPECT_EQ(response.status, status) << body << "\n" << response.body;
    EXPECT_EQ(response.error("param"), param) << body << "\n" << response.body;
  }
};

TEST_F(ApiTest, TellsItsStateWhileLoading) {
  open();
  server->set_load_progress(0.25);
  EXPECT_EQ(get("/live").status, 200);
  EXPECT_EQ(get("/version").status, 200);
  for (const char* path : {"/health", "/ready"}) {
    const TestResponse response = get(path);
    EXPECT_EQ(response.status, 503) << path;
    EXPECT_EQ(response.json().at("progress").as_double(), 0.25);
  }
  EXPECT_NE(get("/metrics").body.find("artery:load_progress 0.25"), std::string::npos);
  const TestResponse refused = post("/v1/completions", R"({"prompt":"a"})");
  EXPECT_EQ(refused.status, 503);
  EXPECT_NE(refused.header("retry-after"), "");
  EXPECT_NE(refused.error("message").find("25 %"), std::string::npos);
  EXPECT_EQ(get("/v1/models").status, 503);
  attach();
  EXPECT_EQ(get("/health").status, 200);
  EXPECT_EQ(get("/ready").status, 200);
  EXPECT_EQ(post("/v1/completions", R"({"prompt":"a"})").status, 200);
}

TEST_F(ApiTest, HealthIsQuickWhileBusyAndFailsWhenStuck) {
  start();
  engine->pause(true);
  TestClient busy(server->port());
  busy.send(message("POST", "/v1/completions", "", R"({"prompt":"a"})"));
  ASSERT_TRUE(eventually([&] { return engine->status().running == 1; }));
  // The quickest of some: on a loaded machine a thread may get no turn for a while.
  auto quickest = std::chrono::steady_clock::duration::max();
  for (int i = 0; i < 20 && quickest > std::chrono::milliseconds(100); ++i) {
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_EQ(get("/health").status, 200);
    EXPECT_EQ(get("/ready").status, 200);
    quickest = std::min(quickest, std::chrono::steady_clock::now() - begin);
  }
  EXPECT_LT(quickest, std::chrono::milliseconds(100));
  engine->set_step_age(10.5);
  const TestResponse stuck = get("/health");
  EXPECT_EQ(stuck.status, 503);
  EXPECT_NE(stuck.body.find("10.5 s"), std::string::npos);
  EXPECT_EQ(get("/live").status, 200);
  engine->pause(false);
  EXPECT_EQ(busy.read_response().status, 200);
  // An idle engine does no steps; that is not being stuck.
  EXPECT_EQ(get("/health").status, 200);
}

TEST_F(ApiTest, DrainsByRefusingNewWorkOnly) {
  start();
  engine->pause(true);
  TestClient running(server->port());
  running.send(message("POST", "/v1/completions", "", R"({"prompt":"a","stream":true})"));
  ASSERT_TRUE(eventually([&] { return engine->status().running == 1; }));
  server->begin_drain();
  EXPECT_EQ(get("/ready").status, 503);
  EXPECT_EQ(get("/health").status, 200);
  const TestResponse refused = post("/v1/completions", R"({"prompt":"a"})");
  EXPECT_EQ(refused.status, 503);
  EXPECT_NE(refused.header("retry-after"), "");
  EXPECT_EQ(server->drain(0.01), 1);
  engine->pause(false);
  EXPECT_EQ(server->drain(30), 0);
  server->stop();  // at once, and still the client has all of its answer
  const TestResponse stream = running.read_response();
  EXPECT_TRUE(stream.whole);
  EXPECT_EQ(events(stream.body).back(), "[DONE]");
}

TEST_F(ApiTest, ListsModelsWithTheirContext) {
  config.served_model_name = "other,tiny";
  start();
  const auto list = get("/v1/models").json();
  EXPECT_EQ(list.at("object").as_string(), "list");
  ASSERT_EQ(list.at("data").as_array().size(), 2U);
  EXPECT_EQ(list.at("data").at(0).at("id").as_string(), "tiny");
  EXPECT_EQ(list.at("data").at(0).at("max_model_len").as_int64(), 512);
  // As Anthropic's clients read the same list.
  EXPECT_EQ(list.at("data").at(1).at("type").as_string(), "model");
  EXPECT_EQ(list.at("data").at(1).at("display_name").as_string(), "other");
  EXPECT_EQ(list.at("data").at(1).at("created_at").as_string().size(), 20U);
  EXPECT_EQ(list.at("last_id").as_string(), "other");
  EXPECT_FALSE(list.at("has_more").as_bool());
  for (const char* name : {"tiny", "other"}) {
    const auto answer =
        post("/v1/completions", fmt::format(R"({{"model":"{}","prompt":"a"}})", name));
    EXPECT_EQ(answer.json().at("model").as_string(), name);
  }
  const TestResponse unknown = post("/v1/completions", R"({"model":"gpt-9","prompt":"a"})");
  EXPECT_EQ(unknown.status, 404);
  EXPECT_EQ(unknown.error("code"), "model_not_found");
  EXPECT_EQ(unknown.error("param"), "model");
}

TEST_F(ApiTest, RoutesByPathAndMethod) {
  start();
  const TestResponse missing = get("/v1/nothing");
  EXPECT_EQ(missing.status, 404);
  EXPECT_EQ(missing.error("type"), "not_found_error");
  const TestResponse wrong = get("/v1/completions");
  EXPECT_EQ(wrong.status, 405);
  EXPECT_EQ(wrong.header("allow"), "POST, OPTIONS");
  EXPECT_EQ(ask("DELETE", "/health").status, 405);
  EXPECT_EQ(ask("HEAD", "/").status, 200);
  const std::string body = R"({"prompt":"a"})";
  EXPECT_EQ(ask("POST", "/v1/completions", "Content-Type: text/plain\r\n", body).status, 415);
  EXPECT_EQ(
      ask("POST", "/tokenize", "Content-Type: application/x-www-form-urlencoded\r\n", body).status,
      415
  );
  EXPECT_EQ(ask("POST", "/tokenize", "", body).status, 200);
  EXPECT_EQ(
      ask("POST", "/tokenize", "Content-Type: Application/JSON; charset=utf-8\r\n", body).status,
      200
  );
}

TEST_F(ApiTest, TakesARootPath) {
  config.root_path = "/llm";
  start();
  EXPECT_EQ(get("/llm/live").status, 200);
  EXPECT_EQ(get("/live").status, 200);
}

TEST_F(ApiTest, AsksForTheKeyWhereOneIsSet) {
  config.api_key = "sekret";
  start();
  for (const char* path : {"/live", "/health", "/ready", "/version"}) {
    EXPECT_EQ(get(path).status, 200) << path;
  }
  EXPECT_EQ(ask("HEAD", "/").status, 200);
  for (const char* path : {"/v1/models", "/metrics"}) {
    EXPECT_EQ(get(path).status, 401) << path;
    EXPECT_EQ(ask("GET", path, "Authorization: Bearer sekret\r\n").status, 200) << path;
    EXPECT_EQ(ask("GET", path, "x-api-key: sekret\r\n").status, 200) << path;
    for (const char* wrong :
         {"Authorization: Bearer sekre\r\n",
          "Authorization: Bearer sekrets\r\n",
          "Authorization: sekret\r\n",
          "Authorization: Bearer \r\n",
          "x-api-key: Sekret\r\n",
          "x-api-key: \r\n"}) {
      EXPECT_EQ(ask("GET", path, wrong).status, 401) << wrong;
    }
  }
  const TestResponse refused = post("/v1/completions", R"({"prompt":"a"})");
  EXPECT_EQ(refused.status, 401);
  EXPECT_EQ(refused.error("code"), "invalid_api_key");
  EXPECT_EQ(refused.body.find("sekret"), std::string::npos);
  // Admin: this machine or the key, but not a proxy on this machine without it.
  EXPECT_EQ(get("/artery/status").status, 200);
  EXPECT_EQ(ask("GET", "/artery/status", "X-Forwarded-For: 9.9.9.9\r\n").status, 401);
  EXPECT_EQ(
      ask("GET", "/artery/status", "X-Forwarded-For: 9.9.9.9\r\nx-api-key: sekret\r\n").status, 200
  );
}

TEST_F(ApiTest, EchoesAndCleansTheRequestId) {
  start();
  EXPECT_EQ(ask("GET", "/live", "X-Request-ID: abc-1\r\n").header("x-request-id"), "abc-1");
  EXPECT_EQ(ask("GET", "/live", "X-Request-ID: a b\"<>\tc\r\n").header("x-request-id"), "abc");
  EXPECT_EQ(get("/live").header("x-request-id").size(), 24U);
  EXPECT_EQ(
      ask("GET", "/live", "X-Request-ID: " + std::string(5000, 'x') + "\r\n")
          .header("x-request-id")
          .size(),
      128U
  );
  EXPECT_EQ(ask("GET", "/no", "X-Request-ID: abc-1\r\n").header("x-request-id"), "abc-1");
}

TEST_F(ApiTest, SpeaksCors) {
  config.allowed_origins = {"https://a.example"};
  start();
  const std::string origin = "Origin: https://a.example\r\n";
  EXPECT_EQ(ask("GET", "/live", origin).header("access-control-allow-origin"), "https://a.example");
  EXPECT_EQ(
      ask("GET", "/live", "Origin: https://b.example\r\n").header("access-control-allow-origin"), ""
  );
  const TestResponse preflight =
      ask("OPTIONS",
          "/v1/completions",
          origin + "Access-Control-Request-Method: POST\r\nAccess-Control-Request-Headers: x-y\r\n"
      );
  EXPECT_EQ(preflight.status, 204);
  EXPECT_EQ(preflight.header("access-control-allow-headers"), "x-y");
  EXPECT_NE(preflight.header("access-control-allow-methods").find("POST"), std::string::npos);
  const TestResponse stream =
      ask("POST", "/v1/completions", origin, R"({"prompt":"a","stream":true})");
  EXPECT_EQ(stream.header("access-control-allow-origin"), "https://a.example");
}

TEST_F(ApiTest, RefusesBrokenJson) {
  start();
  for (const char* body :
       {"",
        "{",
        "[]",
        "null",
        "\"x\"",
        "{\"prompt\":}",
        "{\"prompt\":\"a\"}x",
        "{\"prompt\":\"a\xff\"}",
        "{\"prompt\":\"\\ud800\"}",
        "{\"prompt\":\"a\",\"temperature\":NaN}",
        "{\"prompt\":\"a\",\"temperature\":Infinity}",
        "{'prompt':'a'}"}) {
    for (const char* path :
         {"/v1/completions", "/v1/chat/completions", "/tokenize", "/detokenize"}) {
      const TestResponse response = post(path, body);
      EXPECT_EQ(response.status, 400) << path << " " << body;
      EXPECT_NE(response.error("message"), "") << response.body;
    }
  }
  EXPECT_EQ(post("/v1/completions", R"({"prompt":"a"})").status, 200);
}

TEST_F(ApiTest, RefusesDeepJson) {
  start();
  for (const std::size_t levels : {std::size_t{3000}, std::size_t{10000}, std::size_t{200000}}) {
    const std::string deep = std::string(levels, '[') + "0" + std::string(levels, ']');
    const std::string bodies[] = {
        R"({"prompt":"a","x":)" + deep + "}",
        R"({"messages":[{"role":"user","content":)" + deep + "}]}",
        R"({"messages":[{"role":"user","content":"a"}],"tools":[{"type":"function","function":)"
        R"({"name":"f","parameters":)" +
            deep + "}}]}",
        deep,
        std::string(levels, '[')
    };
    for (const std::string& body : bodies) {
      const TestResponse response = post("/v1/chat/completions", body);
      EXPECT_EQ(response.status, 400);
      EXPECT_NE(response.error("message").find("64"), std::string::npos) << response.body;
    }
    // Inside a string it is only text.
    const std::string arguments =
        R"({"messages":[{"role":"assistant","content":null,"tool_calls":[{"type":"function",)"
        R"("function":{"name":"f","arguments":"{\"a\":)" +
        deep + R"(}"}}]}]})";
    EXPECT_EQ(post("/v1/chat/completions", arguments).status, 200);
  }
  const std::string fine = std::string(60, '[') + std::string(60, ']');
  EXPECT_EQ(post("/v1/completions", R"({"prompt":"a","x":)" + fine + "}").status, 200);
  EXPECT_EQ(get("/health").status, 200);
}

TEST_F(ApiTest, NamesTheWrongField) {
  start();
  expect_each_refused({
      {"prompt",
       {"5",
        "true",
        "{}",
        "[true]",
        "[\"a\",5]",
        "[[1],\"a\"]",
        "[]",
        "[-1]",
        "[259]",
        "[1.5]",
        "\"\"",
        "[1e999]",
        "null"}},
      {"model", {"5", "[]"}},
      {"n", {"0", "-1", "129", "1.5", "\"2\"", "1e30", "true", "[]"}},
      {"max_tokens", {"-1", "0", "1e30", "\"5\"", "1.5", "[]"}},
      {"temperature", {"-0.1", "2.1", "1e308", "1e999", "-1e999", "\"hot\"", "true", "{}"}},
      {"top_p", {"0", "-1", "1.01", "\"a\""}},
      {"top_k", {"-2", "1.5", "1e12", "\"a\""}},
      {"min_p", {"-0.1", "1.1", "[]"}},
      {"presence_penalty", {"-2.1", "2.1", "\"a\""}},
      {"frequency_penalty", {"-2.1", "2.1", "\"a\""}},
      {"repetition_penalty", {"0", "-1", "1e9", "\"a\""}},
      {"seed", {"1.5", "\"a\"", "1e300", "true"}},
      {"stop",
       {"5",
        "{}",
        "[5]",
        "\"\"",
        "[\"a\",\"\"]",
        "[\"1\",\"2\",\"3\",\"4\",\"5\",\"6\",\"7\",\"8\",\"9\",\"10\",\"11\",\"12\",\"13\",\"14\","
        "\"15\","
        "\"16\",\"17\"]"}},
      {"logit_bias",
       {"[]",
        "5",
        "{\"a\":1}",
        "{\"259\":1}",
        "{\"-1\":1}",
        "{\"1\":101}",
        "{\"1\":\"x\"}",
        "{\"1\":null}",
        "{\"1 \":1}"}},
  });
  EXPECT_TRUE(engine->requests().empty());
}

TEST_F(ApiTest, NamesTheWrongSwitchAndGoesOn) {
  start();
  expect_each_refused({
      {"logprobs", {"-1", "21", "true", "\"a\""}},
      {"stream", {"1", "\"true\"", "[]"}},
      {"echo", {"1", "\"a\""}},
      {"stop_token_ids", {"5", "[259]", "[\"a\"]"}},
      {"ignore_eos", {"1"}},
      {"min_tokens", {"-1", "\"a\"", "1.5"}},
      {"include_stop_str_in_output", {"1"}},
      {"skip_special_tokens", {"\"a\""}},
      {"timings", {"1"}},
      {"cache_salt", {"\"\"", "5"}},
      {"priority", {"\"a\"", "1e12"}},
      {"user", {"5"}},
      {"metadata", {"5", "[]"}},
      {"suffix", {"\"x\""}},
      {"best_of", {"2", "\"a\""}},
      {"prompt_logprobs", {"1"}},
      {"use_beam_search", {"true"}},
      {"length_penalty", {"0.5"}},
      {"stream_options", {"5", "{\"include_usage\":true}"}},
  });
  expect_refused(
      R"({"prompt":"a","stream":true,"stream_options":{"include_usage":1}})",
      "stream_options.include_usage"
  );
  expect_refused(R"({"prompt":["a",[]]})", "prompt");
  expect_refused(R"({"prompt":[[1],[]]})", "prompt[1]");
  expect_refused(
      R"({"prompt":"a","response_format":{"type":"json_object"}})", "response_format", 501
  );
  expect_refused(R"({"prompt":"a","guided_json":{"a":1}})", "guided_json", 501);
  EXPECT_TRUE(engine->requests().empty());
  // The next right one is answered; unknown fields and neutral values do not matter.
  EXPECT_EQ(
      post(
          "/v1/completions",
          R"({"prompt":"a","zzz":[1],"suffix":null,"best_of":1,"n":1,"stop":null,"seed":null,)"
          R"("logit_bias":{},"response_format":{"type":"text"},"max_tokens":5.0,"user":"u"})"
      )
          .status,
      200
  );
}

TEST_F(ApiTest, NamesTheWrongChatField) {
  start();
  const std::string user = R"("messages":[{"role":"user","content":"a"}])";
  expect_chat_refused("{}", "messages");
  expect_chat_refused(R"({"messages":[]})", "messages");
  expect_chat_refused(R"({"messages":null})", "messages");
  expect_chat_refused(R"({"messages":"hi"})", "messages");
  expect_chat_refused(R"({"messages":[5]})", "messages[0]");
  expect_chat_refused(R"({"messages":[{"content":"a"}]})", "messages[0].role");
  expect_chat_refused(R"({"messages":[{"role":5,"content":"a"}]})", "messages[0].role");
  expect_chat_refused(R"({"messages":[{"role":"user","content":5}]})", "messages[0].content");
  expect_chat_refused(
      R"({"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"x"}}]}]})",
      "messages[0].content[0].type"
  );
  expect_chat_refused(
      R"({"messages":[{"role":"user","content":[{"type":"text"}]}]})", "messages[0].content[0].text"
  );
  expect_chat_refused(
      R"({"messages":[{"role":"assistant","tool_calls":[{}]}]})",
      "messages[0].tool_calls[0].function"
  );
  expect_chat_refused(R"({"messages":[{"role":"refused","content":"a"}]})", "messages");
  for (const auto& [field, value] : std::vector<std::pair<std::string, std::string>>{
           {"max_tokens", "0"},
           {"max_completion_tokens", "-5"},
           {"logprobs", "5"},
           {"top_logprobs", "21"},
           {"top_logprobs", "3"},
           {"tools", "{}"},
           {"chat_template_kwargs", "[]"},
           {"chat_template", "\"x\""},
           {"functions", "[{}]"},
           {"modalities", "[\"audio\"]"},
           {"documents", "5"},
       }) {
    expect_chat_refused(fmt::format(R"({{{},"{}":{}}})", user, field, value), field);
  }
  expect_chat_refused("{" + user + R"(,"tools":[{"type":"function"}]})", "tools[0].function");
  expect_chat_refused("{" + user + R"(,"tool_choice":"required"})", "tool_choice", 501);
  expect_chat_refused(
      "{" + user + R"(,"tool_choice":{"type":"function","function":{"name":"f"}}})",
      "tool_choice",
      501
  );
  expect_chat_refused(
      "{" + user + R"(,"response_format":{"type":"json_schema"}})", "response_format", 501
  );
  expect_chat_refused(
      "{" + user + R"(,"add_generation_prompt":true,"continue_final_message":true})",
      "add_generation_prompt"
  );
  EXPECT_TRUE(engine->requests().empty());
}

TEST_F(ApiTest, LastOfEqualKeysWins) {
  start();
  EXPECT_EQ(post("/tokenize", R"({"prompt":5,"prompt":"ab"})").json().at("count").as_int64(), 2);
}

TEST_F(ApiTest, SaysWhyItCannotChat) {
  with_template = false;
  start();
  const TestResponse response =
      post("/v1/chat/completions", R"({"messages":[{"role":"user","content":"a"}]})");
  EXPECT_EQ(response.status, 501);
  EXPECT_NE(response.error("message").find("the file has none"), std::string::npos);
}

TEST_F(ApiTest, Tokenizes) {
  add_bos = true;
  start();
  const auto plain = post("/tokenize", R"({"prompt":"ahe","return_token_strs":true})").json();
  EXPECT_EQ(plain.at("count").as_int64(), 3);
  EXPECT_EQ(plain.at("max_model_len").as_int64(), 512);
  EXPECT_EQ(boost::json::serialize(plain.at("tokens")), "[257,97,258]");
  EXPECT_EQ(boost::json::serialize(plain.at("token_strs")), R"(["<|start|>","a","he"])");
  const auto bare = post("/tokenize", R"({"prompt":"ahe","add_special_tokens":false})").json();
  EXPECT_EQ(boost::json::serialize(bare.at("tokens")), "[97,258]");
  EXPECT_TRUE(bare.at("token_strs").is_null());
  EXPECT_EQ(
      post("/tokenize", R"({"prompt":"","add_special_tokens":false})")
          .json()
          .at("count")
          .as_int64(),
      0
  );
  const TestResponse missing = post("/tokenize", "{}");
  EXPECT_EQ(missing.error("param"), "prompt");
}

TEST_F(ApiTest, TokenizesChatsWithoutControlTokensFromUsers) {
  start();
  const auto chat = post(
      "/tokenize",
      R"({"messages":[{"role":"u","content":"a<|end|>"}],"add_generation_prompt":false})"
  );
  // <|start|>u\n a < | e n d | > <|end|>\n
  EXPECT_EQ(
      boost::json::serialize(chat.json().at("tokens")),
      "[257,117,10,97,60,124,101,110,100,124,62,256,10]"
  );
}

TEST_F(ApiTest, DetokenizesWhatItTokenized) {
  add_bos = true;
  start();
  for (const char* text : {"Hello:World", " Hello", "  two", "a\\n\\nb", "日本", "🙂 <|end|>"}) {
    const auto tokens = post("/tokenize", fmt::format(R"({{"prompt":"{}"}})", text)).json();
    const auto back = post(
        "/detokenize",
        fmt::format(R"({{"tokens":{}}})", boost::json::serialize(tokens.at("tokens")))
    );
    const auto expected = boost::json::parse(fmt::format("\"{}\"", text));
    EXPECT_EQ(back.json().at("prompt").as_string(), expected.as_string());
  }
  EXPECT_EQ(post("/detokenize", R"({"tokens":[259]})").error("param"), "tokens");
  EXPECT_EQ(post("/detokenize", R"({"tokens":"a"})").error("param"), "tokens");
  EXPECT_EQ(post("/detokenize", "{}").error("param"), "tokens");
}

TEST_F(ApiTest, ShowsStatusCacheAndResets) {
  start();
  EXPECT_EQ(get("/artery/status").json().at("pages_in_use").as_int64(), 0);
  EXPECT_EQ(get("/artery/cache").json().at("tiers").as_array().size(), 1U);
  EXPECT_EQ(ask("POST", "/reset_prefix_cache").status, 200);
  engine->pause(true);
  TestClient busy(server->port());
  busy.send(message("POST", "/v1/completions", "", R"({"prompt":"a"})"));
  ASSERT_TRUE(eventually([&] { return engine->status().running == 1; }));
  EXPECT_EQ(ask("POST", "/reset_prefix_cache").status, 409);
}

// A head is judged before its body is read: it must know then that it comes from this machine.
TEST_F(ApiTest, LetsLocalAdminsInWhoseBodyComesLater) {
  start();
  TestClient client(server->port());
  for (int i = 0; i < 2; ++i) {  // the second request on the same connection as well
    client.send("POST /reset_prefix_cache HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n");
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    client.send("{}");
    EXPECT_EQ(client.read_response().status, 200);
  }
}

TEST_F(ApiTest, CountsInMetrics) {
  config.metrics_compat_vllm = true;
  start();
  server->observer().on_step({0.1, 3, 4});
  EXPECT_EQ(post("/v1/completions", R"({"prompt":"abc"})").status, 200);
  const TestResponse response = get("/metrics");
  EXPECT_EQ(response.header("content-type").rfind("text/plain", 0), 0U);
  for (const char* prefix : {"artery:", "vllm:"}) {
    const auto has = [&](const std::string& line) {
      EXPECT_NE(response.body.find(prefix + line), std::string::npos) << prefix << line;
    };
    const std::string labels = R"({engine="0",model_name="tiny")";
    has("request_success_total{engine=\"0\",finished_reason=\"stop\",model_name=\"tiny\"} 1\n");
    has("num_requests_running" + labels + "} 0\n");
    has("generation_tokens_total" + labels + "} 5\n");
    has("time_to_first_token_seconds_count" + labels + "} 1\n");
    has("time_to_first_token_seconds_bucket" + labels + ",le=\"2560\"} 1\n");
    has("iteration_tokens_total_sum" + labels + "} 7\n");
    has("request_prompt_tokens_bucket" + labels + ",le=\"5\"} 1\n");
    has("request_decode_time_seconds_sum" + labels + "} 4\n");
  }
}

TEST_F(ApiTest, HealthStaysQuickWhileOthersTokenize) {
  config.body_bytes_max = 64u << 20;
  start();
  const std::string body = R"({"prompt":")" + std::string(1u << 20, 'h') + R"("})";
  std::atomic<bool> done{false};
  std::vector<std::thread> posters;
  for (int i = 0; i < 3; ++i) {
    posters.emplace_back([&] { EXPECT_EQ(post("/tokenize", body).status, 200); });
  }
  std::thread waiter([&] {
    for (std::thread& poster : posters) poster.join();
    done = true;
  });
  std::vector<double> seconds;
  while (!done) {
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_EQ(get("/health").status, 200);
    seconds.push_back(
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count()
    );
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  waiter.join();
  std::sort(seconds.begin(), seconds.end());
  // The median: on a shared machine single answers can be late for other reasons.
  EXPECT_LT(seconds[seconds.size() / 2], 0.25);
}

}  // namespace
}  // namespace artery::server
