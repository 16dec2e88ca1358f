// API keys over sockets: who is let in, limits and what they answer, and what keys never do.

#include "server/api/key_ring.h"

#include "server/api/backlog.h"
#include "server/stream_fixture.h"

namespace artery::server {
namespace {

constexpr std::int64_t kSecond = 1'000'000'000;

ApiKey make_key(const std::string& name, const std::string& secret) {
  ApiKey key;
  key.name = name;
  key.tenant = "of-" + name;
  key.digest = key_digest(secret);
  return key;
}

class KeysTest : public StreamTest {
 protected:
  TestResponse post_as(const std::string& key, const std::string& body) {
    return ask(
        "POST",
        "/v1/completions",
        "Content-Type: application/json\r\nAuthorization: Bearer " + key + "\r\n",
        body
    );
  }
  TestResponse get_as(const std::string& key, const std::string& path) {
    return ask("GET", path, "x-api-key: " + key + "\r\n");
  }
  std::string metrics_as(const std::string& key) { return get_as(key, "/metrics").body; }
  static bool has(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
  }
};

TEST_F(KeysTest, EachKeyIsAWayIn) {
  config.api_key = "main-secret";
  config.api_keys = {make_key("alice", "alice-secret"), make_key("bob", "bob-secret")};
  start();
  const std::string body = R"({"prompt":"x"})";
  for (const char* key : {"main-secret", "alice-secret", "bob-secret"}) {
    EXPECT_EQ(post_as(key, body).status, 200) << key;
    EXPECT_EQ(get_as(key, "/v1/models").status, 200) << key;
  }
  for (const char* key : {"", "alice", "alice-secre", "alice-secret2", "default"}) {
    const TestResponse refused = post_as(key, body);
    EXPECT_EQ(refused.status, 401) << key;
    EXPECT_EQ(refused.error("code"), "invalid_api_key");
    EXPECT_TRUE(has(refused.error("message"), "Authorization: Bearer"));
    EXPECT_NE(refused.header("x-request-id"), "");
  }
  const auto seen = engine->requests();
  ASSERT_EQ(seen.size(), 3U);
  EXPECT_EQ(seen[0].tenant, "");
  EXPECT_EQ(seen[1].tenant, "of-alice");
  EXPECT_EQ(seen[2].tenant, "of-bob");
}

TEST_F(KeysTest, OnlyAdminsUseAdminPathsFromAfar) {
  config.api_keys = {make_key("alice", "alice-secret"), make_key("root", "root-secret")};
  config.api_keys[1].admin = true;
  start();
  const std::string far = "x-forwarded-for: 10.0.0.1\r\nx-api-key: ";
  EXPECT_EQ(ask("GET", "/artery/status", far + "root-secret\r\n").status, 200);
  const TestResponse refused = ask("GET", "/artery/status", far + "alice-secret\r\n");
  EXPECT_EQ(refused.status, 403);
  EXPECT_TRUE(has(refused.error("message"), "admin"));
  EXPECT_EQ(ask("GET", "/artery/status", far + "nobody\r\n").status, 401);
  EXPECT_EQ(get("/artery/status").status, 200);
}

TEST_F(KeysTest, RefusesABodyByItsHeaders) {
  config.api_keys = {make_key("alice", "alice-secret")};
  start();
  TestClient client(server->port());
  client.send(
      "POST /v1/completions HTTP/1.1\r\nx-request-id: mine\r\nContent-Length: 1000000\r\n"
      "Expect: 100-continue\r\n\r\n"
  );
  const std::string head = client.read_until("\r\n\r\n");
  EXPECT_TRUE(has(head, " 401 ")) << head;
  EXPECT_TRUE(has(head, "x-request-id: mine")) << head;
  EXPECT_TRUE(has(head, "Connection: close")) << head;
}

TEST_F(KeysTest, HoldsRequestsAtOnce) {
  config.api_keys = {make_key("alice", "alice-secret"), make_key("bob", "bob-secret")};
  config.api_keys[0].max_concurrent = 2;
  start();
  engine->pause(true);
  const std::string body = R"({"prompt":"x","stream":true})";
  std::vector<std::unique_ptr<TestClient>> running;
  for (int i = 0; i < 2; ++i) {
    running.push_back(std::make_unique<TestClient>(server->port()));
    running.back()->send(
        message("POST", "/v1/completions", "Authorization: Bearer alice-secret\r\n", body)
    );
    ASSERT_TRUE(eventually([&] { return engine->status().running == i + 1; }));
  }
  const TestResponse refused = post_as("alice-secret", body);
  EXPECT_EQ(refused.status, 429);
  EXPECT_EQ(refused.error("code"), "rate_limit_exceeded");
  EXPECT_GE(std::stoi(refused.header("retry-after")), 1);
  EXPECT_TRUE(has(refused.error("message"), "2 requests at once")) << refused.body;
  EXPECT_TRUE(has(refused.error("message"), "try again in")) << refused.body;
  EXPECT_FALSE(has(refused.body, "secret"));
  EXPECT_TRUE(has(metrics_as("bob-secret"), "artery:key_requests_running{"));
  engine->pause(false);
  EXPECT_EQ(post_as("bob-secret", R"({"prompt":"x"})").status, 200);
  // The place is free when the answer is out, not some time later.
  for (int i = 0; i < 20; ++i) {
    for (const auto& client : running) {
      EXPECT_TRUE(join(client->read_response()).done);
      client->send(
          message("POST", "/v1/completions", "Authorization: Bearer alice-secret\r\n", body)
      );
    }
  }
  for (const auto& client : running) EXPECT_EQ(client->read_response().status, 200);
  // A client that goes away frees its place too.
  engine->pause(true);
  for (const auto& client : running) {
    client->send(message("POST", "/v1/completions", "Authorization: Bearer alice-secret\r\n", body)
    );
  }
  ASSERT_TRUE(eventually([&] { return engine->status().running == 2; }));
  for (const auto& client : running) client->reset();
  EXPECT_TRUE(eventually([&] { return engine->status().running == 0; }));
  engine->pause(false);
  EXPECT_TRUE(eventually([&] { return post_as("alice-secret", body).status == 200; }));
}

TEST_F(KeysTest, HoldsRequestsAMinute) {
  config.api_keys = {make_key("alice", "alice-secret")};
  config.api_keys[0].requests_per_minute = 3;
  start();
  for (int i = 0; i < 3; ++i) EXPECT_EQ(post_as("alice-secret", R"({"prompt":"x"})").status, 200);
  const TestResponse refused = post_as("alice-secret", R"({"prompt":"x"})");
  EXPECT_EQ(refused.status, 429);
  const int wait = std::stoi(refused.header("retry-after"));
  EXPECT_GE(wait, 10);
  EXPECT_LE(wait, 20);
  EXPECT_EQ(get_as("alice-secret", "/v1/models").status, 200);  // asking costs nothing
}

TEST_F(KeysTest, HoldsTokensAMinuteAndCountsThem) {
  config.api_keys = {make_key("alice", "alice-secret")};
  config.api_keys[0].tokens_per_minute = 20;
  start();
  say("0123456789");
  // 8 + 10, then 18 more into debt.
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(post_as("alice-secret", R"({"prompt":"abcdefgh"})").status, 200);
  }
  const TestResponse refused = post_as("alice-secret", R"({"prompt":"x"})");
  EXPECT_EQ(refused.status, 429);
  EXPECT_TRUE(has(refused.error("message"), "20 tokens a minute"));
  EXPECT_GT(std::stoi(refused.header("retry-after")), 30);
  const std::string text = metrics_as("alice-secret");
  const std::string labels = "{engine=\"0\",key_name=\"alice\",model_name=\"tiny\"} ";
  EXPECT_TRUE(has(text, "artery:key_prompt_tokens_total" + labels + "16\n")) << text;
  EXPECT_TRUE(has(text, "artery:key_generation_tokens_total" + labels + "20\n"));
  EXPECT_TRUE(has(text, "artery:key_requests_total" + labels + "2\n"));
  EXPECT_TRUE(
      has(text,
          "artery:key_rejections_total{engine=\"0\",key_name=\"alice\",limit=\"tokens\",model_name="
          "\"tiny\"} 1\n")
  );
  EXPECT_FALSE(has(text, "secret"));
}

TEST_F(KeysTest, AKeyLimitsTheUrgencyOfItsRequests) {
  config.api_keys = {make_key("alice", "alice-secret")};
  config.api_keys[0].priority = 5;
  start();
  EXPECT_EQ(post_as("alice-secret", R"({"prompt":"x"})").status, 200);
  EXPECT_EQ(post_as("alice-secret", R"({"prompt":"x","priority":7})").status, 200);
  const TestResponse refused = post_as("alice-secret", R"({"prompt":"x","priority":4})");
  EXPECT_EQ(refused.status, 400);
  EXPECT_EQ(refused.error("param"), "priority");
  const auto seen = engine->requests();
  ASSERT_EQ(seen.size(), 2U);
  EXPECT_EQ(seen[0].priority, 5);
  EXPECT_EQ(seen[1].priority, 7);
}

TEST_F(KeysTest, NewKeysTakeTheOldOnesPlace) {
  config.api_keys = {make_key("alice", "alice-secret")};
  start();
  EXPECT_EQ(post_as("alice-secret", R"({"prompt":"x"})").status, 200);
  server->set_api_keys({make_key("alice", "new-secret"), make_key("bob", "bob-secret")});
  EXPECT_EQ(post_as("alice-secret", R"({"prompt":"x"})").status, 401);
  EXPECT_EQ(post_as("new-secret", R"({"prompt":"x"})").status, 200);
  EXPECT_TRUE(
      has(metrics_as("bob-secret"),
          "artery:key_requests_total{engine=\"0\",key_name=\"alice\",model_name=\"tiny\"} 2\n")
  );
}

TEST(RateBucket, RefillsWithTime) {
  api::RateBucket bucket;
  EXPECT_EQ(bucket.wait_s(0, 0), 0);
  for (int i = 0; i < 60; ++i) {
    EXPECT_EQ(bucket.wait_s(60, kSecond), 0) << i;
    bucket.take(60, 1, kSecond);
  }
  EXPECT_NEAR(bucket.wait_s(60, kSecond), 1, 1e-6);
  EXPECT_NEAR(bucket.wait_s(60, kSecond + kSecond / 2), 0.5, 1e-6);
  EXPECT_EQ(bucket.wait_s(60, 2 * kSecond), 0);
  bucket.take(60, 31, 2 * kSecond);  // into debt
  EXPECT_NEAR(bucket.wait_s(60, 2 * kSecond), 31, 1e-6);
  // A higher limit does not pay old debts.
  EXPECT_GT(bucket.wait_s(120, 2 * kSecond), 0);
  // Never more than a minute's worth.
  for (int i = 0; i < 120; ++i) bucket.take(120, 1, 1000 * kSecond);
  EXPECT_GT(bucket.wait_s(120, 1000 * kSecond), 0);
}

TEST(KeyRing, BoundsTheNamesInMetrics) {
  api::KeyRing ring;
  std::vector<ApiKey> keys;
  for (int i = 0; i < 1000; ++i) {
    keys.push_back(make_key("k" + std::to_string(i), "secret" + std::to_string(i)));
  }
  ring.set(keys);
  for (int i = 0; i < 1000; i += 10) {
    const auto holder = ring.find("secret" + std::to_string(i));
    ASSERT_TRUE(holder);
    EXPECT_EQ(holder->key.name, "k" + std::to_string(i));
    holder->usage->use(holder->key, 1, 0, 0);
  }
  const auto counts = ring.counts();
  EXPECT_LE(counts.size(), 201U);
  EXPECT_EQ(counts.front().name, "k0");
  EXPECT_EQ(counts.back().name, "_other");
  std::int64_t tokens = 0;
  for (const KeyCounts& one : counts) tokens += one.prompt_tokens;
  EXPECT_EQ(tokens, 100);
}

TEST(Backlog, FollowsTheRateOfEnds) {
  api::Backlog backlog;
  EXPECT_EQ(backlog.retry_after_s(100, 0), 2);
  for (int i = 1; i <= 40; ++i) backlog.on_end(i * kSecond);
  EXPECT_EQ(backlog.retry_after_s(40, 40 * kSecond), 10);
  EXPECT_EQ(backlog.retry_after_s(0, 40 * kSecond), 1);
  EXPECT_EQ(backlog.retry_after_s(100000, 40 * kSecond), 60);
  EXPECT_GT(backlog.retry_after_s(40, 100 * kSecond), 20);  // it stands still
}

}  // namespace
}  // namespace artery::server
