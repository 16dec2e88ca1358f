#include "codec/api/rules.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace artery::codec::api {
namespace {

template <class T>
std::string message(const Ruled<T>& ruled) {
  return ruled ? "" : ruled.error().message;
}

TEST(Rules, ErrorsHaveTheEnvelope) {
  const auto error = refused("a \"b\"\n").value();
  EXPECT_EQ(
      error.body(),
      R"({"error":{"message":"a \"b\"\n","type":"invalid_request_error","param":null,"code":"invalid_request_error"}})"
  );
  EXPECT_EQ(error.status, 400);
}

TEST(Rules, ModelNames) {
  ConvertOptions options;
  EXPECT_EQ(version_of("DeepSeek-V4-Pro", options), ModelVersion::kV4);
  EXPECT_EQ(
      message(version_of("deepseek-v4-pro", options)),
      "The supported API model names are DeepSeek-V4-Pro, DeepSeek-V4.1-Flash, but you passed "
      "deepseek-v4-pro."
  );
  options.rules = Rules::kServing;
  options.serving_version = ModelVersion::kV4;
  EXPECT_EQ(version_of("anything", options), ModelVersion::kV4);
}

TEST(Rules, TheTypeOfThinkingWinsOverTheEffort) {
  ConvertOptions options;
  using Type = ThinkingType;
  const auto shown = [&](std::optional<Type> type, std::optional<EffortWish> effort) {
    const Thinking thinking = thinking_of(type, effort, options);
    constexpr std::array kNames = {"low", "high", "xhigh", "max"};
    return std::string(
        thinking.on ? kNames[static_cast<std::size_t>(thinking.effort.value())] : "off"
    );
  };
  EXPECT_EQ(shown({}, {}), "high");
  EXPECT_EQ(shown({}, EffortWish::kNone), "off");
  EXPECT_EQ(shown({}, EffortWish::kMinimal), "low");
  EXPECT_EQ(shown({}, EffortWish::kMedium), "high");
  EXPECT_EQ(shown({}, EffortWish::kXHigh), "xhigh");
  EXPECT_EQ(shown({}, EffortWish::kUltra), "max");
  EXPECT_EQ(shown(Type::kEnabled, EffortWish::kNone), "high");
  EXPECT_EQ(shown(Type::kAdaptive, EffortWish::kMax), "max");
  EXPECT_EQ(shown(Type::kDisabled, EffortWish::kMax), "off");
  options.default_thinking = false;
  EXPECT_EQ(shown({}, {}), "off");
  EXPECT_EQ(shown({}, EffortWish::kLow), "low");
}

ConvertedRequest request_of(ModelVersion version, bool thinking, bool has_tools) {
  ConvertedRequest request;
  request.version = version;
  request.conversation.thinking = thinking;
  if (has_tools) request.conversation.tools.push_back({"f", {}, "{}", {}, false});
  return request;
}

TEST(Rules, SamplingDependsOnVersionThinkingAndTools) {
  struct Case {
    ModelVersion version;
    bool thinking, has_tools;
    std::optional<float> top_p;
    float temperature_out, top_p_out;  // of temperature 0.5
  };
  constexpr auto kV4 = ModelVersion::kV4, kV41 = ModelVersion::kV41;
  const Case cases[] = {
      {kV41, true, false, {}, 1, 1},
      {kV41, true, true, 0.3F, 1, 0.95F},
      {kV41, true, false, 0.97F, 1, 0.97F},
      {kV41, false, false, 0.3F, 0.5F, 1},
      {kV41, false, true, {}, 0.5F, 1},
      {kV4, false, false, 0.3F, 0.5F, 0.3F},
      {kV4, false, true, {}, 0.5F, 1},
      {kV4, true, false, 0.3F, 1, 1},
      {kV4, true, true, 1.0F, 1, 0.95F}
  };
  for (const Case& one : cases) {
    ConvertedRequest request = request_of(one.version, one.thinking, one.has_tools);
    resolve_sampling(request, 0.5F, one.top_p, {});
    EXPECT_EQ(request.inference.temperature, one.temperature_out) << &one - cases;
    EXPECT_EQ(request.inference.top_p, one.top_p_out) << &one - cases;
    EXPECT_EQ(request.beyond.temperature, 0.5);
    ConvertOptions serving;
    serving.rules = Rules::kServing;
    resolve_sampling(request, 0.5F, one.top_p, serving);
    EXPECT_EQ(request.inference.temperature, 0.5F);
    EXPECT_EQ(request.inference.top_p, one.top_p.value_or(1));
  }
  EXPECT_TRUE(
      check_temperature(2.0F) && check_temperature(0.0F) && check_top_p(1.0F) && check_top_p({})
  );
  EXPECT_FALSE(
      check_temperature(2.1F) || check_temperature(-0.1F) || check_top_p(0.0F) || check_top_p(1.1F)
  );
}

