#include <fmt/format.h>

#include <algorithm>
#include <unordered_set>

#include "codec/api/convert_chat_read.h"
#include "codec/api/convert_parts.h"
#include "codec/api/data_url.h"
#include "codec/api/json_style.h"
#include "codec/api/rules.h"

namespace artery::codec::api {
namespace {

constexpr std::string_view kCallsUnanswered =
    "An assistant message with 'tool_calls' must be followed by tool messages responding to each "
    "'tool_call_id'";
constexpr std::string_view kStrayResult =
    "Messages with role 'tool' must be a response to a preceding message with 'tool_calls'";
constexpr std::string_view kNotLastPrefix =
    "Invalid completion message: prefix set true with message which is not final message or "
    "message role is not assistant";
constexpr std::string_view kNoJsonWord =
    "Prompt must contain the word 'json' in some form to use 'response_format' of type "
    "'json_object'.";
// OpenAI's bound on n.
constexpr std::uint64_t kMaxChoices = 128;

#define RULE(expr)                                                                    \
  do {                                                                                \
    if (auto ruled = (expr); !ruled) return tl::unexpected(std::move(ruled.error())); \
  } while (false)

// The messages of a request, one after the other.
class MessageConverter {
 public:
  MessageConverter(ModelVersion version, const ConvertOptions& options)
      : options_(options), version_(version) {}

  Ruled<std::vector<Message>> convert(const std::vector<ChatMessage>& messages) {
    std::vector<Message> converted;
    converted.reserve(messages.size());
    std::size_t results_end = 0;  // results of the latest calls stand before it
    for (std::size_t i = 0; i < messages.size(); ++i) {
      const ChatMessage& message = messages[i];
      if (message.role == Role::kTool && i >= results_end)
        return refused(std::string(kStrayResult));
      if (message.role == Role::kTool) RULE(check_result(message, i));
      auto one = convert_one(message, i);
      if (!one) return tl::unexpected(std::move(one.error()));
      if (message.calls) {
        RULE(check_calls(message, i));
        results_end = i + 1 + message.calls->size();
      }
      if (i < results_end && !has_result(messages, i, results_end))
        return refused(fmt::format(
            "{}. (insufficient tool messages following tool_calls message)", kCallsUnanswered
        ));
      if (message.role == Role::kSystem && one->content.empty()) continue;
      converted.push_back(std::move(*one));
    }
    return converted;
  }

 private:
  // While calls wait, the next message answers one of them.
  static bool has_result(
      const std::vector<ChatMessage>& messages, std::size_t at, std::size_t results_end
  ) {
    if (at + 1 >= results_end) return true;
    return at + 1 < messages.size() && messages[at + 1].role == Role::kTool;
  }

  Ruled<Message> convert_one(const ChatMessage& message, std::size_t index) {
    Message made;
    made.role = message.role;
    ContentBuilder content(version_, options_);
    if (message.content.text) content.text(*message.content.text);
    for (const ChatPart& part : message.content.parts)
      RULE(add_part(message, part, index, content));
    content.move_into(made);
    if (message.role == Role::kTool) made.call_id = message.call_id;
    if (message.role != Role::kAssistant) return made;
    if (!message.content.given && !message.calls)
      return refused("Invalid assistant message: content or tool_calls must be set");
    made.is_prefix = message.is_prefix;
    if (message.reasoning) made.reasoning = std::string(*message.reasoning);
    if (!message.calls) return made;
    made.calls.reserve(message.calls->size());
    for (const ChatCall& call : *message.calls)
      made.calls.push_back(
          {std::string(call.id), std::string(call.name), std::string(call.arguments)}
      );
    return made;
  }

  Ruled<> add_part(
      const ChatMessage& message, const ChatPart& part, std::size_t index, ContentBuilder& content
  ) {
    if (part.kind == ChatPart::Kind::kText) {
      content.text(part.text);
      return {};
    }
    if (version_ == ModelVersion::kV4) {
      content.image({});
      return {};
    }
    const std::string path = fmt::format(".messages[{}]", index);
    if (part.kind == ChatPart::Kind::kFile) RULE(check_file(part, path));
    if (message.role == Role::kAssistant)
      return refused("Image in assistant message is not supported");
    const bool is_file = part.kind == ChatPart::Kind::kFile;
    auto source = image_of_url(is_file ? *part.file_data : part.text, part.detail, path);
    if (!source) return tl::unexpected(std::move(source.error()));
    content.image(std::move(*source));
    return {};
  }

