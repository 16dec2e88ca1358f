// HTTP itself: framing, limits, timeouts, pipelining, the port.

#include "server/test_client.h"

namespace artery::server {
namespace {

using std::chrono::steady_clock;

double seconds_since(steady_clock::time_point begin) {
  return std::chrono::duration<double>(steady_clock::now() - begin).count();
}

class HttpTest : public ServerTest {};

TEST_F(HttpTest, AnswersLiveAndCompletion) {
  start();
  EXPECT_EQ(get("/live").status, 200);
  const TestResponse answer = post("/v1/completions", R"({"prompt":"x"})");
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.json().at("choices").at(0).at("text").as_string(), "Hello");
}

TEST_F(HttpTest, KeepsTheConnection) {
  start();
  TestClient client(server->port());
  for (int i = 0; i < 3; ++i) {
    client.send("GET /live HTTP/1.1\r\nHost: a\r\n\r\n");
    const TestResponse response = client.read_response();
    EXPECT_EQ(response.status, 200);
    EXPECT_EQ(response.header("connection"), "keep-alive");
  }
  client.send("GET /live HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
  EXPECT_EQ(client.read_response().header("connection"), "close");
  EXPECT_TRUE(client.at_end());
}

TEST_F(HttpTest, AnswersPipelinedRequestsInOrder) {
  start();
  say("slow");
  engine->set_step_ms(5);
  TestClient client(server->port());
  std::string all = message("POST", "/v1/completions", "", R"({"prompt":"a"})");
  all += message("GET", "/version", "", "");
  all += message("POST", "/tokenize", "", R"({"prompt":"ab"})");
  all += "GET /nowhere HTTP/1.1\r\n\r\n";
  client.send(all);
  EXPECT_NE(client.read_response().body.find("text_completion"), std::string::npos);
  EXPECT_NE(client.read_response().body.find("1.2.3"), std::string::npos);
  EXPECT_NE(client.read_response().body.find("[97,98]"), std::string::npos);
  EXPECT_EQ(client.read_response().status, 404);
}

TEST_F(HttpTest, AnswersBeforeGarbageAndCloses) {
  start();
  TestClient client(server->port());
  client.send("GET /live HTTP/1.1\r\nHost: a\r\n\r\n\x01\x02garbage\r\n\r\n");
  EXPECT_EQ(client.read_response().status, 200);
  const TestResponse bad = client.read_response();
  EXPECT_EQ(bad.status, 400);
  EXPECT_EQ(bad.error("type"), "invalid_request_error");
  EXPECT_TRUE(client.at_end());
  EXPECT_EQ(get("/live").status, 200);
}

TEST_F(HttpTest, RefusesMalformedRequests) {
  start();
  const char* bad[] = {
      "GET\r\n\r\n",
      "GET /live HTTP/9.9\r\n\r\n",
      "GET /live HTTP/1.1\r\nno colon here\r\n\r\n",
      "GET /live HTTP/1.1\r\nContent-Length: abc\r\n\r\n",
      "GET /live HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
      "POST /tokenize HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
      "POST /tokenize HTTP/1.1\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
      "POST /tokenize HTTP/1.1\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
      "POST /tokenize HTTP/1.1\r\nTransfer-Encoding: xchunked\r\nContent-Length: 2\r\n\r\n{}",
      "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
      "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 a TLS hello\r\n\r\n",
  };
  for (const char* text : bad) {
    TestClient client(server->port());
    client.send(text);
    EXPECT_EQ(client.read_response().status, 400) << text;
    EXPECT_TRUE(client.at_end()) << text;
  }
  EXPECT_EQ(get("/live").status, 200);
}

TEST_F(HttpTest, ReadsChunkedBodiesAtAnySplit) {
  start();
  const std::string head =
      "POST /tokenize HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
  const std::string body =
      "5\r\n{\"pro\r\n9;ext=1\r\nmpt\":\"ab\"\r\n1\r\n}\r\n0\r\nTrailer: x\r\n\r\n";
  for (const std::size_t step : {std::size_t{1}, std::size_t{7}, std::size_t{1000}}) {
    TestClient client(server->port());
    const std::string all = head + body;
    for (std::size_t i = 0; i < all.size(); i += step) client.send(all.substr(i, step));
    EXPECT_EQ(client.read_response().json().at("count").as_int64(), 2) << step;
  }
}

TEST_F(HttpTest, TakesEmptyChunkedBodiesByteByByte) {
  start();
  TestClient client(server->port());
  for (const char c :
       std::string_view("POST /tokenize HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n")) {
    client.send(std::string_view(&c, 1));
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_EQ(client.read_response().status, 400);  // an empty body is not JSON
  EXPECT_EQ(get("/live").status, 200);
}

TEST_F(HttpTest, SendsContinueWhenAskedTo) {
  start();
  TestClient client(server->port());
  client.send(
      "POST /tokenize HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 15\r\n\r\n"
  );
  EXPECT_EQ(client.read_until("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
  client.send(R"({"prompt":"ab"})");
  EXPECT_EQ(client.read_response().json().at("count").as_int64(), 2);
}

TEST_F(HttpTest, RefusesLargeBodiesBeforeReadingThem) {
  config.body_bytes_max = 1000;
  start();
  TestClient client(server->port());
  client.send("POST /tokenize HTTP/1.1\r\nHost: a\r\nContent-Length: 1001\r\n\r\n");
  TestResponse response = client.read_response();
  EXPECT_EQ(response.status, 413);
  EXPECT_NE(response.error("message").find("1000"), std::string::npos);
  EXPECT_NE(response.error("message").find("--"), std::string::npos);
  EXPECT_TRUE(client.at_end());

  TestClient chunked(server->port());
  chunked.send("POST /tokenize HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
  const std::string chunk = "1f4\r\n" + std::string(500, ' ') + "\r\n";
  chunked.send(chunk + chunk + chunk);
  EXPECT_EQ(chunked.read_response().status, 413);

  // The limit itself is fine.
  const std::string exact = R"({"prompt":")" + std::string(987, 'a') + R"("})";
  ASSERT_EQ(exact.size(), 1000U);
  EXPECT_EQ(post("/tokenize", exact).status, 200);
}

TEST_F(HttpTest, TakesTwoMegabytePrompts) {
  start();
  const std::string body = R"({"prompt":")" + std::string(2u << 20, 'a') + R"("})";
  const TestResponse response = post("/v1/completions", body);
  EXPECT_EQ(response.status, 400);
  EXPECT_EQ(response.error("code"), "context_length_exceeded");
}

TEST_F(HttpTest, RefusesLargeHeaders) {
  start();
  TestClient client(server->port());
  client.send("GET /live HTTP/1.1\r\nX: " + std::string(70000, 'a') + "\r\n\r\n");
  EXPECT_EQ(client.read_response().status, 431);
  TestClient many(server->port());
  std::string lines = "GET /live HTTP/1.1\r\n";
  for (int i = 0; i < 9000; ++i) lines += "A: bcdefg\r\n";
  many.send(lines + "\r\n");
  EXPECT_EQ(many.read_response().status, 431);
}

TEST_F(HttpTest, AnswersSlowSendersWith408) {
  config.header_timeout_s = 1;
  config.body_timeout_s = 1;
  start();
  const auto begin = steady_clock::now();
  TestClient header(server->port());
  header.send("GET /live HT");
  TestClient body(server->port());
  body.send("POST /tokenize HTTP/1.1\r\nContent-Length: 100\r\n\r\n{");
  TestClient idle(server->port());
  EXPECT_EQ(header.read_response().status, 408);
  EXPECT_TRUE(header.at_end());
  EXPECT_EQ(body.read_response().status, 408);
  EXPECT_TRUE(idle.at_end());
  EXPECT_TRUE(idle.unread().empty());
  EXPECT_LT(seconds_since(begin), 5);
}

TEST_F(HttpTest, ClosesIdleConnectionsInSilence) {
  config.keep_alive_s = 1;
  start();
  TestClient client(server->port());
  client.send("GET /live HTTP/1.1\r\n\r\n");
  EXPECT_EQ(client.read_response().status, 200);
  EXPECT_TRUE(client.at_end());
  EXPECT_TRUE(client.unread().empty());
}

TEST_F(HttpTest, SaysWhenThereAreTooManyConnections) {
  config.connections_max = 3;
  start();
  std::vector<std::unique_ptr<TestClient>> open_ones;
  for (int i = 0; i < 3; ++i) {
    open_ones.push_back(std::make_unique<TestClient>(server->port()));
    open_ones.back()->send("GET /live HTTP/1.1\r\n\r\n");
    EXPECT_EQ(open_ones.back()->read_response().status, 200);
  }
  TestClient extra(server->port());
  const TestResponse refused = extra.read_response();
  EXPECT_EQ(refused.status, 503);
  EXPECT_NE(refused.header("retry-after"), "");
  EXPECT_TRUE(extra.at_end());
  extra.close();
  open_ones.clear();
  EXPECT_TRUE(eventually([&] { return get("/live").status == 200; }));
}

TEST_F(HttpTest, AnswersHead) {
  start();
  TestClient client(server->port());
  client.send("HEAD / HTTP/1.1\r\n\r\nHEAD /metrics HTTP/1.1\r\n\r\nGET /live HTTP/1.1\r\n\r\n");
  EXPECT_EQ(client.read_response(true).status, 200);
  EXPECT_EQ(client.read_response(true).status, 200);
  EXPECT_EQ(client.read_response().status, 200);
}

TEST_F(HttpTest, SpeaksToHttp10) {
  start();
  TestClient client(server->port());
  const std::string body = R"({"prompt":"a","stream":true})";
  client.send(fmt::format(
      "POST /v1/completions HTTP/1.0\r\nContent-Length: {}\r\n\r\n{}", body.size(), body
  ));
  EXPECT_TRUE(client.at_end());
  EXPECT_EQ(client.unread().find("chunked"), std::string::npos);
  const std::string end = "data: [DONE]\n\n";
  ASSERT_GT(client.unread().size(), end.size());
  EXPECT_EQ(client.unread().substr(client.unread().size() - end.size()), end);
}

TEST_F(HttpTest, TakesAbsoluteTargetsAndQueries) {
  start();
  TestClient client(server->port());
  client.send(
      "GET http://a.example/live?x=1 HTTP/1.1\r\n\r\n\r\n\r\nGET /version?y HTTP/1.1\r\n\r\n"
  );
  EXPECT_EQ(client.read_response().status, 200);
  EXPECT_NE(client.read_response().body.find("1.2.3"), std::string::npos);
}

TEST_F(HttpTest, SaysThatThePortIsTaken) {
  start();
  for (const char* host : {"127.0.0.1", "0.0.0.0", "::", "localhost"}) {
    Config second = config;
    second.host = host;
    second.port = server->port();
    second.insecure = true;
    const auto begin = steady_clock::now();
    const auto opened = Server::open(second);
    ASSERT_FALSE(opened) << host;
    EXPECT_LT(seconds_since(begin), 1.0);
    EXPECT_EQ(opened.error().code, Code::kIo);
    EXPECT_NE(opened.error().message.find(std::to_string(server->port())), std::string::npos);
    EXPECT_NE(opened.error().message.find("--port"), std::string::npos);
    EXPECT_NE(opened.error().message.find(host), std::string::npos);
  }
  EXPECT_EQ(get("/live").status, 200);
}

TEST_F(HttpTest, SeesAWildcardServerToo) {
  config.host = "0.0.0.0";
  config.insecure = true;
  start();
  Config second = config;
  second.host = "127.0.0.1";
  second.port = server->port();
  EXPECT_FALSE(Server::open(second));
}

TEST_F(HttpTest, RefusesToServeTheWorldWithoutAKey) {
  config.host = "0.0.0.0";
  auto opened = Server::open(config);
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().code, Code::kInvalidArgument);
  EXPECT_NE(opened.error().message.find("--api-key"), std::string::npos);
  config.api_key = "k";
  EXPECT_TRUE(Server::open(config));
}

TEST_F(HttpTest, NamesABadHost) {
  config.host = "no.such.host.invalid";
  config.api_key = "k";
  auto opened = Server::open(config);
  ASSERT_FALSE(opened);
  EXPECT_NE(opened.error().message.find("no.such.host.invalid"), std::string::npos);
}

TEST_F(HttpTest, ReusesAPortAtOnceAfterStop) {
  start();
  const int port = server->port();
  EXPECT_EQ(get("/live").status, 200);
  server->stop();
  config.port = port;
  auto again = Server::open(config);
  EXPECT_TRUE(again) << again.error().message;
}

TEST_F(HttpTest, SurvivesRandomBytes) {
  start();
  std::uint64_t state = 1;
  for (int round = 0; round < 200; ++round) {
    std::string bytes = round % 2 == 0 ? "POST /v1/completions HTTP/1.1\r\n" : "";
    for (int i = 0; i < 300; ++i) {
      state = state * 6364136223846793005ULL + 1442695040888963407ULL;
      constexpr std::string_view kAlphabet = "\r\n: 019afAF/\0\xff{}\"HTTP";
      bytes += kAlphabet[(state >> 33) % kAlphabet.size()];
    }
    TestClient client(server->port());
    client.send(bytes);
    client.half_close();
    client.at_end(100);
  }
  EXPECT_EQ(get("/live").status, 200);
}

}  // namespace
}  // namespace artery::server
