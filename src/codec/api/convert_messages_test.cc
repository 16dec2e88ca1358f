// Messages requests: what the record does not hold. The rules of a server of any model, what coding
// clients send, pairs of calls and results, base64.

#include <gtest/gtest.h>

#include <string>

#include "codec/api/convert_messages_blocks.h"
#include "codec/api/convert_parts.h"

namespace artery::codec::api {
namespace {

Converted converted(std::string_view text, Rules rules = Rules::kServing) {
  ConvertOptions options;
  options.rules = rules;
  Body body(text);
  if (!body.ok()) return tl::unexpected(body.error());
  return convert_messages(body, options);
}

std::string fault(std::string_view text, Rules rules = Rules::kServing) {
  const Converted result = converted(text, rules);
  return result ? "" : result.error().message;
}

std::string request(const std::string& more) {
  return R"({"model":"DeepSeek-V4.1-Flash","max_tokens":9,"messages":[{"role":"user","content":"hi"}])" +
         more + "}";
}

std::string with_messages(const std::string& messages) {
  return R"({"model":"DeepSeek-V4.1-Flash","messages":[)" + messages + "]}";
}

// As Claude Code sends it: the first block differs from session to session.
TEST(ConvertMessages, VolatileFirstLinesStayOutOfTheServersPrompt) {
  const std::string body = request(
      R"(,"system":[{"type":"text","text":"x-anthropic-billing-header: cc_version=2.1.197.3fe; cc_entrypoint=cli;"},)"
      R"({"type":"text","text":"You are a coder.","cache_control":{"type":"ephemeral"}},)"
      R"({"type":"text","text":"Rules","cache_control":{"type":"ephemeral","ttl":"1h"}}])"
  );
  const Converted serving = converted(body);
  ASSERT_TRUE(serving);
  EXPECT_EQ(serving->conversation.messages.front().content, "You are a coder.\n\nRules");
  EXPECT_EQ(serving->beyond.cache_control_s, 3600);
  const Converted recipe = converted(body, Rules::kRecipe);
  ASSERT_TRUE(recipe);
  EXPECT_TRUE(recipe->conversation.messages.front().content.starts_with("x-anthropic-billing"));
  EXPECT_FALSE(recipe->beyond.cache_control_s);
}

TEST(ConvertMessages, AVolatileLineGoesWithoutWhatFollowsIt) {
  const Converted text = converted(request(
      R"(,"system":"x-anthropic-billing-header: a\nx-anthropic-billing-header: b\n\nStay.")"
  ));
  ASSERT_TRUE(text);
  EXPECT_EQ(text->conversation.messages.front().content, "Stay.");
  const Converted later = converted(request(R"(,"system":"Say\nx-anthropic-billing-header: a")"));
  ASSERT_TRUE(later);
  EXPECT_EQ(later->conversation.messages.front().content, "Say\nx-anthropic-billing-header: a");
}

TEST(ConvertMessages, AServerHonoursMore) {
  const Converted result = converted(request(
      R"(,"top_k":40,"ignore_eos":true,"min_tokens":9,"temperature":0.3,"metadata":{"user_id":"u1"},)"
      R"("tools":[{"type":"custom","name":"f","input_schema":{"type":"object"}}],)"
      R"("thinking":{"type":"disabled"},"tool_choice":{"type":"any","disable_parallel_tool_use":true})"
  ));
  ASSERT_TRUE(result) << result.error().message;
  EXPECT_EQ(result->beyond.top_k, 40);
  EXPECT_TRUE(result->beyond.ignore_eos);
  EXPECT_EQ(result->beyond.min_tokens, 9);
  EXPECT_EQ(result->beyond.user, "u1");
  EXPECT_FALSE(result->beyond.parallel_calls);
  EXPECT_NEAR(result->beyond.temperature.value_or(0), 0.3, 1e-6);
  EXPECT_EQ(result->conversation.tool_choice, ToolChoice::kRequired);
  EXPECT_EQ(result->conversation.tools.size(), 1U);
  EXPECT_EQ(
      fault(
          request(R"(,"tools":[{"type":"custom","name":"f","input_schema":{}}])"), Rules::kRecipe
      ),
      "tools[0]: server tools are not supported"
  );
}

TEST(ConvertMessages, AnyModelsNameAndNone) {
  EXPECT_EQ(fault(R"({"model":"llama","messages":[{"role":"user","content":"a"}]})"), "");
  EXPECT_EQ(fault(R"({"messages":[{"role":"user","content":"a"}]})"), "");
  EXPECT_NE(fault(R"({"messages":[{"role":"user","content":"a"}]})", Rules::kRecipe), "");
}

TEST(ConvertMessages, StructuredOutputs) {
  const std::string format =
      R"({"type":"json_schema","schema":{"type":"object","properties":{"a":{"type":"null"}}}})";
  for (const std::string& field :
       {R"(,"output_config":{"format":)" + format + "}", R"(,"output_format":)" + format}) {
    const Converted result = converted(request(field));
    ASSERT_TRUE(result) << result.error().message;
    EXPECT_EQ(result->conversation.format, ResponseFormat::kJsonSchema);
    ASSERT_TRUE(result->inference.constraint);
    EXPECT_EQ(result->inference.constraint->kind, OutputConstraint::Kind::kJson);
  }
}

TEST(ConvertMessages, WhatAServerCannotDoIsRefusedByName) {
  EXPECT_NE(
      fault(request(R"(,"mcp_servers":[{"url":"x"}])")).find("mcp_servers"), std::string::npos
  );
  EXPECT_NE(fault(request(R"(,"container":"c")")).find("container"), std::string::npos);
  EXPECT_EQ(fault(request(R"(,"mcp_servers":[],"service_tier":"auto","betas":["x"])")), "");
}

TEST(ConvertMessages, BlocksOfOtherModelsHistories) {
  const Converted result = converted(with_messages(
      R"({"role":"user","content":[{"type":"search_result","source":"s","title":"t",)"
      R"("content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}]},)"
      R"({"role":"assistant","content":[{"type":"redacted_thinking","data":"x"},{"type":"text","text":"c"}]})"
  ));
  ASSERT_TRUE(result) << result.error().message;
  EXPECT_EQ(result->conversation.messages[0].content, "a\n\nb");
  EXPECT_EQ(result->conversation.messages[1].content, "c");
}