  static Ruled<> check_file(const ChatPart& part, const std::string& path) {
    if (part.file_id && part.file_data)
      return refused(fmt::format("{}: file cannot have both file_id and file_data", path));
    if (part.file_id)
      return refused(fmt::format(
          "{}: file_id is not supported. Pass the image as a base64 data url instead.", path
      ));
    if (!part.file_data)
      return refused(fmt::format("{}: file must have a file_id or file_data", path));
    const std::optional<DataUrl> data = read_data_url(*part.file_data);
    if (data && !data->is_image())
      return refused(fmt::format(
          "{}: You have uploaded an unsupported file. Please make sure your file is valid and "
          "has one of the following formats: webp, png, jpeg, and gif.",
          path
      ));
    if (!data || !data->decodes())
      return refused(fmt::format("{}: file_data is not a valid base64 data url", path));
    return {};
  }

  // The calls of message `index`; what answers them comes next.
  Ruled<> check_calls(const ChatMessage& message, std::size_t index) {
    if (message.calls->empty())
      return refused(fmt::format(
          "Invalid 'messages[{}].tool_calls': empty array. Expected an array with minimum "
          "length 1, but got an empty array instead.",
          index
      ));
    open_.clear();
    answered_.clear();
    for (const ChatCall& call : *message.calls)
      if (!open_.insert(call.id).second) return duplicate(call.id, index);
    return {};
  }

  Ruled<> check_result(const ChatMessage& message, std::size_t index) {
    if (!open_.contains(message.call_id))
      return refused(fmt::format(
          "{}, The following tool_call_ids did not have response messages: {}",
          kCallsUnanswered,
          message.call_id
      ));
    if (!answered_.insert(message.call_id).second) return duplicate(message.call_id, index);
    return {};
  }

  static tl::unexpected<ConvertError> duplicate(std::string_view id, std::size_t index) {
    return refused(fmt::format("Duplicate value for 'tool_call_id' of {} in message[{}]", id, index)
    );
  }

