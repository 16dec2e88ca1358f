// Reasoning and tool calls in chat answers: streams, whole answers, how they end.

#include <set>

#include "server/stream_fixture.h"

namespace artery::server {
namespace {

constexpr std::string_view kTools =
    R"("tools":[{"type":"function","function":{"name":"get","parameters":{"type":"object",)"
    R"("properties":{"city":{"type":"string"}}}}},{"type":"function","function":{"name":"now"}}])";

class ToolCallsTest : public StreamTest {
 protected:
  // Says the text, in which "\x01" stands for the first token of more_control, "\x02" for the next.
  void say_marked(std::string_view text) {
    std::vector<TokenId> ids = byte_ids(text);
    for (TokenId& id : ids) {
      if (id >= 1 && id <= 8) id += kMoreControlTokens - 1;
    }
    engine->set_author([ids](const engine::Request&, int) {
      return FakeEngine::Script{ids, kEndToken, {}};
    });
  }
  static std::string request(std::string_view more = kTools) {
    return R"({"messages":[{"role":"user","content":"hi"}],)" + std::string(more) + "}";
  }

  // The message of a stream, put together as a client does, and the reason of its end.
  struct Streamed {
    json::object message;
    std::string finish;
    std::vector<json::object> call_deltas;
    std::set<std::string> ids;
  };
  Streamed join_stream(const TestResponse& response) {
    Streamed out;
    EXPECT_TRUE(response.whole);
    for (const std::string& event : events(response.body)) {
      if (event == "[DONE]") continue;
      const json::value chunk = json::parse(event);
      out.ids.insert(text_of(chunk.at("id")));
      for (const json::value& choice : chunk.at("choices").as_array()) take(choice, out);
    }
    return out;
  }
  static void take(const json::value& choice, Streamed& out) {
    const json::object& delta = choice.at("delta").as_object();
    EXPECT_LE(delta.size(), delta.contains("role") ? 2U : 1U);
    for (const auto& [key, value] : delta) {
      if (key == "tool_calls") {
        for (const json::value& call : value.as_array()) add_call(call.as_object(), out);
      } else {
        std::string text = out.message.contains(key) ? text_of(out.message.at(key)) : "";
        out.message[key] = text + text_of(value);
      }
    }
    if (choice.at("finish_reason").is_null()) return;
    EXPECT_TRUE(delta.empty());
    EXPECT_EQ(out.finish, "");
    out.finish = text_of(choice.at("finish_reason"));
  }
  static void add_call(const json::object& call, Streamed& out) {
    out.call_deltas.push_back(call);
    if (!out.message.contains("tool_calls")) out.message["tool_calls"] = json::array();
    json::array& calls = out.message.at("tool_calls").as_array();
    const auto index = static_cast<std::size_t>(call.at("index").as_int64());
    if (index == calls.size()) {
      calls.push_back(call);
      calls.back().as_object().erase("index");
      EXPECT_EQ(text_of(call.at("function").at("arguments")), "");
      return;
    }
    ASSERT_LT(index, calls.size());
    EXPECT_FALSE(call.contains("id"));
    EXPECT_FALSE(call.at("function").as_object().contains("name"));
    json::value& arguments = calls[index].at("function").at("arguments");
    arguments = text_of(arguments) + text_of(call.at("function").at("arguments"));
  }