TEST(ConvertMessages, CallsAndResultsPair) {
  const auto use = [](const std::string& id) {
    return R"({"type":"tool_use","id":")" + id + R"(","name":"f","input":{}})";
  };
  const std::string calls = R"({"role":"assistant","content":[)" + use("b") + "," + use("a") + "]}";
  const std::string rest =
      " `tool_use` ids were found without `tool_result` blocks immediately after: a, b. Each "
      "`tool_use` block must have a corresponding `tool_result` block in the next message.";
  EXPECT_EQ(fault(with_messages(calls)), "messages.0:" + rest.substr(1));
  EXPECT_EQ(
      fault(with_messages(calls + R"(,{"role":"user","content":"x"})")), "messages.1:" + rest
  );
  EXPECT_EQ(
      fault(with_messages(R"({"role":"assistant","content":[)" + use("a") + "," + use("a") + "]}")),
      "messages.0.content.1: `tool_use` ids must be unique"
  );
  EXPECT_NE(
      fault(with_messages(R"({"role":"user","content":[{"type":"tool_result","tool_use_id":"z"}]})")
      )
          .find("unexpected `messages.0.content.0: tool_use_id`"),
      std::string::npos
  );
}

TEST(ConvertMessages, Base64OfImages) {
  for (const char* const fine : {"", "====", "YQ==", "YQ=", "YWI=", "YWJj", "YWJj====", "/+8="})
    EXPECT_TRUE(is_strict_base64(fine)) << fine;
  for (const char* const bad : {"YQ", "YWI", "Y", "Y===", "YR==", "YWJ=", "Y=Q=", "YW Jj", "_-8="})
    EXPECT_FALSE(is_strict_base64(bad)) << bad;
}

}  // namespace
}  // namespace artery::codec::api
