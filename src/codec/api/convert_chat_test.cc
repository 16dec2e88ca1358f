// Chat requests: what the record does not hold. Bad bodies, messages that name the place, and the
// rules of a server of any model.

#include <gtest/gtest.h>

#include <algorithm>
#include <ctime>
#include <string>

#include "codec/api/convert_parts.h"

namespace artery::codec::api {
namespace {

Converted converted(std::string_view text, Rules rules = Rules::kRecipe) {
  ConvertOptions options;
  options.rules = rules;
  Body body(text);
  if (!body.ok()) return tl::unexpected(body.error());
  return convert_chat(body, options);
}

std::string fault(std::string_view text, Rules rules = Rules::kRecipe) {
  const Converted result = converted(text, rules);
  if (result) return "";
  const bool is_parse = result.error().stage == ConvertError::Stage::kParse;
  return (is_parse ? "parse: " : "") + result.error().message;
}

// A request of one user message "hi" and `more` fields (", ..." or nothing).
std::string request(const std::string& more) {
  return R"({"model":"DeepSeek-V4.1-Flash","messages":[{"role":"user","content":"hi"}])" + more +
         "}";
}

std::string with_message(const std::string& message) {
  return R"({"model":"DeepSeek-V4.1-Flash","messages":[)" + message + "]}";
}

TEST(ConvertChat, ErrorsOfTheShapeNameThePlace) {
  const auto wrong = [](const std::string& what) { return "parse: invalid request body: " + what; };
  EXPECT_EQ(fault("[]"), wrong("an array of 0 values in place of an object of 20 fields"));
  EXPECT_EQ(fault("7"), wrong("expected an object, found a whole number"));
  EXPECT_EQ(fault("{}"), wrong("messages: the field is missing"));
  EXPECT_EQ(
      fault(request(R"(,"temperature":"1")")), wrong("temperature: expected a number, found `1`")
  );
  EXPECT_EQ(
      fault(request(R"(,"max_tokens":1.5)")),
      wrong("max_tokens: expected a whole number from 0 to 4294967295, found a fraction")
  );
  EXPECT_EQ(
      fault(with_message(R"({"role":"bot"})")),
      wrong("messages[0].role: expected one of `system`, `user`, `assistant`, `tool`, "
            "`latest_reminder`, found `bot`")
  );
  EXPECT_EQ(
      fault(with_message(R"({"role":"user","content":[{"type":"text","text":"a"},{"type":"text"}]})"
      )),
      wrong("messages[0].content[1].text: the field is missing")
  );
  EXPECT_EQ(
      fault(with_message(
          R"({"role":"assistant","tool_calls":[{"id":"a","type":"function","function":{"name":"f"}}]})"
      )),
      wrong("messages[0].tool_calls[0].function.arguments: the field is missing")
  );
  EXPECT_EQ(
      fault(request(R"(,"tool_choice":"any")")),
      wrong("tool_choice: expected `none`, `auto`, `required` or a tool, found `any`")
  );
  EXPECT_EQ(
      fault("{\"model\":"),
      "parse: invalid JSON request: the text ends where a value is expected at line 1 column 10"
  );
  const std::string long_role(200, 'x');
  EXPECT_LT(fault(with_message("{\"role\":\"" + long_role + "\"}")).size(), 250U);
}

TEST(ConvertChat, WhatTheRecordDoesNotHold) {
  // Asked of deepseek-recipe 0.2.0 itself.
  EXPECT_EQ(
      fault(request(
          R"(,"tools":[{"type":"function","function":{"name":"f","strict":true}}],"response_format":{"type":"text"})"
      )),
      "response_format should not be used with tools"
  );
  EXPECT_EQ(
      fault(
          R"({"model":"DeepSeek-V4-Pro","messages":[],"tools":[{"type":"function","function":{"name":""}}]})"
      ),
      "Invalid 'tools[0].function.name': empty string. Expected a string with minimum length 1, "
      "but "
      "got an empty string instead."
  );
  const std::string calls =
      R"({"role":"assistant","tool_calls":[{"id":"a","type":"function","function":{"name":"f","arguments":""}},)"
      R"({"id":"b","type":"function","function":{"name":"f","arguments":""}}]},)";
  const auto result = [](const std::string& id) {
    return R"({"role":"tool","content":"r","tool_call_id":")" + id + "\"}";
  };
  EXPECT_EQ(
      fault(with_message(calls + result("a") + "," + result("c"))),
      "An assistant message with 'tool_calls' must be followed by tool messages responding to each "
      "'tool_call_id', The following tool_call_ids did not have response messages: c"
  );
  EXPECT_EQ(
      fault(with_message(calls + result("a") + "," + result("a"))),
      "Duplicate value for 'tool_call_id' of a in message[2]"
  );
  EXPECT_EQ(fault(with_message(calls + result("b") + "," + result("a"))), "");
  EXPECT_EQ(
      fault(with_message(
          R"({"role":"user","content":[{"type":"file","file_data":"data:image/png;base64,@"}]})"
      )),
      ".messages[0]: file_data is not a valid base64 data url"
  );
}

TEST(ConvertChat, SpecialSpellingsAndNulAreText) {
  const auto result = converted(
      with_message(R"({"role":"user","content":"a\u0000b <｜User｜></think>｜DSML｜ <｜image｜>"})")
  );
  ASSERT_TRUE(result);
  const Message& message = result->conversation.messages.front();
  EXPECT_EQ(message.content, std::string("a\0b", 3) + " <｜User｜></think>｜DSML｜ <｜image｜>");
  EXPECT_TRUE(message.image_places.empty());
}

TEST(ConvertChat, AServerTakesMore) {
  constexpr auto kServing = Rules::kServing;
  const auto result = converted(
      R"({"messages":[{"role":"developer","content":"s"},{"role":"assistant","content":[{"type":"refusal","refusal":"no"}],)"
      R"("reasoning":"why"},{"role":"user","content":"u"}],"n":3,"presence_penalty":0.5,"frequency_penalty":-0.5,"seed":7,)"
      R"("temperature":0.2,"top_p":0.4,"max_tokens":9,"max_completion_tokens":5,"parallel_tool_calls":false,)"
      R"("stream":true,"stream_options":{"include_usage":true},"user":"u1","prompt_cache_key":"k1",)"
      R"("logprobs":true,"top_logprobs":3,"tools":[{"type":"function","function":{"name":"f"}},)"
      R"({"type":"function","function":{"name":"g"}}],"tool_choice":{"type":"function","function":{"name":"g"}}})",
      kServing
  );
  ASSERT_TRUE(result) << result.error().message;
  const Conversation& conversation = result->conversation;
  EXPECT_EQ(conversation.messages[0].role, Role::kSystem);
  EXPECT_EQ(conversation.messages[1].content, "no");
  EXPECT_FALSE(conversation.thinking) << "a forced call has no room to think";
  EXPECT_EQ(conversation.tools.size(), 1U);
  const Beyond& beyond = result->beyond;
  EXPECT_EQ(beyond.n, 3);
  EXPECT_EQ(beyond.presence_penalty, 0.5);
  EXPECT_EQ(beyond.frequency_penalty, -0.5);
  EXPECT_EQ(beyond.named_tool, "g");
  EXPECT_FALSE(beyond.parallel_calls);
  EXPECT_TRUE(beyond.include_usage);
  EXPECT_EQ(beyond.user, "u1");
  EXPECT_EQ(beyond.prompt_cache_key, "k1");
  EXPECT_EQ(result->inference.temperature, 0.2F);
  EXPECT_EQ(result->inference.top_p, 0.4F);
  EXPECT_EQ(result->inference.max_tokens, 5);
  EXPECT_EQ(result->inference.seed, 7);
  EXPECT_EQ(result->inference.top_logprobs, 3);
}

TEST(ConvertChat, AServerRefusesWhatItCannotDo) {
  constexpr auto kServing = Rules::kServing;
  EXPECT_EQ(
      fault(request(R"(,"n":0)"), kServing), "Invalid n value, the valid range of n is [1, 128]"
  );
  EXPECT_EQ(
      fault(request(R"(,"n":129)"), kServing), "Invalid n value, the valid range of n is [1, 128]"
  );
  EXPECT_EQ(
      fault(request(R"(,"functions":[{"name":"f"}])"), kServing),
      "parse: invalid request body: functions: is not supported; use tools and tool_choice"
  );
  EXPECT_EQ(
      fault(with_message(R"({"role":"user","content":[{"type":"input_audio"}]})"), kServing),
      "parse: invalid request body: messages[0].content[0].type: expected one of `text`, "
      "`image_url`, "
      "`file`, `refusal`, found `input_audio`"
  );
}

TEST(ConvertChat, BombsAreRefusedOrCheap) {
  EXPECT_NE(fault(request(",\"x\":" + std::string(1'000'000, '['))), "");
  EXPECT_NE(fault(std::string(1'000'000, '{')), "");
  std::string wide = ",\"x\":[0";
  for (int i = 0; i < 500'000; ++i) wide += ",0";
  EXPECT_EQ(fault(request(wide + "]")), "");
  std::string keys = ",\"x\":{\"\":0";
  for (int i = 0; i < 200'000; ++i) keys += ",\"\":0";
  EXPECT_EQ(fault(request(keys + "}")), "");
  EXPECT_NE(fault(request(",\"x\":1" + std::string(1'000'000, '0'))), "")
      << "a number of a million digits";
  EXPECT_NE(fault(request(",\"x\":\"\xFF\"")), "");
  EXPECT_NE(fault(request(R"(,"x":"\ud800")")), "");
}

std::string request_with_tools(int count) {
  std::string tools = R"(,"tools":[)";
  for (int i = 0; i < count; ++i) {
    if (i > 0) tools += ',';
    tools += R"({"type":"function","function":{"name":"f)" + std::to_string(i) +
             R"(","description":"d","parameters":{"type":"object","properties":{)";
    for (int k = 0; k < 20; ++k)
      tools += (k > 0 ? ",\"p" : "\"p") + std::to_string(k) +
               R"(":{"type":"string","description":"one of the many","enum":["a","b"]})";
    tools += R"(},"required":["p1","p2"]}}})";
  }
  return request(tools + "]");
}

double seconds_for(const std::string& text) {
  double least = 1e9;
  for (int round = 0; round < 3; ++round) {
    const std::clock_t begun = std::clock();
    EXPECT_EQ(fault(text), "");
    least = std::min(least, static_cast<double>(std::clock() - begun) / CLOCKS_PER_SEC);
  }
  return least;
}

TEST(ConvertChat, ManyToolsTakeLinearTime) {
  const std::string small = request_with_tools(100), large = request_with_tools(800);
  ASSERT_GT(large.size(), 1'200'000U);
  EXPECT_LT(seconds_for(large), 30 * seconds_for(small) + 0.05);
}

TEST(ConvertChat, ManyCallsTakeLinearTime) {
  const auto history = [](int count) {
    std::string calls, results;
    for (int i = 0; i < count; ++i) {
      const std::string id = "\"c" + std::to_string(i) + "\"";
      calls += (i > 0 ? ",{\"id\":" : "{\"id\":") + id +
               R"(,"type":"function","function":{"name":"f","arguments":"{}"}})";
      results += R"(,{"role":"tool","content":"r","tool_call_id":)" + id + "}";
    }
    return with_message(R"({"role":"assistant","tool_calls":[)" + calls + "]}" + results);
  };
  EXPECT_LT(seconds_for(history(16'000)), 30 * seconds_for(history(2'000)) + 0.05);
}

}  // namespace
}  // namespace artery::codec::api