  const ConvertOptions& options_;
  ModelVersion version_;
  std::unordered_set<std::string_view> open_, answered_;  // ids of the latest calls
};

Ruled<> check_prefix(const std::vector<Message>& messages) {
  for (const Message& message : messages)
    if (message.is_prefix && &message != &messages.back())
      return refused(std::string(kNotLastPrefix));
  return {};
}

std::vector<DeclaredTool> declared_tools(const std::vector<ChatTool>& tools) {
  std::vector<DeclaredTool> declared;
  declared.reserve(tools.size());
  for (const ChatTool& tool : tools) {
    DeclaredTool& added = declared.emplace_back();
    added.name = tool.name;
    if (tool.description) added.description = std::string(*tool.description);
    added.parameters = tool.parameters;
    added.strict = tool.strict;
    added.name_place = fmt::format("tools[{}].function.name", declared.size() - 1);
  }
  return declared;
}

// What cannot go with a prefix: it is part of an answer in words.
Ruled<> check_prefix_use(const ChatRequest& chat, const Conversation& conversation) {
  const auto& messages = conversation.messages;
  if (messages.empty() || !messages.back().is_prefix) return {};
  if (chat.format == ResponseFormat::kJsonObject)
    return refused("response_format json_object should not be used with prefix");
  const bool has_calls = std::any_of(messages.begin(), messages.end(), [](const Message& message) {
    return !message.calls.empty();
  });
  if (has_calls || !chat.tools.empty())
    return refused("Function call should not be used with prefix");
  return {};
}

Ruled<> apply_stops(const ChatRequest& chat, ConvertedRequest& request) {
  if (chat.stop && chat.stop->empty()) return refused_empty("stop");
  RULE(check_stops(chat.stops));
  if (chat.stop) request.parsing.stops.emplace_back(*chat.stop);
  for (const std::string_view stop : chat.stops) request.parsing.stops.emplace_back(stop);
  return {};
}

Ruled<std::optional<JsonText>> apply_format(const ChatRequest& chat, Conversation& conversation) {
  conversation.format = chat.format;
  conversation.regex = chat.regex;
  if (chat.schema == nullptr) return std::optional<JsonText>();
  auto checked = check_response_schema(*chat.schema, chat.is_schema_strict);
  if (!checked) return refused(std::move(checked.error()));
  conversation.schema = to_json(*chat.schema);
  return std::optional(std::move(*checked));
}

Ruled<> check_choices(const ChatRequest& chat, const ConvertOptions& options, Beyond& beyond) {
  const std::uint64_t n = chat.n.value_or(1);
  if (options.rules == Rules::kServing) {
    if (n < 1 || n > kMaxChoices)
      return refused(fmt::format("Invalid n value, the valid range of n is [1, {}]", kMaxChoices));
  } else if (n != 1) {
    return refused("Invalid n value (currently only n = 1 is supported)");
  }
  beyond.n = static_cast<int>(n);
  return {};
}

Ruled<> check_penalty(std::string_view name, std::optional<float> value) {
  if (!value || (*value >= -2 && *value <= 2)) return {};
  return refused(fmt::format("Invalid {} value, the valid range of {} is [-2, 2]", name, name));
}

Ruled<> apply_logprobs(const ChatRequest& chat, InferenceOptions& inference) {
  constexpr std::uint64_t kMostTop = 20;
  inference.logprobs = chat.logprobs.value_or(false);
  if (!chat.top_logprobs) return {};
  if (!inference.logprobs)
    return refused(
        "Invalid top_logprobs and logprobs value, logprobs must be set to true if top_logprobs is "
        "used."
    );
  if (*chat.top_logprobs > kMostTop)
    return refused("Invalid top_logprobs value, the valid range of top_logprobs is [0, 20].");
  inference.top_logprobs = static_cast<int>(*chat.top_logprobs);
  return {};
}

Ruled<> apply_inference(
    const ChatRequest& chat, ConvertedRequest& request, const ConvertOptions& options
) {
  RULE(check_choices(chat, options, request.beyond));
  RULE(check_penalty("presence_penalty", chat.presence_penalty));
  RULE(check_penalty("frequency_penalty", chat.frequency_penalty));
  request.beyond.presence_penalty = chat.presence_penalty.value_or(0);
  request.beyond.frequency_penalty = chat.frequency_penalty.value_or(0);
  RULE(check_temperature(chat.temperature));
  RULE(check_top_p(chat.top_p));
  RULE(apply_logprobs(chat, request.inference));
  auto max_tokens = bounded_max_tokens(
      chat.max_tokens, request.conversation.thinking, AboveBound::kRefuse, options
  );
  if (!max_tokens) return tl::unexpected(std::move(max_tokens.error()));
  request.inference.max_tokens = *max_tokens;
  if (chat.seed) {
    if (*chat.seed > static_cast<std::uint64_t>(INT64_MAX))
      return refused("Invalid seed value, the valid range of seed is [0, 2^63)");
    request.inference.seed = static_cast<std::int64_t>(*chat.seed);
  }
  resolve_sampling(request, chat.temperature, chat.top_p, options);
  return {};
}

Converted convert_request(const ChatRequest& chat, const ConvertOptions& options) {
  ConvertedRequest request;
  request.api = Api::kChat;
  request.model = chat.model;
  request.stream = chat.stream.value_or(false);
  const auto version = version_of(chat.model, options);
  if (!version) return tl::unexpected(version.error());
  request.version = *version;
  const std::vector<DeclaredTool> tools = declared_tools(chat.tools);
  if (auto named = check_tool_names(tools); !named) return refused(named.error());
  if (chat.messages.empty()) return refused("Empty input messages");
  Conversation& conversation = request.conversation;
  const Thinking thinking = thinking_of(chat.thinking, chat.effort, options);
  conversation.thinking = thinking.on;
  conversation.effort = thinking.effort;
  auto messages = MessageConverter(*version, options).convert(chat.messages);
  if (!messages) return tl::unexpected(std::move(messages.error()));
  conversation.messages = std::move(*messages);
  RULE(settle_reasoning(conversation, !chat.tools.empty(), "reasoning_content", options));
  RULE(check_prefix(conversation.messages));
  if (chat.format == ResponseFormat::kJsonObject && !says_json(conversation))
    return refused(std::string(kNoJsonWord));
  RULE(apply_tools(tools, chat.tool_choice, request, options));
  RULE(check_prefix_use(chat, conversation));
  RULE(apply_stops(chat, request));
  if (chat.has_stream_options && !request.stream)
    return refused("stream_options should be set along with stream = true");
  auto schema = apply_format(chat, conversation);
  if (!schema) return tl::unexpected(std::move(schema.error()));
  RULE(resolve_output(request, std::move(*schema), options.rules, chat.has_format));
  RULE(apply_inference(chat, request, options));
  request.images = prompt_images(conversation);
  request.beyond.parallel_calls = chat.parallel_calls.value_or(true);
  request.beyond.include_usage = chat.include_usage.value_or(false);
  request.beyond.user = chat.user;
  request.beyond.prompt_cache_key = chat.prompt_cache_key;
  return request;
}

#undef RULE

}  // namespace

Converted convert_chat(Body& body, const ConvertOptions& options) {
  const ChatRequest chat = read_chat_request(body, options.rules);
  if (!body.ok()) return tl::unexpected(body.error());
  return convert_request(chat, options);
}

}  // namespace artery::codec::api
