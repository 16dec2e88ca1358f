#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>

#include "codec/api/convert_messages_blocks.h"
#include "codec/api/convert_messages_read.h"
#include "codec/api/convert_parts.h"
#include "codec/api/json_style.h"
#include "codec/api/rules.h"

namespace artery::codec::api {
namespace {

#define RULE(expr)                                                                    \
  do {                                                                                \
    if (auto ruled = (expr); !ruled) return tl::unexpected(std::move(ruled.error())); \
  } while (false)

// Coding clients put a line before everything else that differs from session to session (Claude
// Code: "x-anthropic-billing-header: cc_version=..."): with it in the prompt no two sessions would
// share a cached prefix, and it says nothing to the model.
std::string_view without_volatile_lines(std::string_view text) {
  constexpr std::string_view kVolatile = "x-anthropic-billing-header:";
  while (text.starts_with(kVolatile)) {
    const std::size_t end = text.find('\n');
    text.remove_prefix(end == text.npos ? text.size() : end + 1);
    while (text.starts_with('\n')) text.remove_prefix(1);
  }
  return text;
}

std::optional<Message> system_message(const MessagesRequest& request, bool is_serving) {
  if (!request.system) return std::nullopt;
  Message message;
  message.role = Role::kSystem;
  bool first = true;
  for (std::string_view text : *request.system) {
    if (is_serving && first) {
      const std::string_view kept = without_volatile_lines(text);
      if (kept.empty() && !text.empty()) continue;  // the whole block: as if it had not come
      text = kept;
    }
    if (!std::exchange(first, false)) message.content += "\n\n";
    message.content += text;
  }
  return message;
}

bool is_web_search(const MessagesTool& tool) { return tool.type->starts_with("web_search"); }

// The function tools, with their names checked in the order of all tools.
Ruled<std::vector<DeclaredTool>> declare_tools(
    const MessagesRequest& request, ModelVersion version, const ConvertOptions& options
) {
  std::vector<DeclaredTool> declared;
  declared.reserve(request.tools.size());
  for (std::size_t i = 0; i < request.tools.size(); ++i) {
    const MessagesTool& tool = request.tools[i];
    if (tool.type) {
      if (is_web_search(tool) && options.messages_web_search == WebSearch::kDrop) continue;
      return refused(fmt::format("tools[{}]: server tools are not supported", i));
    }
    DeclaredTool& added = declared.emplace_back();
    added.name = tool.name;
    if (tool.description) added.description = std::string(*tool.description);
    added.parameters = tool.schema;
    added.needs_parameters = true;
    added.defer_loading = tool.defer_loading && version == ModelVersion::kV41;
    added.name_place = fmt::format("tools[{}].name", i);
    if (auto checked = check_tool_names(std::span(&added, 1)); !checked)
      return refused(std::move(checked.error()));
  }
  if (!declared.empty() && std::ranges::all_of(declared, &DeclaredTool::defer_loading)) {
    return refused(
        "tools: at least one tool must have defer_loading=false. All tools cannot be deferred."
    );
  }
  return declared;
}

// A choice of a web search that was dropped is no choice.
ToolChoiceWish choice_of(const MessagesRequest& request, const ConvertOptions& options) {
  ToolChoiceWish wish = request.tool_choice;
  if (request.any_tool && options.rules == Rules::kServing)
    wish.kind = ToolChoiceWish::Kind::kRequired;
  if (wish.kind != ToolChoiceWish::Kind::kNamed) return wish;
  const bool is_dropped = std::ranges::any_of(request.tools, [&](const MessagesTool& tool) {
    return tool.type && tool.name == wish.name;
  });
  if (is_dropped) wish.kind = ToolChoiceWish::Kind::kAuto;
  return wish;
}

// apply_tools(), which takes a choice without tools for none: a name is looked for where all tools
// were dropped, too.
Ruled<> apply_declared(
    const MessagesRequest& asked,
    std::span<const DeclaredTool> declared,
    ConvertedRequest& request,
    const ConvertOptions& options
) {
  const ToolChoiceWish wish = choice_of(asked, options);
  const bool is_named = wish.kind == ToolChoiceWish::Kind::kNamed;
  if (is_named && declared.empty() && !asked.tools.empty()) {
    return refused(fmt::format(
        "Invalid value for 'tool_call': no function named '{}' was specified in the 'tools' "
        "parameter.",
        wish.name
    ));
  }
  return apply_tools(declared, wish, request, options);
}

// System turns that add tools get their definitions, as far as the choice leaves them; a turn that
// has nothing else goes when none is left.
void settle_additions(
    Conversation& conversation, const std::vector<std::vector<std::string_view>>& additions
) {
  std::unordered_map<std::string_view, const Tool*> known;
  for (const Tool& tool : conversation.tools) known.emplace(tool.name, &tool);
  auto& messages = conversation.messages;
  std::size_t kept = 0;
  for (std::size_t i = 0; i < messages.size(); ++i) {
    Message& message = messages[i];
    for (const std::string_view name : additions[i]) {
      const auto found = known.find(name);
      if (found != known.end()) message.tools.push_back(*found->second);
    }
    if (!additions[i].empty() && message.tools.empty() && message.content.empty()) continue;
    if (kept != i) messages[kept] = std::move(message);
    ++kept;
  }
  messages.resize(kept);
}

Ruled<> apply_inference(
    const MessagesRequest& asked, ConvertedRequest& request, const ConvertOptions& options
) {
  if (asked.has_thread) {
    // The official clients know this code and go on without: they send the whole conversation.
    ConvertError error;
    error.param = "thread";
    error.code = "thread_unsupported_request";
    error.message = "thread: the server keeps no conversations; send all messages";
    return tl::unexpected(std::move(error));
  }
  RULE(check_stops(asked.stops));
  for (const std::string_view stop : asked.stops) request.parsing.stops.emplace_back(stop);
  std::optional<JsonText> schema;
  if (asked.format_schema != nullptr) {
    auto checked = check_response_schema(*asked.format_schema, false);
    if (!checked) return refused(std::move(checked.error()));
    schema = std::move(*checked);
    request.conversation.format = ResponseFormat::kJsonSchema;
    request.conversation.schema = to_json(*asked.format_schema);
  }
  RULE(resolve_output(request, std::move(schema), options.rules));
  RULE(check_temperature(asked.temperature));
  RULE(check_top_p(asked.top_p));
  auto max_tokens = bounded_max_tokens(
      asked.max_tokens, request.conversation.thinking, AboveBound::kLower, options
  );
  if (!max_tokens) return tl::unexpected(std::move(max_tokens.error()));
  request.inference.max_tokens = *max_tokens;
  resolve_sampling(request, asked.temperature, asked.top_p, options);
  return {};
}

// An assistant's last turn is the beginning of the answer, as Anthropic's API has it.
void mark_prefill(Conversation& conversation) {
  if (conversation.messages.empty()) return;
  Message& last = conversation.messages.back();
  last.is_prefix = last.role == Role::kAssistant && last.calls.empty() && !last.content.empty();
}

Converted convert_request(const MessagesRequest& asked, const ConvertOptions& options) {
  ConvertedRequest request;
  request.api = Api::kMessages;
  request.model = asked.model;
  request.stream = asked.stream.value_or(false);
  const auto version = version_of(asked.model, options);
  if (!version) return tl::unexpected(version.error());
  request.version = *version;
  const auto declared = declare_tools(asked, *version, options);
  if (!declared) return tl::unexpected(declared.error());
  if (asked.messages.empty()) return refused("messages: at least one message is required");
  Conversation& conversation = request.conversation;
  const Thinking thinking = thinking_of(asked.thinking, asked.effort, options);
  conversation.thinking = thinking.on;
  conversation.effort = thinking.effort;
  auto converted = convert_blocks(asked.messages, *declared, *version, options);
  if (!converted) return tl::unexpected(std::move(converted.error()));
  conversation.messages = std::move(converted->messages);
  if (auto system = system_message(asked, options.rules == Rules::kServing)) {
    conversation.messages.insert(conversation.messages.begin(), std::move(*system));
    converted->additions.emplace(converted->additions.begin());
  }
  RULE(settle_reasoning(conversation, !declared->empty(), "content[].thinking", options));
  RULE(apply_declared(asked, *declared, request, options));
  settle_additions(conversation, converted->additions);
  if (options.rules == Rules::kServing) mark_prefill(conversation);
  RULE(apply_inference(asked, request, options));
  request.images = prompt_images(conversation);
  request.inference.seed = asked.seed;
  request.beyond.presence_penalty = asked.presence_penalty.value_or(0);
  request.beyond.frequency_penalty = asked.frequency_penalty.value_or(0);
  if (asked.top_k) request.beyond.top_k = static_cast<int>(*asked.top_k);
  request.beyond.ignore_eos = asked.ignore_eos;
  request.beyond.min_tokens = static_cast<int>(asked.min_tokens.value_or(0));
  request.beyond.parallel_calls = asked.parallel_calls;
  request.beyond.user = asked.user;
  request.beyond.cache_control_s = asked.cache_control_s;
  return request;
}

#undef RULE

}  // namespace

Converted convert_messages(Body& body, const ConvertOptions& options) {
  const MessagesRequest asked = read_messages_request(body, options.rules);
  if (!body.ok()) return tl::unexpected(body.error());
  return convert_request(asked, options);
}

}  // namespace artery::codec::api