  // Stream and whole answer must agree in all but ids; gives the whole answer's choice.
  json::value ask_both(const std::string& body) {
    const json::value whole = post("/v1/chat/completions", body).json().at("choices").at(0);
    for (const int batch : {1, 3, 1000}) {
      engine->set_tokens_per_event(batch);
      Streamed streamed = join_stream(stream("/v1/chat/completions", body));
      EXPECT_EQ(streamed.ids.size(), 1U);
      EXPECT_EQ(streamed.finish, text_of(whole.at("finish_reason")));
      json::object message = whole.at("message").as_object();
      message.erase("refusal");
      if (message.at("content").is_null()) message["content"] = "";
      for (json::object* one : {&message, &streamed.message}) {
        if (!one->contains("tool_calls")) continue;
        for (json::value& call : one->at("tool_calls").as_array()) {
          EXPECT_GE(text_of(call.at("id")).size(), 9U);
          call.as_object().erase("id");
        }
      }
      EXPECT_EQ(json::value(streamed.message), json::value(message));
    }
    return whole;
  }
};

constexpr std::string_view kTwoCalls =
    "Let me look.\n<tool_call>\n{\"name\": \"get\", \"arguments\": {\"city\": \"Z\u00fcrich\"}}\n"
    "</tool_call>\n<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>";

TEST_F(ToolCallsTest, StreamAndWholeAnswerAgree) {  // FR-C1
  parsers.tool_call = "hermes";
  start();
  say(std::string(kTwoCalls));
  const json::value choice = ask_both(request());
  EXPECT_EQ(text_of(choice.at("finish_reason")), "tool_calls");
  const json::value& message = choice.at("message");
  EXPECT_EQ(text_of(message.at("content")), "Let me look.");
  const json::array& calls = message.at("tool_calls").as_array();
  ASSERT_EQ(calls.size(), 2U);
  EXPECT_EQ(text_of(calls[0].at("type")), "function");
  EXPECT_EQ(text_of(calls[0].at("function").at("name")), "get");
  EXPECT_EQ(text_of(calls[0].at("function").at("arguments")), "{\"city\": \"Z\u00fcrich\"}");
  EXPECT_EQ(text_of(calls[1].at("function").at("arguments")), "{}");
  EXPECT_TRUE(text_of(calls[0].at("id")).starts_with("call_"));
  EXPECT_NE(text_of(calls[0].at("id")), text_of(calls[1].at("id")));
}

TEST_F(ToolCallsTest, ArgumentsStream) {  // FR-B8
  parsers.tool_call = "hermes";
  start();
  engine->set_step_ms(2);
  const std::string value(300, 'x');
  say("<tool_call>{\"name\":\"get\",\"arguments\":{\"city\":\"" + value + "\"}}</tool_call>");
  const Streamed streamed = join_stream(stream("/v1/chat/completions", request()));
  // How many tokens come together depends on the machine; the codec's test counts every one.
  EXPECT_GE(streamed.call_deltas.size(), 5U);
  const json::object& first = streamed.call_deltas.front();
  EXPECT_EQ(text_of(first.at("function").at("arguments")), "");
  EXPECT_EQ(text_of(first.at("function").at("name")), "get");
  EXPECT_EQ(text_of(first.at("type")), "function");
}

TEST_F(ToolCallsTest, OneCallOnly) {
  parsers.tool_call = "hermes";
  start();
  say(std::string(kTwoCalls) + std::string(100, 'z'));
  const json::value choice =
      ask_both(request(std::string(kTools) + R"(,"parallel_tool_calls":false)"));
  EXPECT_EQ(choice.at("message").at("tool_calls").as_array().size(), 1U);
  EXPECT_EQ(text_of(choice.at("finish_reason")), "tool_calls");
  EXPECT_EQ(text_of(choice.at("message").at("content")), "Let me look.");
}

TEST_F(ToolCallsTest, WithoutToolsTheMarkupIsText) {
  parsers.tool_call = "hermes";
  start();
  say(std::string(kTwoCalls));
  for (const std::string& more :
       {std::string(R"("temperature":0)"), std::string(kTools) + R"(,"tool_choice":"none")"}) {
    const json::value choice = ask_both(request(more));
    EXPECT_EQ(text_of(choice.at("message").at("content")), kTwoCalls);
    EXPECT_EQ(text_of(choice.at("finish_reason")), "stop");
  }
}

TEST_F(ToolCallsTest, ABrokenCallIsContent) {
  parsers.tool_call = "hermes";
  start();
  const std::string text = "<tool_call>{\"name\": get}</tool_call> \"quoted\\ \x7f\n";
  say(text);
  const json::value choice = ask_both(request());
  EXPECT_EQ(text_of(choice.at("message").at("content")), text);
  EXPECT_FALSE(choice.at("message").as_object().contains("tool_calls"));
  EXPECT_EQ(text_of(choice.at("finish_reason")), "stop");
}

TEST_F(ToolCallsTest, ACutOffCallEndsByItsLength) {  // FR-C1
  parsers.tool_call = "hermes";
  start();
  say("<tool_call>{\"name\":\"get\",\"arguments\":{\"city\":\"Paris\"}}</tool_call>");
  const json::value choice = ask_both(request(std::string(kTools) + R"(,"max_tokens":50)"));
  EXPECT_EQ(text_of(choice.at("finish_reason")), "length");
  const json::value& call = choice.at("message").at("tool_calls").at(0);
  EXPECT_EQ(text_of(call.at("function").at("arguments")), "{\"city\":\"Pari");
  EXPECT_TRUE(choice.at("message").at("content").is_null());
}

TEST_F(ToolCallsTest, ReasoningThatThePromptOpened) {  // FR-B4
  parsers.reasoning = "qwen3";
  template_tail = "<think>\n";
  start();
  say("I think so.</think>\n\nYes");
  json::value choice = ask_both(request(R"("max_tokens":8)"));
  EXPECT_EQ(text_of(choice.at("message").at("reasoning_content")), "I think ");
  EXPECT_EQ(text_of(choice.at("message").at("content")), "");
  EXPECT_EQ(text_of(choice.at("finish_reason")), "length");
  choice = ask_both(request(R"("max_tokens":100)"));
  EXPECT_EQ(text_of(choice.at("message").at("reasoning_content")), "I think so.");
  EXPECT_EQ(text_of(choice.at("message").at("content")), "Yes");
  choice = ask_both(request(R"("include_reasoning":false)"));
  EXPECT_FALSE(choice.at("message").as_object().contains("reasoning_content"));
  EXPECT_EQ(text_of(choice.at("message").at("content")), "Yes");
  EXPECT_EQ(
      post("/v1/completions", R"({"prompt":"x","max_tokens":60})")
          .json()
          .at("choices")
          .at(0)
          .at("text"),
      "I think so.</think>\n\nYes"
  );
}

TEST_F(ToolCallsTest, StopStringsAreOfTheVisibleText) {
  parsers = {"hermes", "qwen3"};
  start();
  say("<think>stop</think>a stop"
      "<tool_call>{\"name\":\"get\",\"arguments\":{\"city\":\"halt\"}}</tool_call>b halt c");
  json::value choice = ask_both(request(std::string(kTools) + R"(,"stop":["halt"])"));
  EXPECT_EQ(text_of(choice.at("message").at("content")), "a stopb ");
  EXPECT_EQ(
      text_of(choice.at("message").at("tool_calls").at(0).at("function").at("arguments")),
      "{\"city\":\"halt\"}"
  );
  EXPECT_EQ(text_of(choice.at("stop_reason")), "halt");
  choice = ask_both(request(std::string(kTools) + R"(,"stop":["stop"])"));
  EXPECT_EQ(text_of(choice.at("message").at("reasoning_content")), "stop");
  EXPECT_EQ(text_of(choice.at("message").at("content")), "a ");
  EXPECT_EQ(text_of(choice.at("finish_reason")), "stop");
  // Not across a call.
  choice = ask_both(request(std::string(kTools) + R"(,"stop":["stopb"])"));
  EXPECT_EQ(text_of(choice.at("message").at("content")), "a stopb halt c");
}

TEST_F(ToolCallsTest, MarkersThatAreControlTokens) {
  parsers.tool_call = "mistral";
  more_control = {"[TOOL_CALLS]", "[ARGS]", "[OTHER]"};
  start();
  say_marked("A[ARGS]\x03 \x01get\x02{\"city\": \"\u00e9\"}");
  const json::value choice = ask_both(request(std::string(kTools) + R"(,"logprobs":true)"));
  const json::value& message = choice.at("message");
  EXPECT_EQ(text_of(message.at("content")), "A[ARGS]");
  EXPECT_EQ(text_of(message.at("tool_calls").at(0).at("function").at("name")), "get");
  EXPECT_EQ(
      text_of(message.at("tool_calls").at(0).at("function").at("arguments")),
      "{\"city\": \"\u00e9\"}"
  );
  EXPECT_EQ(text_of(message.at("tool_calls").at(0).at("id")).size(), 9U);
  // Every token has its log probability, whatever became of it.
  EXPECT_EQ(choice.at("logprobs").at("content").as_array().size(), 28U);
}

TEST_F(ToolCallsTest, EachChoiceHasItsOwnCalls) {
  parsers.tool_call = "hermes";
  start();
  engine->set_author([](const engine::Request&, int choice) {
    const std::string text = choice == 0 ? "plain" : std::string(kTwoCalls);
    return FakeEngine::Script{byte_ids(text), kEndToken, {}};
  });
  const json::value answer =
      post("/v1/chat/completions", request(std::string(kTools) + R"(,"n":2)")).json();
  EXPECT_EQ(text_of(answer.at("choices").at(0).at("finish_reason")), "stop");
  EXPECT_EQ(text_of(answer.at("choices").at(1).at("finish_reason")), "tool_calls");
  EXPECT_GT(answer.at("usage").at("completion_tokens").as_int64(), 100);
}

TEST_F(ToolCallsTest, LateSystemMessagesAreNotesWhereATemplateRefusesThem) {  // FR-B5
  strict_template = true;
  start();
  const auto prompt = [&](const std::string& messages) {
    const json::value tokens =
        post("/tokenize", R"({"messages":[)" + messages + R"(],"return_token_strs":true})").json();
    if (!tokens.as_object().contains("token_strs"))
      return text_of(tokens.at("error").at("message"));
    std::string text;
    for (const json::value& token : tokens.at("token_strs").as_array()) text += text_of(token);
    return text;
  };
  const std::string user = R"({"role":"user","content":"Hi"},)";
  const std::string answer = R"({"role":"assistant","content":"Yes?"},)";
  const std::string note = R"({"role":"developer","content":"One word."})";
  EXPECT_EQ(
      prompt(user + answer + note),
      "<|start|>user\nHi<|end|>\n<|start|>assistant\nYes?<|end|>\n<|start|>user\nOne word.<|end|>\n"
      "<|start|>assistant\n"
  );
  EXPECT_EQ(
      prompt(user + note + R"(,{"role":"user","content":"Capital of France?"})"),
      "<|start|>user\nHi\n\nOne word.\n\nCapital of France?<|end|>\n<|start|>assistant\n"
  );
  EXPECT_EQ(prompt(user + R"({"role":"user","content":"x"})"), "roles must alternate");
}

}  // namespace
}  // namespace artery::server
