#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>

#include "codec/api/convert_parts.h"
#include "codec/api/convert_responses_input.h"
#include "codec/api/convert_responses_tools.h"
#include "codec/api/json_out.h"
#include "codec/api/json_style.h"
#include "codec/api/rules.h"

namespace artery::codec::api {

namespace {

constexpr std::string_view kNoJsonWord =
    "Response input messages must contain the word 'json' in some form to use 'text.format' of "
    "type 'json_object'.";

#define RULE(expr)                                                                    \
  do {                                                                                \
    if (auto ruled = (expr); !ruled) return tl::unexpected(std::move(ruled.error())); \
  } while (false)

std::string quoted(const std::optional<std::string_view>& text) {
  if (!text) return "null";
  std::string out;
  put_json_string(out, *text);
  return out;
}

JsonText echoed_format(const ResponsesFormat& format) {
  if (format.kind == ResponseFormat::kText) return R"({"type":"text"})";
  if (format.kind == ResponseFormat::kJsonObject) return R"({"type":"json_object"})";
  return fmt::format(
      R"({{"type":"json_schema","name":{},"schema":{},"description":{},"strict":{}}})",
      quoted(format.name),
      to_json(*format.schema),
      quoted(format.description),
      !format.strict   ? "null"
      : *format.strict ? "true"
                       : "false"
  );
}

JsonText echoed_choice(const ResponsesChoice& choice) {
  if (!choice.given) return R"("auto")";
  if (choice.type.empty() || choice.allowed) return to_json(*choice.source);
  if (choice.is_web_search) return fmt::format(R"({{"type":"{}"}})", choice.type);
  return fmt::format(R"({{"type":"{}","name":{}}})", choice.type, quoted(choice.wish.name));
}

std::optional<std::string> owned(const std::optional<std::string_view>& text) {
  if (!text) return std::nullopt;
  return std::string(*text);
}

ResponsesEcho echo_of(const ResponsesRequest& request, Rules rules) {
  ResponsesEcho echo;
  echo.instructions = owned(request.instructions);
  if (request.max_output_tokens)
    echo.max_output_tokens = static_cast<std::int64_t>(*request.max_output_tokens);
  echo.temperature = request.temperature.value_or(1);
  echo.top_p = request.top_p.value_or(1);
  echo.top_logprobs = static_cast<int>(request.top_logprobs.value_or(0));
  echo.user = owned(request.user);
  std::optional<std::string_view> effort;
  if (request.effort) effort = kEffortWishes[static_cast<std::size_t>(*request.effort)];
  echo.reasoning =
      fmt::format(R"({{"effort":{},"summary":{}}})", quoted(effort), quoted(request.summary));
  echo.text = fmt::format(
      R"({{"format":{},"verbosity":{}}})", echoed_format(request.format), quoted(request.verbosity)
  );
  echo.tool_choice = echoed_choice(request.tool_choice);
  echo.tools = echoed_tools(request.tools, rules);
  if (rules == Rules::kRecipe) return echo;
  const ResponsesServing& serving = request.serving;
  echo.frequency_penalty = serving.frequency_penalty.value_or(0);
  echo.presence_penalty = serving.presence_penalty.value_or(0);
  echo.parallel_tool_calls = serving.parallel_calls.value_or(true);
  echo.max_tool_calls = serving.max_tool_calls;
  echo.previous_response_id = owned(serving.previous_response_id);
  echo.prompt_cache_key = owned(serving.prompt_cache_key);
  echo.safety_identifier = owned(serving.safety_identifier);
  echo.store = serving.store.value_or(true);
  if (serving.metadata != nullptr) echo.metadata = to_json(*serving.metadata);
  return echo;
}

// kServing: of the tools those that tool_choice allows.
void keep_allowed(const ResponsesChoice& choice, std::vector<DeclaredTool>& tools) {
  if (!choice.allowed) return;
  std::erase_if(tools, [&](const DeclaredTool& tool) {
    return std::ranges::find(*choice.allowed, tool.name) == choice.allowed->end();
  });
}

Ruled<std::optional<JsonText>> apply_format(
    const ResponsesFormat& format, Conversation& conversation
) {
  conversation.format = format.kind;
  if (format.kind == ResponseFormat::kJsonObject && !says_json(conversation))
    return refused(std::string(kNoJsonWord));
  if (format.schema == nullptr) return std::optional<JsonText>();
  auto checked = check_response_schema(*format.schema, format.strict.value_or(false));
  if (!checked) return refused(std::move(checked.error()));
  conversation.schema = to_json(*format.schema);
  return std::optional(std::move(*checked));
}

// The messages of tool searches get the tools that the choice left, in full; those without any go.
void settle_found_tools(Conversation& conversation) {
  std::unordered_map<std::string_view, const Tool*> tools;
  for (const Tool& tool : conversation.tools) tools.emplace(tool.name, &tool);
  std::erase_if(conversation.messages, [&](Message& message) {
    if (message.tools.empty()) return false;
    std::vector<Tool> left;
    for (const Tool& named : message.tools)
      if (const auto found = tools.find(named.name); found != tools.end())
        left.push_back(*found->second);
    message.tools = std::move(left);
    return message.tools.empty();
  });
}

Ruled<> apply_logprobs(const ResponsesRequest& asked, InferenceOptions& inference) {
  constexpr std::uint64_t kMostTop = 20;
  inference.logprobs = asked.top_logprobs.has_value() || asked.serving.includes_logprobs;
  if (!asked.top_logprobs) return {};
  if (*asked.top_logprobs > kMostTop)
    return refused("Invalid top_logprobs value, the valid range of top_logprobs is [0, 20].");
  inference.top_logprobs = static_cast<int>(*asked.top_logprobs);
  return {};
}

Ruled<> check_penalty(std::string_view name, std::optional<float> value) {
  if (!value || (*value >= -2 && *value <= 2)) return {};
  return refused(fmt::format("Invalid {} value, the valid range of {} is [-2, 2]", name, name));
}

Ruled<> apply_serving(const ResponsesRequest& asked, ConvertedRequest& request) {
  const ResponsesServing& serving = asked.serving;
  RULE(check_penalty("presence_penalty", serving.presence_penalty));
  RULE(check_penalty("frequency_penalty", serving.frequency_penalty));
  Beyond& beyond = request.beyond;
  beyond.presence_penalty = serving.presence_penalty.value_or(0);
  beyond.frequency_penalty = serving.frequency_penalty.value_or(0);
  beyond.ignore_eos = serving.ignore_eos.value_or(false);
  beyond.min_tokens = static_cast<int>(serving.min_tokens.value_or(0));
  beyond.parallel_calls = serving.parallel_calls.value_or(true);
  beyond.user = asked.user.value_or(serving.safety_identifier.value_or(""));
  beyond.prompt_cache_key = serving.prompt_cache_key.value_or("");
  beyond.previous_response_id = owned(serving.previous_response_id);
  beyond.store = serving.store;
  if (serving.metadata != nullptr) beyond.metadata = to_json(*serving.metadata);
  beyond.includes_encrypted_reasoning = serving.includes_encrypted_reasoning;
  request.inference.seed = serving.seed;
  return {};
}

Ruled<> apply_inference(
    const ResponsesRequest& asked, ConvertedRequest& request, const ConvertOptions& options
) {
  RULE(check_temperature(asked.temperature));
  RULE(check_top_p(asked.top_p));
  RULE(apply_logprobs(asked, request.inference));
  const bool serving = options.rules == Rules::kServing;
  auto max_tokens = bounded_max_tokens(
      asked.max_output_tokens,
      request.conversation.thinking,
      serving ? AboveBound::kLower : AboveBound::kRefuse,
      options
  );
  if (!max_tokens) return tl::unexpected(std::move(max_tokens.error()));
  request.inference.max_tokens = *max_tokens;
  if (serving) RULE(apply_serving(asked, request));
  resolve_sampling(request, asked.temperature, asked.top_p, options);
  return {};
}

// The tools that the choice leaves.
Ruled<> apply_declared_tools(
    const ResponsesChoice& choice,
    std::vector<DeclaredTool> declared,
    ConvertedRequest& request,
    const ConvertOptions& options
) {
  Conversation& conversation = request.conversation;
  if (choice.wish.kind == ToolChoiceWish::Kind::kNone) {
    conversation.tool_choice = ToolChoice::kNone;
    return {};
  }
  keep_allowed(choice, declared);
  RULE(check_flat_tools(declared));
  auto chosen = chosen_tools(declared, choice.wish, request, options);
  if (!chosen) return tl::unexpected(std::move(chosen.error()));
  auto settled = settle_tools(*chosen);
  if (!settled) return refused(std::move(settled.error()));
  conversation.tools = std::move(*settled);
  return {};
}

Ruled<> apply_output(const ResponsesFormat& asked, ConvertedRequest& request, Rules rules) {
  auto schema = apply_format(asked, request.conversation);
  if (!schema) return tl::unexpected(std::move(schema.error()));
  return resolve_output(request, std::move(*schema), rules);
}

Converted convert_request(const ResponsesRequest& asked, const ConvertOptions& options) {
  ConvertedRequest request;
  request.api = Api::kResponses;
  request.model = asked.model;
  request.stream = asked.stream.value_or(false);
  const auto version = version_of(asked.model, options);
  if (!version) return tl::unexpected(version.error());
  request.version = *version;
  auto tools = flatten_tools(asked, *version, options);
  if (!tools) return tl::unexpected(std::move(tools.error()));
  auto messages = ResponsesInput(*version, options, *tools).convert(asked);
  if (!messages) return tl::unexpected(std::move(messages.error()));
  Conversation& conversation = request.conversation;
  conversation.messages = std::move(*messages);
  const Thinking thinking = thinking_of(std::nullopt, asked.effort, options);
  conversation.thinking = thinking.on;
  conversation.effort = thinking.effort;
  RULE(settle_reasoning(conversation, !tools->declared.empty(), "reasoning_text", options));
  if (asked.tool_choice.is_web_search && options.responses_web_search == WebSearch::kReject)
    return refused("Server tools are not supported");
  request.namespaces = tools->names.tools();
  request.has_apply_patch = tools->has_apply_patch;
  request.has_tool_search = tools->has_tool_search;
  request.custom_tools = std::move(tools->custom);
  RULE(apply_declared_tools(asked.tool_choice, std::move(tools->declared), request, options));
  settle_found_tools(conversation);
  RULE(apply_output(asked.format, request, options.rules));
  RULE(apply_inference(asked, request, options));
  request.images = prompt_images(conversation);
  request.echo = echo_of(asked, options.rules);
  return request;
}

}  // namespace

Converted convert_responses(Body& body, const ConvertOptions& options) {
  const ResponsesRequest asked = read_responses_request(body, options.rules);
  if (!body.ok()) return tl::unexpected(body.error());
  return convert_request(asked, options);
}

tl::expected<ResponsesHead, ConvertError> responses_head(
    std::string_view text, const ConvertOptions& options
) {
  Body body(text);
  if (!body.ok()) return tl::unexpected(body.error());
  const ResponsesRequest asked = read_responses_request(body, options.rules);
  if (!body.ok()) return tl::unexpected(body.error());
  ResponsesHead head;
  head.model = asked.model;
  head.echo = echo_of(asked, options.rules);
  const auto version = version_of(asked.model, options);
  if (!version) {
    head.namespaces = tl::unexpected(version.error());
    return head;
  }
  auto namespaces = request_namespaces(asked, *version, options);
  if (namespaces) {
    head.namespaces = std::move(*namespaces);
  } else {
    head.namespaces = tl::unexpected(std::move(namespaces.error()));
  }
  return head;
}

#undef RULE

}  // namespace artery::codec::api
