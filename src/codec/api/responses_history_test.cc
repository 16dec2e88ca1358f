#include "codec/api/responses_history.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

#include "codec/api/convert_parts.h"

namespace artery::codec::api {
namespace {

constexpr std::string_view kAnswer =
    R"({"id":"resp_1","output":[)"
    R"({"type":"reasoning","id":"rs_resp_1_0","status":"completed","content":[{"type":"reasoning_text","text":"hm"}],"summary":[]},)"
    R"({"type":"message","id":"msg_resp_1_1","status":"completed","role":"assistant","phase":"commentary","content":[{"type":"output_text","annotations":[],"logprobs":[{"token":"a"}],"text":"ok"}]},)"
    R"({"type":"function_call","id":"fc_resp_1_2","status":"completed","call_id":"c1","name":"f","arguments":"{\"a\": 1.50}"},)"
    R"({"type":"function_call","id":"fc_resp_1_3","status":"incomplete","call_id":"c2","name":"f","arguments":"{\"a"}]})";

ConvertedRequest converted(std::string_view body) {
  ConvertOptions options;
  options.rules = Rules::kServing;
  Body read(body);
  Converted request = convert_responses(read, options);
  EXPECT_TRUE(request) << request.error().message;
  return request.value_or(ConvertedRequest());
}

TEST(ResponsesHistory, TurnsOfAStoredConversation) {
  const std::string first = R"({"model":"m","instructions":"be brief","input":"hi","store":true})";
  History history{input_items(first).value(), output_items(kAnswer).value()};
  EXPECT_EQ(history.input, R"([{"type":"message","role":"user","content":"hi"}])");
  EXPECT_EQ(history.output.find("logprobs"), std::string::npos);
  EXPECT_EQ(history.output.find("c2"), std::string::npos) << "a call that was cut off";

  const std::string second =
      R"({"model":"m","previous_response_id":"resp_1","temperature":0.25,)"
      R"("input":[{"type":"function_call_output","call_id":"c1","output":"2"}]})";
  const std::string body = continued_body(history, second, {}).value();
  const ConvertedRequest request = converted(body);
  EXPECT_EQ(request.beyond.previous_response_id, "resp_1");
  EXPECT_EQ(request.echo.previous_response_id, "resp_1");
  EXPECT_EQ(request.inference.temperature, 0.25F);
  const auto& messages = request.conversation.messages;
  ASSERT_EQ(messages.size(), 3U) << "instructions are not carried over";
  EXPECT_EQ(messages[0].content, "hi");
  EXPECT_EQ(messages[1].reasoning, "hm");
  EXPECT_EQ(messages[1].content, "ok");
  ASSERT_EQ(messages[1].calls.size(), 1U);
  EXPECT_EQ(messages[1].calls[0].arguments, "{\"a\": 1.50}") << "byte for byte";
  EXPECT_EQ(messages[2].call_id, "c1");

  // The third turn stands on all of the second.
  const History longer{
      input_items(body).value(), R"([{"type":"message","role":"assistant","content":"2!"}])"
  };
  const std::string third = continued_body(longer, R"({"model":"m","input":"thanks"})", {}).value();
  const ConvertedRequest last = converted(third);
  ASSERT_EQ(last.conversation.messages.size(), 5U);
  EXPECT_EQ(last.conversation.messages[3].content, "2!");
  EXPECT_EQ(last.conversation.messages[4].content, "thanks");
}

TEST(ResponsesHistory, ReferencesToItems) {
  const History history{"[]", output_items(kAnswer).value()};
  const std::map<std::string, std::string, std::less<>> stored = {
      {"msg_resp_0_0",
       R"({"type":"message","id":"msg_resp_0_0","role":"assistant","content":"old"})"}
  };
  const ItemLookup lookup = [&](std::string_view id) -> std::optional<JsonText> {
    const auto found = stored.find(id);
    if (found == stored.end()) return std::nullopt;
    return found->second;
  };
  const auto body = [](std::string_view id) {
    return R"({"input":[{"type":"item_reference","id":")" + std::string(id) + R"("}]})";
  };
  EXPECT_EQ(
      continued_body(history, body("msg_resp_1_1"), lookup).value(),
      R"({"input":)" + history.output + "}"
  ) << "it stands in the history already";
  EXPECT_NE(
      continued_body({}, body("msg_resp_0_0"), lookup).value().find(R"("content":"old")"),
      std::string::npos
  );
  const auto missing = continued_body({}, body("msg_x_0"), lookup);
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().status, 404);
  EXPECT_EQ(missing.error().message, "Item with id 'msg_x_0' not found.");
  EXPECT_FALSE(continued_body({}, body("msg_resp_0_0"), {}));
  EXPECT_EQ(response_of_item("msg_resp_0_0"), "resp_0");
  EXPECT_EQ(response_of_item("fc_resp_a_b_12"), "resp_a_b");
  EXPECT_EQ(response_of_item("fc_1"), std::nullopt);
  EXPECT_EQ(response_of_item(""), std::nullopt);
}

TEST(ResponsesHistory, OddBodiesStayWhatTheyAre) {
  EXPECT_EQ(continued_body({}, R"({"input":5,"a":1})", {}).value(), R"({"input":5,"a":1})");
  EXPECT_EQ(continued_body({}, R"({"a":1})", {}).value(), R"({"a":1})");
  EXPECT_EQ(continued_body({}, R"({"input":[]})", {}).value(), R"({"input":[]})");
  EXPECT_EQ(continued_body({}, R"({"input":["x",null]})", {}).value(), R"({"input":["x",null]})");
  for (const char* bad : {"", "[]", "{", "null", "{\"a\":1e999}"}) {
    EXPECT_FALSE(continued_body({}, bad, {})) << bad;
    EXPECT_FALSE(input_items(bad)) << bad;
    EXPECT_FALSE(output_items(bad)) << bad;
  }
  EXPECT_FALSE(continued_body({"[", "[]"}, "{}", {}));
  EXPECT_EQ(
      output_items(R"({"output":[5,{"content":["x",{}]}]})").value(), R"([5,{"content":["x",{}]}])"
  );
}

}  // namespace
}  // namespace artery::codec::api
