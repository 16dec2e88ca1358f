// What bounds memory and time: slow readers, bodies, values in JSON, connections; and how the
// server says no before it has a request.

#include "server/api/json_reader.h"
#include "server/stream_fixture.h"

namespace artery::server {
namespace {

class LimitsTest : public StreamTest {
 protected:
  static bool has(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
  }
};

TEST_F(LimitsTest, GivesUpAClientThatNeverReads) {
  config.stall_timeout_s = 0.5;
  start();
  say(std::string(500, 'y'));
  engine->set_step_ms(1);
  TestClient stalled(server->port());
  stalled.send(message(
      "POST",
      "/v1/completions",
      "",
      R"({"prompt":"x","max_tokens":500,"n":64,"logprobs":5,"stream":true})"
  ));
  std::string metrics;
  const auto tells = [&](const std::string& line) {
    metrics = get("/metrics").body;
    return has(metrics, line);
  };
  const std::string stalls = "artery:stream_stalls_total{engine=\"0\",model_name=\"tiny\"} ";
  EXPECT_TRUE(eventually([&] { return tells(stalls + "1\n"); }, 20000))
      << metrics.substr(std::min(metrics.size(), metrics.find(stalls)), 200) << " with "
      << engine->status().running << " running, " << engine->status().generated_tokens << " tokens";
  EXPECT_TRUE(eventually([&] { return engine->status().running == 0; }, 20000));
  EXPECT_TRUE(
      eventually([&] { return tells("finished_reason=\"abort\",model_name=\"tiny\"} 1\n"); }, 20000)
  ) << metrics;
}

TEST_F(LimitsTest, WaitsForAClientThatReadsSlowly) {
  config.stall_timeout_s = 1.5;
  start();
  say(std::string(400, 'y'));
  engine->set_tokens_per_event(1000);
  // With the client's small window the server has to wait for it, again and again.
  TestClient slow(server->port(), 4096);
  slow.send(message(
      "POST",
      "/v1/completions",
      "",
      R"({"prompt":"x","max_tokens":400,"n":64,"logprobs":20,"stream":true})"
  ));
  // Longer than the stall time in all, with a little read in each small part of it.
  const auto begin = std::chrono::steady_clock::now();
  while (std::chrono::steady_clock::now() - begin < std::chrono::milliseconds(2500)) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    ASSERT_TRUE(slow.fill(5000));
  }
  const TestResponse response = slow.read_response();
  EXPECT_TRUE(response.whole);
  EXPECT_TRUE(response.body.ends_with("data: [DONE]\n\n"));
  EXPECT_GT(response.body.size(), 4U << 20);
}

TEST_F(LimitsTest, RefusalsCarryARequestId) {
  config.body_bytes_max = 1000;
  config.allowed_origins = {"http://a.example"};
  start();
  TestClient large(server->port());
  large.send(
      "POST /tokenize HTTP/1.1\r\nx-request-id: mine-7\r\nOrigin: http://a.example\r\n"
      "Content-Length: 5000\r\n\r\n"
  );
  TestResponse response = large.read_response();
  EXPECT_EQ(response.status, 413);
  EXPECT_EQ(response.header("x-request-id"), "mine-7");
  EXPECT_EQ(response.header("access-control-allow-origin"), "http://a.example");
  TestClient garbage(server->port());
  garbage.send("what is this\r\n\r\n");
  response = garbage.read_response();
  EXPECT_EQ(response.status, 400);
  EXPECT_GE(response.header("x-request-id").size(), 8U);
  TestClient headers(server->port());
  headers.send("GET /live HTTP/1.1\r\nX: " + std::string(70000, 'a') + "\r\n\r\n");
  response = headers.read_response();
  EXPECT_EQ(response.status, 431);
  EXPECT_NE(response.header("x-request-id"), "");
  EXPECT_TRUE(has(response.error("message"), "--max-header-bytes"));
  const std::string metrics = get("/metrics").body;
  for (const char* status : {"400", "413", "431"}) {
    EXPECT_TRUE(has(
        metrics,
        fmt::format(
            "artery:http_errors_total{{engine=\"0\",model_name=\"tiny\",status=\"{}\"}} 1\n", status
        )
    )) << status;
  }
}

TEST_F(LimitsTest, HeadersHaveALimitInNumber) {
  start();
  const auto ask_with = [&](int count) {
    std::string lines = "Host: a\r\n";
    for (int i = 1; i < count; ++i) lines += "a:\r\n";
    TestClient client(server->port());
    client.send("GET /live HTTP/1.1\r\n" + lines + "\r\n");
    return client.read_response().status;
  };
  EXPECT_EQ(ask_with(256), 200);
  EXPECT_EQ(ask_with(257), 431);
}

TEST_F(LimitsTest, BodiesHaveALimitTogether) {
  config.body_bytes_max = 32u << 20;  // 128 MiB in all
  start();
  std::vector<std::unique_ptr<TestClient>> clients;
  const std::string part(1u << 20, ' ');
  int refused = 0;
  for (int i = 0; i < 5; ++i) {
    clients.push_back(std::make_unique<TestClient>(server->port()));
    TestClient& client = *clients.back();
    client.send(fmt::format("POST /tokenize HTTP/1.1\r\nContent-Length: {}\r\n\r\n", 31u << 20));
    for (int sent = 0; sent < 30; ++sent) client.send(part);
  }
  for (const auto& client : clients) {
    if (!client->fill(1000)) continue;
    const TestResponse response = client->read_response();
    EXPECT_EQ(response.status, 503);
    EXPECT_NE(response.header("retry-after"), "");
    ++refused;
  }
  EXPECT_GE(refused, 1);
  EXPECT_LT(refused, 5);
  clients.clear();
  EXPECT_TRUE(eventually([&] {
    return has(
        get("/metrics").body, "artery:http_body_bytes{engine=\"0\",model_name=\"tiny\"} 0\n"
    );
  }));
}

TEST_F(LimitsTest, CountsABodyOnlyWhileItIsThere) {
  start();
  engine->pause(true);
  TestClient client(server->port());
  client.send(message(
      "POST",
      "/v1/completions",
      "",
      R"({"prompt":"x","user":")" + std::string(100000, 'u') + R"("})"
  ));
  ASSERT_TRUE(eventually([&] { return engine->status().running == 1; }));
  EXPECT_TRUE(
      has(get("/metrics").body, "artery:http_body_bytes{engine=\"0\",model_name=\"tiny\"} 0\n")
  );
  engine->pause(false);
}

TEST_F(LimitsTest, AnswersOnDrainCloseTheirConnection) {
  start();
  engine->pause(true);
  TestClient running(server->port()), idle(server->port());
  idle.send("GET /live HTTP/1.1\r\n\r\n");
  EXPECT_EQ(idle.read_response().header("connection"), "keep-alive");
  running.send(message("POST", "/v1/completions", "", R"({"prompt":"x"})"));
  ASSERT_TRUE(eventually([&] { return engine->status().running == 1; }));
  server->begin_drain();
  const TestResponse refused = post("/v1/completions", R"({"prompt":"x"})");
  EXPECT_EQ(refused.status, 503);
  EXPECT_NE(refused.header("retry-after"), "");
  EXPECT_EQ(refused.header("connection"), "close");
  EXPECT_EQ(get("/ready").status, 503);
  idle.send("GET /live HTTP/1.1\r\n\r\n");
  const TestResponse live = idle.read_response();
  EXPECT_EQ(live.status, 200);
  EXPECT_EQ(live.header("connection"), "close");
  EXPECT_TRUE(idle.at_end());
  engine->pause(false);
  const TestResponse ended = running.read_response();
  EXPECT_EQ(ended.status, 200);
  EXPECT_EQ(ended.header("connection"), "close");
}

TEST_F(LimitsTest, ShowsOneModel) {
  config.served_model_name = "org/other name";
  start();
  EXPECT_EQ(get("/v1/models/tiny").json().at("id").as_string(), "tiny");
  EXPECT_EQ(get("/v1/models/tiny").json().at("object").as_string(), "model");
  EXPECT_EQ(get("/v1/models/org%2Fother%20name").json().at("id").as_string(), "org/other name");
  const TestResponse absent = get("/v1/models/none");
  EXPECT_EQ(absent.status, 404);
  EXPECT_EQ(absent.error("code"), "model_not_found");
  EXPECT_EQ(get("/v1/models/").status, 404);
  EXPECT_EQ(ask("HEAD", "/v1/models/tiny").status, 200);
  EXPECT_EQ(ask("DELETE", "/v1/models/tiny").status, 405);
}

TEST_F(LimitsTest, CredentialsAreNeverAllowedToAllOrigins) {
  config.allowed_origins = {"*"};
  start();
  for (const char* method : {"GET", "OPTIONS"}) {
    const TestResponse response = ask(
        method, "/v1/models", "Origin: http://x.example\r\nAccess-Control-Request-Method: GET\r\n"
    );
    EXPECT_EQ(response.header("access-control-allow-origin"), "*");
    EXPECT_EQ(response.header("access-control-allow-credentials"), "");
  }
}

TEST_F(LimitsTest, APromptThatCannotFitIsNotTokenized) {
  start();
  const std::string text(8u << 20, 'a');
  const auto begin = std::chrono::steady_clock::now();
  const TestResponse response = post("/v1/completions", R"({"prompt":")" + text + R"("})");
  EXPECT_EQ(response.status, 400);
  EXPECT_EQ(response.error("code"), "context_length_exceeded");
  EXPECT_EQ(response.error("param"), "prompt");
  EXPECT_TRUE(has(response.error("message"), "512 tokens"));
  EXPECT_TRUE(has(response.error("message"), std::to_string(text.size())));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(15));
  const TestResponse chat =
      post("/v1/chat/completions", R"({"messages":[{"role":"user","content":")" + text + R"("}]})");
  EXPECT_EQ(chat.status, 400);
  EXPECT_EQ(chat.error("code"), "context_length_exceeded");
}

// "[1,1,1,...": two bytes a value, of which each takes 24 and more.
std::string many_values(std::size_t bytes) {
  std::string text = "[1";
  while (text.size() + 3 < bytes) text += ",1";
  return text + "]";
}

TEST(JsonMemory, IsBounded) {
  const std::string text = many_values(4u << 20);
  const auto refused = api::parse_json(text, 64, 16u << 20);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kTooLarge);
  EXPECT_NE(refused.error().message.find("--max-body-bytes"), std::string::npos);
  EXPECT_TRUE(api::parse_json(text, 64, 256u << 20));
  // A long text takes little more than itself.
  EXPECT_TRUE(api::parse_json("\"" + std::string(15u << 20, 'a') + "\"", 64, 16u << 20));
}

TEST_F(LimitsTest, ABodyOfTinyValuesIsRefusedCheaply) {
  start();
  const TestResponse response =
      post("/v1/completions", R"({"prompt":"x","user":)" + many_values(31u << 20) + "}");
  EXPECT_EQ(response.status, 413);
  EXPECT_EQ(post("/v1/completions", R"({"prompt":"x"})").status, 200);
}

}  // namespace
}  // namespace artery::server
