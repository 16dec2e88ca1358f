// Responses requests as a server of any model takes them. What recipe makes of them is checked
// against the record (tests/codec).

#include <gtest/gtest.h>

#include <string>

#include "codec/api/convert_parts.h"

namespace artery::codec::api {
namespace {

Converted serve(std::string_view body) {
  ConvertOptions options;
  options.rules = Rules::kServing;
  Body read(body);
  if (!read.ok()) return tl::unexpected(read.error());
  return convert_responses(read, options);
}

ConvertedRequest served(std::string_view body) {
  Converted request = serve(body);
  EXPECT_TRUE(request) << request.error().message;
  return request.value_or(ConvertedRequest());
}

std::string refusal(std::string_view body) {
  const Converted request = serve(body);
  return request ? "not refused" : request.error().message;
}

// Field report C4: tools that the server cannot run are skipped, the echo keeps what was sent.
TEST(ConvertResponses, ToolsOfAllKindsAtOnce) {
  const std::string tools =
      R"([{"type":"function","name":"shell","parameters":{"type":"object","properties":{}}},)"
      R"({"type":"web_search","filters":{"a":1}},{"type":"namespace","name":"mcp__x","tools":[]},)"
      R"({"type":"custom","name":"apply_patch"},{"type":"image_generation"}])";
  const ConvertedRequest request =
      served(R"({"input":"hi","unknown":1,"tools":)" + tools + R"(,"client_metadata":{}})");
  ASSERT_EQ(request.conversation.tools.size(), 2U);
  EXPECT_EQ(request.conversation.tools[0].name, "shell");
  EXPECT_EQ(request.conversation.tools[1].name, "apply_patch");
  EXPECT_TRUE(request.has_apply_patch);
  EXPECT_EQ(request.echo.tools, tools);
}

TEST(ConvertResponses, CustomToolsAreOfferedAsFunctions) {
  const ConvertedRequest request = served(
      R"({"input":[{"type":"custom_tool_call","call_id":"c","name":"sql","input":"select \"a\""},)"
      R"({"type":"custom_tool_call_output","call_id":"c","output":"1"}],"tools":[{"type":"custom",)"
      R"("name":"sql","description":"Runs SQL.","format":{"type":"grammar","syntax":"lark",)"
      R"("definition":"start: x"}}]})"
  );
  ASSERT_EQ(request.conversation.tools.size(), 1U);
  EXPECT_EQ(
      request.conversation.tools[0].description,
      "Runs SQL.\n\nThe input must match this lark grammar:\nstart: x"
  );
  EXPECT_EQ(request.custom_tools, std::vector<std::string>{"sql"});
  EXPECT_FALSE(request.has_apply_patch);
  EXPECT_EQ(request.conversation.messages[0].calls[0].arguments, R"({"input":"select \"a\""})");
  EXPECT_EQ(
      refusal(R"({"input":"x","tools":[{"type":"custom","name":"a b"}]})").substr(0, 24),
      "Invalid 'tools[0].name':"
  );
}

TEST(ConvertResponses, AllowedTools) {
  const auto asked = [](std::string_view choice) {
    return R"({"input":"x","tools":[{"type":"function","name":"a"},{"type":"function","name":"b"},)"
           R"({"type":"function","name":"c"}],"tool_choice":)" +
           std::string(choice) + "}";
  };
  const ConvertedRequest some = served(
      asked(R"({"type":"allowed_tools","mode":"auto","tools":[{"type":"function","name":"c"},)"
            R"({"type":"function","name":"a"},{"type":"web_search"}]})")
  );
  ASSERT_EQ(some.conversation.tools.size(), 2U);
  EXPECT_EQ(some.conversation.tools[0].name, "a");
  EXPECT_EQ(some.conversation.tool_choice, ToolChoice::kAuto);
  EXPECT_NE(some.echo.tool_choice.find(R"("mode":"auto")"), std::string::npos);
  const ConvertedRequest forced = served(asked(
      R"({"type":"allowed_tools","mode":"required","tools":[{"type":"function","name":"b"}]})"
  ));
  EXPECT_EQ(forced.conversation.tool_choice, ToolChoice::kRequired);
  EXPECT_FALSE(forced.conversation.thinking);
  EXPECT_NE(refusal(asked(R"({"type":"file_search"})")), "not refused");
}

TEST(ConvertResponses, CallsKeepTheirOrderAndThoughtsBetweenThem) {
  const ConvertedRequest request =
      served(R"({"input":[{"type":"reasoning","content":[{"type":"reasoning_text","text":"r1"}]},)"
             R"({"type":"function_call","call_id":"b","name":"f","arguments":"{}"},)"
             R"({"type":"reasoning","content":[{"type":"reasoning_text","text":"r2"}]},)"
             R"({"type":"function_call","call_id":"a","name":"f","arguments":"{}"},)"
             R"({"type":"function_call_output","call_id":"a","output":"A"},)"
             R"({"type":"function_call_output","call_id":"b","output":"B"}]})");
  const auto& messages = request.conversation.messages;
  ASSERT_EQ(messages.size(), 3U);
  EXPECT_EQ(messages[0].reasoning, "r1\nr2");
  ASSERT_EQ(messages[0].calls.size(), 2U);
  EXPECT_EQ(messages[0].calls[0].id, "b");
  EXPECT_EQ(messages[1].call_id, "a");
}

