// The KV cache as clients see it: classes of life time, promises, usage, /artery/cache.

#include "server/test_client.h"

namespace artery::server {
namespace {

using kvstore::TtlClass;

constexpr std::int64_t kUntil = 1'800'000'000;

class CacheTest : public ServerTest {
 protected:
  // The engine's request for a chat of these messages and more fields.
  engine::Request chat(const std::string& messages, const std::string& more = "") {
    const auto body = fmt::format(R"({{"messages":[{}]{}}})", messages, more);
    const TestResponse response = post("/v1/chat/completions", body);
    EXPECT_EQ(response.status, 200) << body << "\n" << response.body;
    return engine->requests().back();
  }
  engine::Request completion(const std::string& more) {
    const auto body = fmt::format(R"({{"prompt":"abcdefgh"{}}})", more);
    const TestResponse response = post("/v1/completions", body);
    EXPECT_EQ(response.status, 200) << body << "\n" << response.body;
    return engine->requests().back();
  }
  void expect_refused(const char* path, const std::string& body, const std::string& param) {
    const TestResponse response = post(path, body);
    EXPECT_EQ(response.status, 400) << body << "\n" << response.body;
    EXPECT_EQ(response.error("param"), param) << body << "\n" << response.body;
    EXPECT_NE(response.error("message").find(param), std::string::npos) << response.body;
  }
};

const std::string kUser = R"({"role":"user","content":"a"})";
const std::string kAnswer = R"({"role":"assistant","content":"b"})";
const std::string kTools =
    R"(,"tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object"}}}])";

TEST_F(CacheTest, ClassFollowsWhatTheConversationLooksLike) {
  start();
  const std::string two = kUser + "," + kAnswer + "," + kUser;
  EXPECT_EQ(completion("").ttl_class, TtlClass::kHour);
  EXPECT_EQ(chat(kUser).ttl_class, TtlClass::kHour);
  EXPECT_EQ(chat(two).ttl_class, TtlClass::kChat);
  EXPECT_EQ(chat(two + "," + kAnswer + "," + kUser).ttl_class, TtlClass::kAgent);
  EXPECT_EQ(chat(kUser, kTools).ttl_class, TtlClass::kAgent);
  const std::string result = R"({"role":"tool","tool_call_id":"1","content":"42"})";
  EXPECT_EQ(chat(kUser + "," + kAnswer + "," + result).ttl_class, TtlClass::kAgent);
  for (const engine::Request& request : engine->requests()) EXPECT_FALSE(request.guarantee);
}

TEST_F(CacheTest, AFixedClassIsForRequestsThatAskForNone) {
  config.cache_ttl = TtlClass::kPinned;
  start();
  EXPECT_EQ(chat(kUser, kTools).ttl_class, TtlClass::kPinned);
  EXPECT_FALSE(engine->requests().back().guarantee);
  EXPECT_EQ(chat(kUser, R"(,"cache_ttl":"5m")").ttl_class, TtlClass::kTenMinutes);
  EXPECT_TRUE(engine->requests().back().guarantee);
}

TEST_F(CacheTest, CacheTtlRoundsUpToAClass) {
  start();
  const std::pair<const char*, TtlClass> cases[] = {
      {R"("5m")", TtlClass::kTenMinutes},
      {R"("1h")", TtlClass::kHour},
      {R"("24h")", TtlClass::kAgent},
      {R"("72h")", TtlClass::kAgent},
      {R"("7d")", TtlClass::kChat},
      {"1", TtlClass::kTenMinutes},
      {"601", TtlClass::kHour},
      {"259201", TtlClass::kChat},
      {"604800", TtlClass::kChat},
  };
  for (const auto& [json, expected] : cases) {
    const engine::Request request = completion(fmt::format(R"(,"cache_ttl":{})", json));
    EXPECT_EQ(request.ttl_class, expected) << json;
    EXPECT_TRUE(request.guarantee) << json;
  }
  for (const char* json :
       {"0",
        "-5",
        "604801",
        "1.5",
        "true",
        "[]",
        R"("")",
        R"("8d")",
        R"("1w")",
        R"("-1h")",
        R"("h")",
        R"("pinned")",
        R"("99999999999999999999h")",
        R"("9223372036854775807d")"}) {
    const auto field = fmt::format(R"("cache_ttl":{})", json);
    expect_refused("/v1/completions", fmt::format(R"({{"prompt":"a",{}}})", field), "cache_ttl");
    expect_refused(
        "/v1/chat/completions", fmt::format(R"({{"messages":[{}],{}}})", kUser, field), "cache_ttl"
    );
  }
  EXPECT_FALSE(completion(R"(,"cache_ttl":null)").guarantee);
}

TEST_F(CacheTest, CacheControlIsUnderstoodWhereverItStands) {
  start();
  const std::string control = R"("cache_control":{"type":"ephemeral"})";
  const std::string hour = R"("cache_control":{"type":"ephemeral","ttl":"1h"})";
  const std::string part = R"({"role":"user","content":[{"type":"text","text":"a",)" + hour + "}]}";
  const std::string message = R"({"role":"user","content":"a",)" + control + "}";
  const std::string tool = R"(,"tools":[{"type":"function","function":{"name":"f"},)" + hour + "}]";
  EXPECT_EQ(chat(part).ttl_class, TtlClass::kHour);
  EXPECT_EQ(chat(message).ttl_class, TtlClass::kTenMinutes);
  EXPECT_EQ(chat(kUser, tool).ttl_class, TtlClass::kHour);
  EXPECT_EQ(chat(kUser, "," + control).ttl_class, TtlClass::kTenMinutes);
  EXPECT_EQ(completion("," + hour).ttl_class, TtlClass::kHour);
  EXPECT_EQ(chat(message, tool).ttl_class, TtlClass::kHour) << "the longest counts";
  EXPECT_EQ(chat(part, R"(,"cache_ttl":"7d")").ttl_class, TtlClass::kChat);
  for (const engine::Request& request : engine->requests()) EXPECT_TRUE(request.guarantee);
  const std::string bad = R"({"role":"user","content":"a","cache_control":)";
  const std::pair<const char*, const char*> wrong[] = {
      {R"({"type":"persistent"})", ".type"},
      {R"({"type":"ephemeral","ttl":"8d"})", ".ttl"},
      {"[]", ""},
  };
  for (const auto& [json, field] : wrong) {
    expect_refused(
        "/v1/chat/completions",
        fmt::format(R"({{"messages":[{}{}}}]}})", bad, json),
        std::string("messages[0].cache_control") + field
    );
  }
}

TEST_F(CacheTest, AMarkDoesNotChangeThePrompt) {
  start();
  const std::string mark = R"(,"cache_control":{"type":"ephemeral"})";
  const std::string tool = R"(,"tools":[{"type":"function","function":{"name":"f"})";
  const auto plain = chat(kUser, tool + "}]").prompt;
  EXPECT_EQ(chat(kUser, tool + mark + "}]").prompt, plain);
  EXPECT_EQ(chat(R"({"role":"user","content":"a")" + mark + "}", tool + "}]").prompt, plain);
}

TEST_F(CacheTest, UsageHasTheSumAndThePromise) {
  start();
  engine->set_promise(kUntil);
  const auto usage_of = [&](const std::string& more) {
    const TestResponse response =
        post("/v1/completions", fmt::format(R"({{"prompt":"abcdefghij"{}}})", more));
    return response.json().at("usage").as_object();
  };
  auto usage = usage_of("");
  EXPECT_EQ(usage.at("prompt_tokens").as_int64(), 10);
  EXPECT_EQ(usage.at("prompt_cache_hit_tokens").as_int64(), 5);
  EXPECT_EQ(usage.at("prompt_cache_miss_tokens").as_int64(), 5);
  EXPECT_EQ(usage.at("prompt_tokens_details").at("cached_tokens").as_int64(), 5);
  EXPECT_FALSE(usage.contains("cache")) << "nobody asked";
  usage = usage_of(R"(,"cache_ttl":3000,"n":2)");
  EXPECT_EQ(usage.at("cache").at("ttl").as_string(), "1h");
  EXPECT_EQ(usage.at("cache").at("guaranteed_until").as_int64(), kUntil);
  engine->set_promise(0);
  usage = usage_of(R"(,"cache_ttl":"1h")");
  EXPECT_TRUE(usage.at("cache").at("guaranteed_until").is_null()) << "refused";
  const TestResponse stream = post(
      "/v1/completions",
      R"({"prompt":"abcdefghij","cache_ttl":"7d","stream":true,)"
      R"("stream_options":{"include_usage":true}})"
  );
  const auto all = events(stream.body);
  const auto last = boost::json::parse(all.at(all.size() - 2));
  EXPECT_EQ(last.at("usage").at("cache").at("ttl").as_string(), "7d");
}

TEST_F(CacheTest, TimingsSayWhereFromAndWhyNot) {
  start();
  const TestResponse response =
      post("/v1/completions", R"({"prompt":["abcdefgh","abcdefghij"],"n":2,"timings":true})");
  const auto timings = response.json().at("timings").as_object();
  EXPECT_EQ(timings.at("disk_tokens").as_int64(), 2 + 2);  // half of the half of 8 and of 10
  EXPECT_EQ(timings.at("cache_miss").as_string(), "expired");
  EXPECT_EQ(timings.at("load_s").to_number<double>(), 0.125);
  EXPECT_EQ(timings.at("prompt_tokens_computed").as_int64(), 9);
}

TEST_F(CacheTest, ReportHasTiersReasonsAndWhatWasSaved) {
  start();
  auto report = get("/artery/cache").json();
  EXPECT_EQ(report.at("tiers").as_array().size(), 1U);
  EXPECT_TRUE(get("/artery/status").json().at("kv_store").is_null());
  kvstore::StoreStatus store;
  store.folder = "/somewhere";
  store.io = "threads";
  store.health = kvstore::Health::kSick;
  store.trouble = "no space left";
  store.bytes_max = 1000;
  store.bytes_written = 100;
  store.bytes_to_disk = 130;
  store.classes[static_cast<std::size_t>(TtlClass::kAgent)].hits = 9;
  store.tenants.push_back({"alice", 3, 40, 20, 500, true});
  engine->set_store(store);
  report = get("/artery/cache").json();
  ASSERT_EQ(report.at("tiers").as_array().size(), 2U);
  EXPECT_EQ(report.at("tiers").at(0).at("hit_rate").to_number<double>(), 0.6);
  const auto& disk = report.at("tiers").at(1);
  EXPECT_EQ(disk.at("tier").as_string(), "disk");
  EXPECT_EQ(disk.at("folder").as_string(), "/somewhere");
  EXPECT_EQ(disk.at("health").as_string(), "sick");
  EXPECT_EQ(disk.at("trouble").as_string(), "no space left");
  EXPECT_EQ(disk.at("hit_rate").to_number<double>(), 0.3);
  EXPECT_EQ(disk.at("written").at("amplification").to_number<double>(), 1.3);
  EXPECT_EQ(disk.at("classes").at(2).at("ttl").as_string(), "72h");
  EXPECT_EQ(disk.at("classes").at(2).at("hits").as_int64(), 9);
  EXPECT_EQ(disk.at("tenants").at(0).at("tenant").as_string(), "alice");
  EXPECT_EQ(disk.at("tenants").at(0).at("quota_bytes").as_int64(), 500);
  EXPECT_EQ(report.at("prompt_tokens").as_int64(), 1000);
  EXPECT_EQ(report.at("hit_tokens").as_int64(), 900);
  EXPECT_EQ(report.at("miss_tokens").at("cold").as_int64(), 80);
  EXPECT_EQ(report.at("miss_tokens").at("evicted").as_int64(), 20);
  EXPECT_EQ(report.at("saved").at("tokens").as_int64(), 900);
  EXPECT_NEAR(report.at("saved").at("input_cost_share").to_number<double>(), 0.882, 1e-9);
  const auto line = get("/artery/status").json().at("kv_store");
  EXPECT_EQ(line.at("health").as_string(), "sick");
  EXPECT_EQ(line.at("bytes_max").as_int64(), 1000);
  EXPECT_NE(get("/metrics").body.find("artery:kv_store_bytes_max"), std::string::npos);
}

TEST_F(CacheTest, ResetIsOfRamAndSaysSo) {
  start();
  const TestResponse done = ask("POST", "/reset_prefix_cache?reset_external=false");
  EXPECT_EQ(done.status, 200);
  EXPECT_EQ(done.json().at("tiers").at(0).as_string(), "ram");
  const TestResponse refused = ask("POST", "/reset_prefix_cache?reset_external=true");
  EXPECT_EQ(refused.status, 400);
  EXPECT_EQ(refused.error("param"), "reset_external");
}

}  // namespace
}  // namespace artery::server
