// POST /v1/responses, GET and DELETE by id, previous_response_id, on a model with a template.

#include "server/named_events.h"

namespace artery::server {
namespace {

constexpr std::string_view kPath = "/v1/responses";

class ResponsesTest : public StreamTest {
 protected:
  static std::string request(std::string_view input, std::string_view more = {}) {
    std::string out = R"({"model":"tiny","input":")" + std::string(input) + "\"";
    if (!more.empty()) out += "," + std::string(more);
    return out + "}";
  }
  // The prompt of the newest request, as text.
  void note_prompts() {
    engine->set_author([this](const engine::Request& asked, int) {
      const MutexLock lock(mu_);
      prompt_.clear();
      for (const TokenId id : asked.prompt)
        if (id < 256) prompt_ += static_cast<char>(id);
      return FakeEngine::Script{byte_ids("Fine"), kEndToken, {}};
    });
  }
  std::string prompt() {
    const MutexLock lock(mu_);
    return prompt_;
  }

 private:
  Mutex mu_;
  std::string prompt_ GUARDED_BY(mu_);
};

TEST_F(ResponsesTest, AnswersAndStreamsTheSame) {
  start();
  say("Good day");
  const json::value whole = post(kPath, request("hi")).json();
  EXPECT_EQ(text_of(whole.at("status")), "completed");
  EXPECT_TRUE(text_of(whole.at("id")).starts_with("resp_"));
  EXPECT_EQ(text_of(whole.at("output").at(0).at("content").at(0).at("text")), "Good day");
  for (const int batch : {1, 1000}) {
    engine->set_tokens_per_event(batch);
    const auto events = named_events(stream(std::string(kPath), request("hi")).body);
    ASSERT_GE(events.size(), 4U);
    EXPECT_EQ(events.front().name, "response.created");
    EXPECT_EQ(events.back().name, "response.completed");
    std::string text;
    std::int64_t sequence = 0;
    for (const NamedEvent& event : events) {
      EXPECT_EQ(event.data.at("sequence_number").as_int64(), sequence++);
      if (event.name == "response.output_text.delta") text += text_of(event.data.at("delta"));
    }
    EXPECT_EQ(text, "Good day");
    EXPECT_EQ(events.back().data.at("response").at("usage"), whole.at("usage"));
  }
}

TEST_F(ResponsesTest, GoesOnFromAStoredOne) {
  start();
  note_prompts();
  const json::value first = post(kPath, request("one", R"("instructions":"be kind")")).json();
  const std::string before = prompt();
  const std::string id = text_of(first.at("id"));
  const std::string next = R"("previous_response_id":")" + id + "\"";
  const json::value second =
      post(kPath, request("two", next + R"(,"instructions":"be kind")")).json();
  ASSERT_EQ(text_of(second.at("status")), "completed");
  EXPECT_EQ(text_of(second.at("previous_response_id")), id);
  const std::string after = prompt();
  // The longer history begins with the shorter one's prompt, so that its KV is found again.
  EXPECT_TRUE(after.starts_with(before)) << after;
  EXPECT_NE(after.find("Fine", before.size()), std::string::npos);
  EXPECT_NE(after.find("two"), std::string::npos);
  // And from that one, streamed.
  const std::string third = R"("previous_response_id":")" + text_of(second.at("id")) + "\"";
  EXPECT_EQ(
      named_events(stream(std::string(kPath), request("three", third)).body).back().name,
      "response.completed"
  );
  for (const char* word : {"one", "two", "three"})
    EXPECT_NE(prompt().find(word), std::string::npos) << word;
}

TEST_F(ResponsesTest, GetAndDeleteById) {
  start();
  const json::value made = post(kPath, request("hi")).json();
  const std::string path = std::string(kPath) + "/" + text_of(made.at("id"));
  EXPECT_EQ(get(path).json(), made);
  const TestResponse gone = ask("DELETE", path);
  EXPECT_EQ(gone.status, 200);
  EXPECT_TRUE(gone.json().at("deleted").as_bool());
  EXPECT_EQ(get(path).status, 404);
  EXPECT_EQ(ask("DELETE", path).status, 404);
  const TestResponse next =
      post(kPath, request("two", R"("previous_response_id":")" + text_of(made.at("id")) + "\""));
  EXPECT_EQ(next.status, 404);
  EXPECT_EQ(next.error("param"), "previous_response_id");
}

TEST_F(ResponsesTest, TheNewerPathsOfTheApi) {
  start();
  const std::string ask_one = request("hi");
  const json::value made = post(kPath, ask_one).json();
  const json::value count = post("/v1/responses/input_tokens", ask_one).json();
  EXPECT_EQ(count.at("input_tokens"), made.at("usage").at("input_tokens"));
  EXPECT_EQ(text_of(count.at("object")), "response.input_tokens");
  // A stream of what is stored would come out empty at a client that is given the whole.
  const std::string path = std::string(kPath) + "/" + text_of(made.at("id"));
  const TestResponse streamed = get(path + "?stream=true");
  EXPECT_EQ(streamed.status, 400);
  EXPECT_EQ(streamed.error("param"), "stream");
  EXPECT_EQ(get(path + "/input_items").status, 404);
  EXPECT_EQ(ask("PUT", path).header("allow"), "GET, HEAD, DELETE, OPTIONS");
}

TEST_F(ResponsesTest, StrictToolsBesideOthers) {
  start();
  const std::string tools =
      R"("tools":[{"type":"function","name":"f","strict":true,"parameters":{"type":"object",)"
      R"("properties":{},"required":[],"additionalProperties":false}},)"
      R"({"type":"function","name":"g","strict":false,"parameters":{"type":"object"}}])";
  EXPECT_EQ(post(kPath, request("hi", tools)).status, 200);
}