// Codex sends back what a model said behind its call in the order of the items.
TEST(ConvertResponses, MessagesBetweenACallAndItsResult) {
  const std::string head =
      R"({"input":[{"role":"user","content":"u1"},{"role":"assistant","content":"a1"},)"
      R"({"type":"function_call","call_id":"a","name":"f","arguments":"{}"},)"
      R"({"role":"assistant","content":"a2"},{"role":"user","content":"u2"})";
  const std::string result = R"(,{"type":"function_call_output","call_id":"a","output":"A"})";
  const ConvertedRequest request = served(head + result + "]}");
  const auto& messages = request.conversation.messages;
  ASSERT_EQ(messages.size(), 4U);
  EXPECT_EQ(messages[1].content, "a1\n\na2");
  ASSERT_EQ(messages[1].calls.size(), 1U);
  EXPECT_EQ(messages[2].content, "A");
  EXPECT_EQ(messages[3].content, "u2");
  EXPECT_EQ(refusal(head + "]}"), "No tool output found for tool call a.");
}

TEST(ConvertResponses, FieldsThatAServerHonours) {
  const ConvertedRequest request = served(
      R"({"model":"any","input":[{"role":"developer","content":"d"},{"role":"user","content":"u"},)"
      R"({"role":"assistant","content":[{"type":"refusal","refusal":"no"}]}],)"
      R"("previous_response_id":"resp_9","store":false,"metadata":{"k":"v"},"user":"u1",)"
      R"("safety_identifier":"s1","prompt_cache_key":"key","parallel_tool_calls":false,)"
      R"("include":["reasoning.encrypted_content","message.output_text.logprobs"],)"
      R"("max_output_tokens":4000000,"temperature":0.3,"top_p":0.7,"presence_penalty":0.5,)"
      R"("ignore_eos":true,"min_tokens":9,"seed":7,"text":{"verbosity":"low"},"reasoning":{"effort":"none"}})"
  );
  EXPECT_EQ(request.conversation.messages[0].role, Role::kSystem);
  EXPECT_EQ(request.conversation.messages[2].content, "no");
  const Beyond& beyond = request.beyond;
  EXPECT_EQ(beyond.previous_response_id, "resp_9");
  EXPECT_EQ(beyond.store, false);
  EXPECT_EQ(beyond.metadata, R"({"k":"v"})");
  EXPECT_EQ(beyond.user, "u1");
  EXPECT_EQ(beyond.prompt_cache_key, "key");
  EXPECT_FALSE(beyond.parallel_calls);
  EXPECT_TRUE(beyond.includes_encrypted_reasoning);
  EXPECT_EQ(beyond.presence_penalty, 0.5);
  EXPECT_TRUE(beyond.ignore_eos);
  EXPECT_EQ(beyond.min_tokens, 9);
  EXPECT_TRUE(request.inference.logprobs);
  EXPECT_EQ(request.inference.seed, 7);
  EXPECT_EQ(request.inference.max_tokens, 393216);
  EXPECT_EQ(request.inference.temperature, 0.3F);
  EXPECT_EQ(request.inference.top_p, 0.7F);
  const ResponsesEcho& echo = request.echo;
  EXPECT_EQ(echo.previous_response_id, "resp_9");
  EXPECT_EQ(echo.prompt_cache_key, "key");
  EXPECT_EQ(echo.safety_identifier, "s1");
  EXPECT_EQ(echo.metadata, R"({"k":"v"})");
  EXPECT_FALSE(echo.store);
  EXPECT_FALSE(echo.parallel_tool_calls);
  EXPECT_TRUE(served(R"({"input":"x"})").echo.store);
}

TEST(ConvertResponses, WhatAServerCannotDoIsRefused) {
  EXPECT_NE(refusal(R"({"input":"x","conversation":"c"})").find("conversation"), std::string::npos);
  EXPECT_NE(refusal(R"({"input":"x","prompt":{"id":"p"}})").find("prompt"), std::string::npos);
  EXPECT_NE(refusal(R"({"input":"x","metadata":5})").find("metadata"), std::string::npos);
  EXPECT_NE(refusal(R"({"input":"x","store":"x"})").find("store"), std::string::npos);
  EXPECT_EQ(
      refusal(R"({"input":[{"type":"item_reference","id":"msg_1"}]})"),
      "Item with id 'msg_1' not found."
  );
  EXPECT_NE(
      refusal(R"({"input":"x","frequency_penalty":3})").find("frequency_penalty"), std::string::npos
  );
}

}  // namespace
}  // namespace artery::codec::api