TEST(Rules, MaxTokensHaveABound) {
  ConvertOptions options;
  options.plain_max_tokens = 50;
  options.thinking_max_tokens = 1000;
  const auto bounded = [&](std::uint64_t wish, bool thinking, AboveBound above) {
    const auto ruled = bounded_max_tokens(wish, thinking, above, options);
    return ruled ? std::to_string(ruled->value()) : ruled.error().message;
  };
  EXPECT_EQ(bounded(50, false, AboveBound::kRefuse), "50");
  EXPECT_EQ(
      bounded(51, false, AboveBound::kRefuse),
      "Invalid max_tokens value, the valid range of max_tokens is [1, 50]"
  );
  EXPECT_EQ(bounded(51, false, AboveBound::kLower), "50");
  EXPECT_EQ(bounded(UINT64_MAX, true, AboveBound::kLower), "1000");
  EXPECT_EQ(
      bounded(0, true, AboveBound::kLower),
      "Invalid max_tokens value, the valid range of max_tokens is [1, 1000]"
  );
  EXPECT_EQ(bounded_max_tokens({}, true, AboveBound::kRefuse, options)->has_value(), false);
}

TEST(Rules, LengthIsResolvedWithinTheContext) {
  ConvertedRequest request = request_of(ModelVersion::kV41, false, false);
  const auto resolved = [&](std::int64_t prompt, std::int64_t limit) {
    const auto tokens = request.resolve_max_tokens(prompt, limit);
    return tokens ? std::to_string(*tokens) : tokens.error().message;
  };
  EXPECT_EQ(resolved(10, 1'000'000), "8192");
  request.conversation.thinking = true;
  EXPECT_EQ(resolved(10, 1'000'000), "65536");
  request.conversation.effort = Effort::kMax;
  EXPECT_EQ(resolved(10, 1'000'000), "131072");
  EXPECT_EQ(resolved(100, 100), "1");
  EXPECT_EQ(
      resolved(101, 100),
      "This model's maximum context length is 100 tokens. However, you requested 101 tokens (101 "
      "in "
      "the messages, 0 in the completion). Please reduce the length of the messages or completion."
  );
  request.inference.max_tokens = 60;
  EXPECT_EQ(resolved(40, 100), "60");
  EXPECT_EQ(
      resolved(41, 100),
      "This model's maximum context length is 100 tokens. However, you requested 101 tokens (41 in "
      "the messages, 60 in the completion). Please reduce the length of the messages or completion."
  );
}

TEST(Rules, Stops) {
  const std::vector<std::string_view> sixteen(16, "x"), seventeen(17, "");
  const std::vector<std::string_view> empty = {"a", ""};
  EXPECT_TRUE(check_stops(sixteen));
  EXPECT_EQ(message(check_stops(seventeen)), "Stop string array too long: 17");
  EXPECT_EQ(
      message(check_stops(empty)),
      "Invalid 'stop[1]': empty string. Expected a string with minimum length 1, but got an empty "
      "string instead."
  );
}

std::vector<DeclaredTool> two_tools() {
  std::vector<DeclaredTool> tools(2);
  tools[0].name = "f";
  tools[1].name = "g";
  return tools;
}