TEST_F(ResponsesTest, NotKeptWhenStoreIsFalse) {
  start();
  const json::value made = post(kPath, request("hi", R"("store":false)")).json();
  EXPECT_EQ(get(std::string(kPath) + "/" + text_of(made.at("id"))).status, 404);
}

TEST_F(ResponsesTest, OfItsTenantOnly) {
  const auto key = [](const std::string& name) {
    ApiKey one;
    one.name = name;
    one.tenant = name;
    one.digest = key_digest(name);
    return one;
  };
  config.api_keys = {key("ada"), key("bob")};
  start();
  const auto as = [&](std::string_view who,
                      std::string_view method,
                      std::string_view path,
                      std::string_view body) {
    const std::string headers =
        "Content-Type: application/json\r\nAuthorization: Bearer " + std::string(who) + "\r\n";
    return ask(method, path, headers, body);
  };
  const json::value made = as("ada", "POST", kPath, request("hi")).json();
  const std::string path = std::string(kPath) + "/" + text_of(made.at("id"));
  EXPECT_EQ(as("bob", "GET", path, "").status, 404);
  EXPECT_EQ(as("bob", "DELETE", path, "").status, 404);
  EXPECT_EQ(
      as("bob",
         "POST",
         kPath,
         request("x", R"("previous_response_id":")" + text_of(made.at("id")) + "\""))
          .status,
      404
  );
  EXPECT_EQ(as("ada", "GET", path, "").status, 200);
}

TEST_F(ResponsesTest, AFunctionCallAndItsOutput) {
  parsers.tool_call = "hermes";
  start();
  say("<tool_call>\n{\"name\": \"get\", \"arguments\": {\"city\": \"P\"}}\n</tool_call>");
  const std::string tools =
      R"("tools":[{"type":"function","name":"get","parameters":{"type":"object","properties":{}}},)"
      R"({"type":"web_search"}])";
  const json::value made = post(kPath, request("hi", tools)).json();
  const json::value& call = made.at("output").at(0);
  EXPECT_EQ(text_of(call.at("type")), "function_call");
  EXPECT_EQ(text_of(call.at("name")), "get");
  EXPECT_EQ(json::parse(text_of(call.at("arguments"))), json::parse(R"({"city":"P"})"));
  say("Rain");
  const std::string body = R"({"model":"tiny","previous_response_id":")" + text_of(made.at("id")) +
                           R"(","input":[{"type":"function_call_output","call_id":")" +
                           text_of(call.at("call_id")) + R"(","output":"rain"}],)" + tools + "}";
  const TestResponse next = post(kPath, body);
  ASSERT_EQ(next.status, 200) << next.body;
  EXPECT_EQ(text_of(next.json().at("output").at(0).at("content").at(0).at("text")), "Rain");
}

TEST_F(ResponsesTest, EndsAsItEnded) {
  start();
  say("one two three");
  const json::value cut = post(kPath, request("hi", R"("max_output_tokens":5)")).json();
  EXPECT_EQ(text_of(cut.at("status")), "incomplete");
  EXPECT_EQ(text_of(cut.at("incomplete_details").at("reason")), "max_output_tokens");
  engine->set_author([](const engine::Request&, int) {
    return FakeEngine::Script{byte_ids("abc"), -1, "the disk is on fire"};
  });
  const auto events = named_events(stream(std::string(kPath), request("hi")).body);
  ASSERT_FALSE(events.empty());
  EXPECT_EQ(events.back().name, "error");
  EXPECT_EQ(text_of(events.back().data.at("code")), "internal_error");
  EXPECT_EQ(
      events.back().data.at("sequence_number").as_int64(),
      static_cast<std::int64_t>(events.size()) - 1
  );
}

// As a coding agent sends it: what cannot be offered is left out, nothing is refused.
TEST_F(ResponsesTest, ARequestOfACodingAgent) {
  start();
  const std::string body =
      R"({"model":"tiny","stream":true,"store":false,"include":["reasoning.encrypted_content"],)"
      R"("reasoning":{"effort":"medium","summary":"auto"},"prompt_cache_key":"k","client_metadata":{"a":"b"},)"
      R"("input":[{"type":"message","role":"developer","content":[{"type":"input_text","text":"rules"}]},)"
      R"({"type":"message","role":"user","content":[{"type":"input_text","text":"hi"}]}],)"
      R"("tools":[{"type":"function","name":"exec","parameters":{"type":"object","properties":{}}},)"
      R"({"type":"namespace","name":"n","tools":[{"type":"function","name":"f","parameters":{"type":"object","properties":{}}}]},)"
      R"({"type":"web_search"}],"tool_choice":"auto","parallel_tool_calls":true})";
  const TestResponse response = post(kPath, body);
  ASSERT_EQ(response.status, 200) << response.body;
  EXPECT_EQ(named_events(response.body).back().name, "response.completed");
}

TEST_F(ResponsesTest, RefusesByName) {
  start();
  EXPECT_EQ(post(kPath, "[]").status, 400);
  EXPECT_EQ(post(kPath, R"({"model":"nope","input":"x"})").status, 404);
  const TestResponse schema =
      post(kPath, request("json", R"("text":{"format":{"type":"json_object"}})"));
  EXPECT_EQ(schema.status, 501);
  EXPECT_EQ(schema.error("param"), "text.format");
  EXPECT_EQ(ask("PUT", kPath).status, 405);
}

}  // namespace
}  // namespace artery::server
