// Clients that wait, read slowly or leave, and a server that stops.

#include "server/stream_fixture.h"

namespace artery::server {
namespace {

class GoneTest : public StreamTest {};

TEST_F(GoneTest, LifeSignsWhileNothingIsReady) {
  config.sse_comment_s = 1;
  start();
  engine->pause(true);
  TestClient client(server->port());
  const auto begin = std::chrono::steady_clock::now();
  client.send(message("POST", "/v1/completions", "", R"({"prompt":"x","stream":true})"));
  EXPECT_NE(client.read_until("\r\n\r\n", 1000).find("200 OK"), std::string::npos);
  for (int i = 0; i < 2; ++i) {
    EXPECT_NE(client.read_until(": keep-alive\n\n", 1500), "");
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(3000));
  engine->pause(false);
  EXPECT_NE(client.read_until("data: [DONE]\n\n\r\n0\r\n\r\n"), "");
}

TEST_F(GoneTest, AGoneClientCancelsItsWork) {
  start();
  say(std::string(400, 'y'));
  engine->set_step_ms(5);
  const std::string bodies[] = {
      R"({"prompt":"x","max_tokens":400,"stream":true})", R"({"prompt":"x","max_tokens":400})"
  };
  std::int64_t aborted = 0;
  std::vector<std::chrono::steady_clock::duration> took;
  for (const std::string& body : bodies) {
    for (const bool queued : {false, true}) {
      for (int way = 0; way < 3; ++way) {
        engine->pause(queued);
        TestClient client(server->port());
        client.send(message("POST", "/v1/completions", "", body));
        ASSERT_TRUE(eventually([&] { return engine->status().running == 1; }));
        if (!queued && body.find("stream") != std::string::npos) client.read_until("data: ");
        const auto begin = std::chrono::steady_clock::now();
        if (way == 0) client.close();
        if (way == 1) client.reset();
        if (way == 2) client.half_close();
        EXPECT_TRUE(eventually([&] { return engine->status().running == 0; }));
        took.push_back(std::chrono::steady_clock::now() - begin);
        EXPECT_EQ(engine->status().aborted, ++aborted) << body << queued << way;
        engine->pause(false);
      }
    }
  }
  // The median: on a loaded machine a thread may get no turn for a while.
  std::sort(took.begin(), took.end());
  EXPECT_LT(took[took.size() / 2], std::chrono::milliseconds(300));
  EXPECT_EQ(post("/v1/completions", R"({"prompt":"x"})").status, 200);
  EXPECT_TRUE(eventually([&] {
    return get("/metrics").body.find("finished_reason=\"abort\",model_name=\"tiny\"} 12\n") !=
           std::string::npos;
  }));
}

TEST_F(GoneTest, APipeliningClientThatLeavesIsSeenToo) {
  config.body_bytes_max = 1000;
  start();
  engine->pause(true);
  TestClient client(server->port());
  client.send(message("POST", "/v1/completions", "", R"({"prompt":"x"})"));
  ASSERT_TRUE(eventually([&] { return engine->status().running == 1; }));
  // More than the server reads ahead.
  client.send(
      message("POST", "/tokenize", "", R"({"prompt":")" + std::string(100000, 'a') + R"("})")
  );
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_EQ(engine->status().running, 1);
  client.half_close();
  EXPECT_TRUE(eventually([&] { return engine->status().running == 0; }));
}

TEST_F(GoneTest, ManyAbortsLeaveNothingBehind) {
  start();
  say(std::string(200, 'y'));
  for (int i = 0; i < 300; ++i) {
    TestClient client(server->port());
    const bool streamed = i % 2 == 0;
    client.send(message(
        "POST",
        "/v1/completions",
        "",
        streamed ? R"({"prompt":"x","max_tokens":200,"stream":true})"
                 : R"({"prompt":"x","max_tokens":200})"
    ));
    if (i % 3 == 0) client.fill(20);
    if (i % 5 == 0) client.reset();
  }
  EXPECT_TRUE(eventually([&] { return engine->status().pages_in_use == 0; }));
  EXPECT_EQ(post("/v1/completions", R"({"prompt":"x"})").status, 200);
}

TEST_F(GoneTest, ASlowReaderStopsNobody) {
  start();
  say(std::string(500, 'y'));
  // About 100 KB of chunks for each choice; the client reads nothing.
  TestClient slow(server->port());
  slow.send(message(
      "POST", "/v1/completions", "", R"({"prompt":"x","max_tokens":500,"n":64,"stream":true})"
  ));
  EXPECT_TRUE(eventually([&] {
    return engine->requests().size() == 1 && engine->status().running == 0;
  }));
  EXPECT_EQ(post("/v1/completions", R"({"prompt":"x"})").status, 200);
  const Joined joined = join(slow.read_response(), 64);
  for (const std::string& text : joined.texts) EXPECT_EQ(text, std::string(500, 'y'));
}

TEST_F(GoneTest, StoppingTheServerEndsStreamsWithAnError) {
  start();
  engine->pause(true);
  TestClient streamed(server->port()), whole(server->port());
  streamed.send(message("POST", "/v1/completions", "", R"({"prompt":"x","stream":true})"));
  whole.send(message("POST", "/v1/completions", "", R"({"prompt":"x"})"));
  ASSERT_TRUE(eventually([&] { return engine->status().running == 2; }));
  const auto begin = std::chrono::steady_clock::now();
  server->stop();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
  const Joined joined = join(streamed.read_response());
  EXPECT_NE(joined.error.find("shutting down"), std::string::npos);
  EXPECT_EQ(whole.read_response().status, 503);
  EXPECT_TRUE(streamed.at_end());
}

}  // namespace
}  // namespace artery::server