TEST(Rules, TheChoiceOfTools) {
  using Kind = ToolChoiceWish::Kind;
  const auto tools = two_tools();
  const auto chosen = [&](ToolChoiceWish wish, bool thinking, Rules rules = Rules::kRecipe) {
    ConvertedRequest request = request_of(ModelVersion::kV41, thinking, false);
    ConvertOptions options;
    options.rules = rules;
    const auto ruled = apply_tools(tools, wish, request, options);
    if (!ruled) return ruled.error().message;
    std::string names = request.conversation.thinking ? "thinking " : "";
    for (const Tool& tool : request.conversation.tools) names += tool.name;
    constexpr std::array kChoices = {" auto", " none", " required"};
    return names + kChoices[static_cast<std::size_t>(request.conversation.tool_choice)];
  };
  EXPECT_EQ(chosen({}, true), "thinking fg auto");
  EXPECT_EQ(chosen({Kind::kNone, {}}, true), "thinking  none");
  EXPECT_EQ(chosen({Kind::kRequired, {}}, false), "fg required");
  EXPECT_EQ(chosen({Kind::kNamed, "g"}, false), "g required");
  EXPECT_EQ(chosen({Kind::kNamed, "g"}, true), "Thinking mode does not support this tool_choice");
  EXPECT_EQ(chosen({Kind::kNamed, "g"}, true, Rules::kServing), "g required");
  EXPECT_EQ(
      chosen({Kind::kNamed, "h"}, true),
      "Invalid value for 'tool_call': no function named 'h' was specified in the 'tools' parameter."
  );
}

Message message_of(Role role, std::string content = "") {
  Message made;
  made.role = role;
  made.content = std::move(content);
  return made;
}

TEST(Rules, MissingReasoningIsFilledOrRefused) {
  Conversation conversation;
  conversation.messages = {
      message_of(Role::kUser), message_of(Role::kAssistant), message_of(Role::kLatestReminder)
  };
  ConvertOptions options;
  EXPECT_TRUE(settle_reasoning(conversation, true, "r", options));
  EXPECT_EQ(conversation.messages[1].reasoning, "");
  options.missing_reasoning = MissingReasoning::kReject;
  EXPECT_TRUE(settle_reasoning(conversation, true, "r", options)) << "an empty one counts as given";
  conversation.messages[1].reasoning.reset();
  EXPECT_EQ(
      message(settle_reasoning(conversation, true, "r", options)),
      "The `r` in the thinking mode must be passed back to the API."
  );
  EXPECT_TRUE(settle_reasoning(conversation, false, "r", options)) << "no tools, no calls";
  conversation.messages[1].reasoning.reset();
  conversation.messages[1].calls.push_back({"c", "f", "{}"});
  EXPECT_FALSE(settle_reasoning(conversation, false, "r", options));
  conversation.messages.push_back(message_of(Role::kUser));
  EXPECT_TRUE(settle_reasoning(conversation, true, "r", options))
      << "only after the last user turn";
  conversation.thinking = false;
  EXPECT_TRUE(settle_reasoning(conversation, true, "r", options));
  EXPECT_FALSE(conversation.messages[1].reasoning.has_value());
}

TEST(Rules, ResultsStandInTheOrderOfTheirCalls) {
  Conversation conversation;
  Message caller = message_of(Role::kAssistant);
  caller.calls = {{"a", "f", ""}, {"b", "f", ""}, {"c", "f", ""}};
  conversation.messages = {message_of(Role::kUser), caller};
  for (const char* const id : {"c", "b", "?", "a"}) {
    conversation.messages.push_back(message_of(Role::kTool));
    conversation.messages.back().call_id = id;
    if (*id == 'b') conversation.messages.push_back(message_of(Role::kUser));
  }
  // ? ranks with the first, and came before it.
  EXPECT_EQ(prompt_order(conversation), (std::vector<std::size_t>{0, 1, 5, 6, 4, 3, 2}));
  conversation.messages.insert(conversation.messages.begin() + 4, message_of(Role::kSystem));
  EXPECT_EQ(prompt_order(conversation), (std::vector<std::size_t>{0, 1, 3, 2, 4, 5, 6, 7}));
}

TEST(Rules, ContentKeepsThePlacesOfItsImages) {
  const ConvertOptions options;
  ContentBuilder builder(ModelVersion::kV41, options);
  EXPECT_TRUE(builder.empty());
  builder.text("<｜image｜>");
  builder.image({});
  builder.text("");
  builder.image({});
  Message message;
  builder.move_into(message);
  EXPECT_EQ(message.content, "<｜image｜>\n\n<｜image｜>\n\n\n\n<｜image｜>");
  const std::size_t width = options.image_token.size();
  EXPECT_EQ(message.image_places, (std::vector<std::size_t>{width + 2, 2 * width + 6}));
  EXPECT_TRUE(builder.empty());
  ContentBuilder plain(ModelVersion::kV4, options);
  plain.image({});
  plain.move_into(message);
  EXPECT_EQ(message.content, "[Unsupported Image]");
  EXPECT_TRUE(message.images.empty() && message.image_places.empty());
}

}  // namespace
}  // namespace artery::codec::api
