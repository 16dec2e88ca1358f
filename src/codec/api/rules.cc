#include "codec/api/rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>

#include "codec/api/data_url.h"

namespace artery::codec::api {
namespace {

constexpr std::size_t kMaxStops = 16;
constexpr std::size_t kMaxLinkBytes = 8192;
constexpr float kThinkingTopP = 0.95F;
constexpr std::string_view kThinkingChoice = "Thinking mode does not support this tool_choice";
constexpr std::string_view kImageKinds = "webp, png, jpeg, and gif";

bool starts_with_http(std::string_view url) {
  constexpr std::string_view kHttp = "http";
  return url.size() >= kHttp.size() &&
         std::equal(kHttp.begin(), kHttp.end(), url.begin(), [](char wanted, char c) {
           return c == wanted || c == wanted - 32;
         });
}

bool says_json_in(std::string_view text) {
  constexpr std::string_view kWord = "json";
  return std::search(text.begin(), text.end(), kWord.begin(), kWord.end(), [](char c, char wanted) {
           return c == wanted || c == wanted - 32;
         }) != text.end();
}

}  // namespace

tl::unexpected<ConvertError> refused(std::string message) {
  ConvertError error;
  error.message = std::move(message);
  return tl::unexpected(std::move(error));
}

tl::unexpected<ConvertError> refused_empty(std::string_view place) {
  return refused(fmt::format(
      "Invalid '{}': empty string. Expected a string with minimum length 1, but got an empty "
      "string instead.",
      place
  ));
}

Ruled<ModelVersion> version_of(std::string_view model, const ConvertOptions& options) {
  if (options.rules == Rules::kServing) return options.serving_version;
  const auto found = options.versions.find(model);
  if (found != options.versions.end()) return found->second;
  std::string names;
  for (const auto& [name, version] : options.versions)
    names += fmt::format("{}{}", names.empty() ? "" : ", ", name);
  return refused(
      fmt::format("The supported API model names are {}, but you passed {}.", names, model)
  );
}

Thinking thinking_of(
    std::optional<ThinkingType> type,
    std::optional<EffortWish> effort,
    const ConvertOptions& options
) {
  Thinking thinking;
  if (type)
    thinking.on = *type != ThinkingType::kDisabled;
  else if (effort)
    thinking.on = *effort != EffortWish::kNone;
  else
    thinking.on = options.default_thinking;
  if (!thinking.on) return thinking;
  switch (effort.value_or(EffortWish::kHigh)) {
    case EffortWish::kMinimal:
    case EffortWish::kLow:
      thinking.effort = Effort::kLow;
      break;
    case EffortWish::kNone:
    case EffortWish::kMedium:
    case EffortWish::kHigh:
      thinking.effort = Effort::kHigh;
      break;
    case EffortWish::kXHigh:
      thinking.effort = Effort::kXHigh;
      break;
    case EffortWish::kUltra:
    case EffortWish::kMax:
      thinking.effort = Effort::kMax;
      break;
  }
  return thinking;
}

Ruled<> check_temperature(std::optional<float> temperature) {
  if (!temperature || (*temperature >= 0 && *temperature <= 2)) return {};
  return refused("Invalid temperature value, the valid range of temperature is [0, 2]");
}

Ruled<> check_top_p(std::optional<float> top_p) {
  if (!top_p || (*top_p > 0 && *top_p <= 1)) return {};
  return refused("Invalid top_p value, the valid range of top_p is (0, 1.0]");
}

void resolve_sampling(
    ConvertedRequest& request,
    std::optional<float> temperature,
    std::optional<float> top_p,
    const ConvertOptions& options
) {
  InferenceOptions& inference = request.inference;
  inference.temperature = temperature.value_or(1);
  inference.top_p = top_p.value_or(1);
  request.beyond.temperature = temperature;
  request.beyond.top_p = top_p;
  if (options.rules == Rules::kServing) return;
  const bool thinking = request.conversation.thinking;
  if (thinking) inference.temperature = 1;
  if (request.version == ModelVersion::kV41)
    inference.top_p = thinking ? std::max(inference.top_p, kThinkingTopP) : 1;
  else if (thinking)
    inference.top_p = request.conversation.has_active_tools() ? kThinkingTopP : 1;
}

Ruled<std::optional<std::int64_t>> bounded_max_tokens(
    std::optional<std::uint64_t> wish,
    bool thinking,
    AboveBound above,
    const ConvertOptions& options
) {
  if (!wish) return std::optional<std::int64_t>();
  const std::int64_t bound = thinking ? options.thinking_max_tokens : options.plain_max_tokens;
  const auto most = static_cast<std::uint64_t>(std::max<std::int64_t>(bound, 0));
  if (*wish == 0 || (*wish > most && above == AboveBound::kRefuse))
    return refused(
        fmt::format("Invalid max_tokens value, the valid range of max_tokens is [1, {}]", bound)
    );
  return std::optional(static_cast<std::int64_t>(std::min(*wish, most)));
}

Ruled<> check_stops(std::span<const std::string_view> stops) {
  if (stops.size() > kMaxStops)
    return refused(fmt::format("Stop string array too long: {}", stops.size()));
  for (std::size_t i = 0; i < stops.size(); ++i)
    if (stops[i].empty()) return refused_empty(fmt::format("stop[{}]", i));
  return {};
}

Ruled<std::span<const DeclaredTool>> chosen_tools(
    std::span<const DeclaredTool> tools,
    ToolChoiceWish wish,
    ConvertedRequest& request,
    const ConvertOptions& options
) {
  Conversation& conversation = request.conversation;
  if (wish.kind == ToolChoiceWish::Kind::kAuto || tools.empty()) return tools;
  if (wish.kind == ToolChoiceWish::Kind::kNamed) {
    const auto named = std::find_if(tools.begin(), tools.end(), [&](const DeclaredTool& tool) {
      return tool.name == wish.name;
    });
    if (named == tools.end())
      return refused(fmt::format(
          "Invalid value for 'tool_call': no function named '{}' was specified in the 'tools' "
          "parameter.",
          wish.name
      ));
    tools = std::span(named, 1);
    request.beyond.named_tool = wish.name;
  }
  if (conversation.thinking) {
    if (options.rules == Rules::kRecipe) return refused(std::string(kThinkingChoice));
    conversation.thinking = false;
    conversation.effort.reset();
  }
  conversation.tool_choice = ToolChoice::kRequired;
  return tools;
}

Ruled<> apply_tools(
    std::span<const DeclaredTool> tools,
    ToolChoiceWish wish,
    ConvertedRequest& request,
    const ConvertOptions& options
) {
  if (auto checked = check_tool_names(tools); !checked) return refused(checked.error());
  if (wish.kind == ToolChoiceWish::Kind::kNone) {
    request.conversation.tool_choice = ToolChoice::kNone;
    return {};
  }
  if (auto checked = check_tool_schemas(tools); !checked) return refused(checked.error());
  auto chosen = chosen_tools(tools, wish, request, options);
  if (!chosen) return tl::unexpected(std::move(chosen.error()));
  auto settled = settle_tools(*chosen);
  if (!settled) return refused(settled.error());
  request.conversation.tools = std::move(*settled);
  return {};
}

bool says_json(const Conversation& conversation) {
  return std::any_of(
      conversation.messages.begin(),
      conversation.messages.end(),
      [](const Message& message) { return says_json_in(message.content); }
  );
}

namespace {

std::optional<InitialStage> initial_stage(const Conversation& conversation) {
  if (!conversation.thinking) return std::nullopt;
  if (conversation.messages.empty() || !conversation.messages.back().is_prefix)
    return InitialStage::kReasoningStart;
  const Message& prefix = conversation.messages.back();
  if (!prefix.content.empty()) return InitialStage::kContentContinuation;
  const bool reasons = prefix.reasoning && !prefix.reasoning->empty();
  return reasons ? InitialStage::kReasoningContinuation : InitialStage::kReasoningStart;
}

}  // namespace

Ruled<> resolve_output(
    ConvertedRequest& request,
    std::optional<JsonText> constraint_schema,
    Rules rules,
    bool names_format
) {
  using Kind = OutputConstraint::Kind;
  const Conversation& conversation = request.conversation;
  const bool is_active = conversation.has_active_tools();
  const bool is_required = is_active && conversation.tool_choice == ToolChoice::kRequired;
  request.parsing.tool_calls = is_active;
  request.parsing.starts_in_calls = is_required;
  request.parsing.json_output = conversation.format == ResponseFormat::kJsonObject;
  request.parsing.stage = initial_stage(conversation);
  auto& constraint = request.inference.constraint;
  if (is_active) {
    const auto mixed = check_mixed(conversation.tools);
    if (!mixed && rules == Rules::kRecipe) return refused(mixed.error());
    const bool has_format = names_format || conversation.format != ResponseFormat::kText;
    if (has_format && conversation.tools.front().strict.value_or(false))
      return refused("response_format should not be used with tools");
    constraint = {
        is_required ? Kind::kToolCallRequired : Kind::kToolCall, tool_constraint(conversation.tools)
    };
    return {};
  }
  switch (conversation.format) {
    case ResponseFormat::kText:
      constraint.reset();
      break;
    case ResponseFormat::kJsonObject:
      constraint = {Kind::kJson, ""};
      break;
    case ResponseFormat::kJsonSchema:
      constraint = {Kind::kJson, std::move(constraint_schema).value_or("")};
      break;
    case ResponseFormat::kRegex:
      constraint = {Kind::kRegex, conversation.regex};
      break;
  }
  return {};
}

Ruled<> settle_reasoning(
    Conversation& conversation,
    bool declares_tools,
    std::string_view field,
    const ConvertOptions& options
) {
  auto& messages = conversation.messages;
  if (!conversation.thinking) {
    for (Message& message : messages) message.reasoning.reset();
    return {};
  }
  if (options.missing_reasoning == MissingReasoning::kReject) {
    for (auto message = messages.rbegin(); message != messages.rend(); ++message) {
      if (message->role == Role::kUser) break;
      if (message->role != Role::kAssistant || message->reasoning) continue;
      if (!declares_tools && message->calls.empty()) continue;
      return refused(
          fmt::format("The `{}` in the thinking mode must be passed back to the API.", field)
      );
    }
  }
  for (Message& message : messages)
    if (message.role == Role::kAssistant && !message.reasoning) message.reasoning = "";
  return {};
}

void ContentBuilder::join() {
  if (parts_++ > 0) content_ += "\n\n";
}

void ContentBuilder::text(std::string_view text) {
  join();
  content_ += text;
}

void ContentBuilder::image(ImageSource source) {
  join();
  if (version_ == ModelVersion::kV4) {
    content_ += "[Unsupported Image]";
    return;
  }
  places_.push_back(content_.size());
  content_ += options_->image_token;
  images_.push_back(std::move(source));
}

void ContentBuilder::move_into(Message& message) {
  message.content = std::move(content_);
  message.image_places = std::move(places_);
  message.images = std::move(images_);
  *this = ContentBuilder(version_, *options_);
}

Ruled<ImageSource> image_of_url(std::string_view url, ImageDetail detail, std::string path) {
  const std::optional<DataUrl> data = read_data_url(url);
  const bool is_data = data && url.find("base64,") != url.npos;
  if (is_data) {
    if (!data->is_image())
      return refused(fmt::format(
          "{}: You have uploaded an unsupported image. Please make sure your image is valid "
          "and has one of the following formats: {}.",
          path,
          kImageKinds
      ));
    if (!data->decodes()) return refused(fmt::format("{}: Invalid base64 data", path));
  } else if (!starts_with_http(url)) {
    return refused(fmt::format("{}: Unsupported image_url format", path));
  } else if (url.size() > kMaxLinkBytes) {
    return refused(fmt::format(
        "{}.image_url.url[0]: image_url.url external link length {} too long, max link length "
        "{}. Consider passing file data directly with base64 data url instead.",
        path,
        url.size(),
        kMaxLinkBytes
    ));
  }
  ImageSource source;
  source.kind = is_data ? ImageSource::Kind::kDataUrl : ImageSource::Kind::kUrl;
  source.detail = detail;
  source.data = url;
  source.path = std::move(path);
  return source;
}

namespace {

// The tool results at `slots` in the order of the caller's calls; unknown ones rank first.
void sort_results(
    const std::vector<Message>& messages,
    const Message* caller,
    const std::vector<std::size_t>& slots,
    std::vector<std::size_t>& order
) {
  if (slots.size() < 2 || caller == nullptr) return;
  std::unordered_map<std::string_view, std::size_t> ranks;
  for (const ToolCall& call : caller->calls) ranks.try_emplace(call.id, ranks.size());
  std::vector<std::pair<std::size_t, std::size_t>> sorted;  // rank, index
  sorted.reserve(slots.size());
  for (const std::size_t slot : slots) {
    const auto found = ranks.find(messages[slot].call_id);
    sorted.emplace_back(found == ranks.end() ? 0 : found->second, slot);
  }
  std::sort(sorted.begin(), sorted.end());
  for (std::size_t k = 0; k < slots.size(); ++k) order[slots[k]] = sorted[k].second;
}

}  // namespace

std::vector<std::size_t> prompt_order(const Conversation& conversation) {
  const auto& messages = conversation.messages;
  std::vector<std::size_t> order(messages.size()), slots;
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  const Message* caller = nullptr;  // the latest with calls
  for (std::size_t i = 0; i < messages.size(); ++i) {
    const Role role = messages[i].role;
    if (role == Role::kTool) slots.push_back(i);
    if (role == Role::kTool || role == Role::kUser) continue;
    sort_results(messages, caller, slots, order);
    slots.clear();
    if (!messages[i].calls.empty()) caller = &messages[i];
  }
  sort_results(messages, caller, slots, order);
  return order;
}

std::vector<ImageSource> prompt_images(const Conversation& conversation) {
  std::vector<ImageSource> images;
  const bool has_images = std::any_of(
      conversation.messages.begin(),
      conversation.messages.end(),
      [](const Message& message) { return !message.images.empty(); }
  );
  if (!has_images) return images;
  for (const std::size_t index : prompt_order(conversation)) {
    const auto& own = conversation.messages[index].images;
    images.insert(images.end(), own.begin(), own.end());
  }
  return images;
}

}  // namespace artery::codec::api
