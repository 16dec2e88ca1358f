// POST /v1/messages and count_tokens: answers, streams, errors in Anthropic's shape, on a model
// with a template and an output parser of its own family.

#include "server/named_events.h"

namespace artery::server {
namespace {

constexpr std::string_view kPath = "/v1/messages";
constexpr std::string_view kTools =
    R"("tools":[{"name":"get","input_schema":{"type":"object","properties":{"city":{"type":"string"}}}}])";

class MessagesTest : public StreamTest {
 protected:
  static std::string request(std::string_view more = R"("max_tokens":100)") {
    return R"({"model":"tiny","messages":[{"role":"user","content":"hi"}],)" + std::string(more) +
           "}";
  }
  std::vector<NamedEvent> ask_stream(const std::string& body) {
    const TestResponse response = stream(std::string(kPath), body);
    EXPECT_EQ(response.status, 200);
    EXPECT_TRUE(response.whole);
    return named_events(response.body);
  }
  static void expect_error(const TestResponse& response, int status, std::string_view type) {
    EXPECT_EQ(response.status, status);
    const json::value body = response.json();
    EXPECT_EQ(text_of(body.at("type")), "error") << response.body;
    EXPECT_EQ(text_of(body.at("error").at("type")), type) << response.body;
    EXPECT_FALSE(text_of(body.at("error").at("message")).empty());
  }
};

TEST_F(MessagesTest, Answers) {
  start();
  say("Good day");
  const json::value answer = post(kPath, request()).json();
  EXPECT_EQ(text_of(answer.at("type")), "message");
  EXPECT_TRUE(text_of(answer.at("id")).starts_with("msg_"));
  EXPECT_EQ(answer.at("content").as_array().size(), 1U);
  EXPECT_EQ(text_of(answer.at("content").at(0).at("text")), "Good day");
  EXPECT_EQ(text_of(answer.at("stop_reason")), "end_turn");
  const json::value& usage = answer.at("usage");
  const json::value count = post("/v1/messages/count_tokens", request()).json();
  EXPECT_EQ(
      usage.at("input_tokens").as_int64() + usage.at("cache_read_input_tokens").as_int64(),
      count.at("input_tokens").as_int64()
  );
  EXPECT_EQ(usage.at("output_tokens").as_int64(), 9);  // the end token counts
}

TEST_F(MessagesTest, StreamsTheSame) {
  start();
  say("Good day");
  for (const int batch : {1, 3, 1000}) {
    engine->set_tokens_per_event(batch);
    const auto events = ask_stream(request());
    ASSERT_GE(events.size(), 6U);
    EXPECT_EQ(events.front().name, "message_start");
    EXPECT_EQ(events.back().name, "message_stop");
    std::string text;
    for (const NamedEvent& event : events)
      if (event.name == "content_block_delta") text += text_of(event.data.at("delta").at("text"));
    EXPECT_EQ(text, "Good day");
    const NamedEvent& last = events[events.size() - 2];
    EXPECT_EQ(last.name, "message_delta");
    EXPECT_EQ(text_of(last.data.at("delta").at("stop_reason")), "end_turn");
    EXPECT_EQ(last.data.at("usage").at("output_tokens").as_int64(), 9);
  }
}

TEST_F(MessagesTest, EndsAsItEnded) {
  start();
  say("one two three");
  json::value answer = post(kPath, request(R"("max_tokens":5)")).json();
  EXPECT_EQ(text_of(answer.at("stop_reason")), "max_tokens");
  answer = post(kPath, request(R"("max_tokens":50,"stop_sequences":["two"])")).json();
  EXPECT_EQ(text_of(answer.at("stop_reason")), "stop_sequence");
  EXPECT_EQ(text_of(answer.at("stop_sequence")), "two");
  EXPECT_EQ(text_of(answer.at("content").at(0).at("text")), "one ");
}

TEST_F(MessagesTest, ToolUseOfAnyFamily) {
  parsers.tool_call = "hermes";
  start();
  say("Let me look.\n<tool_call>\n{\"name\": \"get\", \"arguments\": {\"city\": \"Z\u00fcrich\"}}\n"
      "</tool_call>");
  const std::string body = request(std::string(kTools) + R"(,"max_tokens":200)");
  const json::value answer = post(kPath, body).json();
  EXPECT_EQ(text_of(answer.at("stop_reason")), "tool_use");
  ASSERT_EQ(answer.at("content").as_array().size(), 2U);
  const json::value& call = answer.at("content").at(1);
  EXPECT_EQ(text_of(call.at("name")), "get");
  EXPECT_EQ(text_of(call.at("input").at("city")), "Z\u00fcrich");
  EXPECT_FALSE(text_of(call.at("id")).empty());

  std::string input;
  for (const NamedEvent& event : ask_stream(body)) {
    if (event.name != "content_block_delta") continue;
    if (const auto* part = event.data.at("delta").as_object().if_contains("partial_json"))
      input += text_of(*part);
  }
  EXPECT_EQ(json::parse(input), call.at("input"));
}

TEST_F(MessagesTest, TheResultOfAToolReachesTheTemplate) {
  start();
  const std::string history =
      R"({"model":"tiny","max_tokens":5,"messages":[{"role":"user","content":"hi"},)"
      R"({"role":"assistant","content":[{"type":"tool_use","id":"t1","name":"get","input":{"city":"P"}}]},)"
      R"({"role":"user","content":[{"type":"tool_result","tool_use_id":"t1","content":"rain"}]}],)" +
      std::string(kTools) + "}";
  EXPECT_EQ(post(kPath, history).status, 200);
  const json::value with = post("/v1/messages/count_tokens", history).json();
  const json::value without = post("/v1/messages/count_tokens", request()).json();
  EXPECT_GT(with.at("input_tokens").as_int64(), without.at("input_tokens").as_int64());
}

TEST_F(MessagesTest, ThinkingIsABlockOfItsOwn) {
  parsers.reasoning = "qwen3";
  template_tail = "<think>\n";
  start();
  say("I think so.</think>\n\nYes");
  const json::value answer = post(kPath, request()).json();
  ASSERT_EQ(answer.at("content").as_array().size(), 2U);
  EXPECT_EQ(text_of(answer.at("content").at(0).at("thinking")), "I think so.");
  EXPECT_EQ(text_of(answer.at("content").at(1).at("text")), "Yes");
  // And none where nothing was thought.
  say("</think>Yes");
  EXPECT_EQ(post(kPath, request()).json().at("content").as_array().size(), 1U);
  int blocks = 0;
  for (const NamedEvent& event : ask_stream(request()))
    blocks += event.name == "content_block_start" ? 1 : 0;
  EXPECT_EQ(blocks, 1);
}

TEST_F(MessagesTest, ErrorsHaveItsShape) {
  config.api_key = "secret";
  open();
  const std::string key = "Content-Type: application/json\r\nx-api-key: secret\r\n";
  expect_error(ask("POST", kPath, key, request()), 503, "overloaded_error");
  attach();
  expect_error(post(kPath, request()), 401, "authentication_error");
  expect_error(ask("POST", kPath, key, "{"), 400, "invalid_request_error");
  expect_error(ask("POST", kPath, key, R"({"model":"tiny"})"), 400, "invalid_request_error");
  expect_error(
      ask("POST",
          kPath,
          key,
          R"({"model":"no","max_tokens":1,"messages":[{"role":"user","content":"a"}]})"),
      404,
      "not_found_error"
  );
  expect_error(ask("GET", "/v1/messages/nothing", key), 404, "not_found_error");
  expect_error(
      ask("POST",
          kPath,
          key,
          request(
              R"("max_tokens":5,"tool_choice":{"type":"tool","name":"get"},)" + std::string(kTools)
          )),
      501,
      "invalid_request_error"
  );
}

// The official clients' tool runner asks for conversations that the server keeps; by this error it
// knows to send them whole.
TEST_F(MessagesTest, ThreadsAreRefusedAsItsClientsExpect) {
  start();
  const TestResponse refused = post(kPath, request(R"("max_tokens":9,"thread":{"type":"create"})"));
  expect_error(refused, 400, "invalid_request_error");
  const json::value details = refused.json().at("error").at("details");
  EXPECT_EQ(text_of(details.at("error_code")), "thread_unsupported_request");
  EXPECT_EQ(text_of(details.at("unsupported").at(0)), "thread");
  EXPECT_EQ(refused.header("request-id"), refused.header("x-request-id"));
  EXPECT_EQ(post(kPath, request(R"("max_tokens":9,"thread":null)")).status, 200);
}

TEST_F(MessagesTest, AFailureAfterTheHeadersIsAnEvent) {
  start();
  engine->set_author([](const engine::Request&, int) {
    return FakeEngine::Script{byte_ids("abc"), -1, "the disk is on fire"};
  });
  const auto events = ask_stream(request());
  ASSERT_FALSE(events.empty());
  EXPECT_EQ(events.back().name, "error");
  EXPECT_EQ(text_of(events.back().data.at("error").at("type")), "api_error");
}

TEST_F(MessagesTest, SilenceIsFilledWithPings) {
  config.sse_comment_s = 1;
  start();
  engine->pause(true);
  TestClient client(server->port());
  ASSERT_TRUE(client.connected());
  const std::string body = request(R"("max_tokens":5,"stream":true)");
  client.send(message("POST", kPath, "Content-Type: application/json\r\n", body));
  EXPECT_NE(client.read_until("event: ping\ndata: {\"type\": \"ping\"}\n\n", 30000), "");
  engine->pause(false);
}

// As coding agents send them: nothing of it may be refused.
TEST_F(MessagesTest, ARequestOfACodingAgent) {
  start();
  const std::string body =
      R"({"model":"tiny","max_tokens":32,"stream":true,"thinking":{"type":"adaptive"},)"
      R"("output_config":{"effort":"high"},"context_management":{"edits":[]},)"
      R"("metadata":{"user_id":"u"},"system":[{"type":"text","text":"x-anthropic-billing-header: cc_version=2.1.197.123; cc_entrypoint=cli;"},)"
      R"({"type":"text","text":"You help.","cache_control":{"type":"ephemeral"}}],)"
      R"("messages":[{"role":"user","content":[{"type":"text","text":"hi"}]},{"role":"system","content":"be brief"}],)" +
      std::string(kTools) + "}";
  const TestResponse response = post(kPath, body);
  EXPECT_EQ(response.status, 200) << response.body;
  EXPECT_EQ(named_events(response.body).back().name, "message_stop");
  // The first system line changes with every prompt and must not be part of any.
  std::string other = body;
  other.replace(other.find(".123;"), 5, ".3fe9;");
  const std::string count = "/v1/messages/count_tokens";
  const json::value one = post(count, body).json(), two = post(count, other).json();
  EXPECT_EQ(one, two);
}

}  // namespace
}  // namespace artery::server
