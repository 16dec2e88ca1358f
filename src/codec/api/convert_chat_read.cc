#include "codec/api/convert_chat_read.h"

#include <array>
#include <limits>

namespace artery::codec::api {
namespace {

using Names = std::string_view;

constexpr std::uint64_t kMaxU8 = 255, kMaxU32 = std::numeric_limits<std::uint32_t>::max(),
                        kMaxU64 = std::numeric_limits<std::uint64_t>::max();

// Declaration order of the official structs, found by giving it arrays in place of objects.
constexpr std::array<Names, 20> kRequestFields = {
    "messages",
    "model",
    "frequency_penalty",
    "logprobs",
    "top_logprobs",
    "max_tokens",
    "n",
    "presence_penalty",
    "seed",
    "stop",
    "stream",
    "stream_options",
    "temperature",
    "top_p",
    "response_format",
    "tools",
    "tool_choice",
    "reasoning_effort",
    "thinking",
    "parallel_tool_calls"
};
constexpr Shape kRequest = {kRequestFields, 20};
constexpr std::array<Names, 2> kNamedMessageFields = {"content", "name"};
constexpr Shape kNamedMessage = {kNamedMessageFields, 2};
constexpr std::array<Names, 5> kAssistantFields = {
    "content", "reasoning_content", "name", "tool_calls", "prefix"
};
constexpr Shape kAssistant = {kAssistantFields, 5};
constexpr std::array<Names, 2> kToolMessageFields = {"content", "tool_call_id"};
constexpr Shape kToolMessage = {kToolMessageFields, 2};
constexpr std::array<Names, 1> kReminderFields = {"content"};
constexpr Shape kReminder = {kReminderFields, 1};
constexpr std::array<Names, 1> kTextFields = {"text"};
constexpr Shape kText = {kTextFields, 1};
constexpr std::array<Names, 1> kImageFields = {"image_url"};
constexpr Shape kImage = {kImageFields, 1};
constexpr std::array<Names, 2> kImageUrlFields = {"url", "detail"};
constexpr Shape kImageUrl = {kImageUrlFields, 1};
constexpr std::array<Names, 3> kFileFields = {"file_id", "file_data", "filename"};
constexpr Shape kFile = {kFileFields, 3};
constexpr std::array<Names, 1> kRefusalFields = {"refusal"};
constexpr Shape kRefusal = {kRefusalFields, 1};
constexpr std::array<Names, 3> kCallFields = {"id", "type", "function"};
constexpr Shape kCall = {kCallFields, 3};
constexpr std::array<Names, 2> kCalledFields = {"name", "arguments"};
constexpr Shape kCalled = {kCalledFields, 2};
constexpr std::array<Names, 2> kToolFields = {"type", "function"};
constexpr Shape kTool = {kToolFields, 2};
constexpr std::array<Names, 4> kFunctionFields = {"name", "description", "parameters", "strict"};
constexpr Shape kFunction = {kFunctionFields, 4};
constexpr std::array<Names, 1> kChosenFields = {"name"};
constexpr Shape kChosen = {kChosenFields, 1};
constexpr std::array<Names, 2> kThinkingFields = {"type", "budget_tokens"};
constexpr Shape kThinking = {kThinkingFields, 2};
constexpr std::array<Names, 1> kStreamOptionFields = {"include_usage"};
constexpr Shape kStreamOptions = {kStreamOptionFields, 1};
constexpr std::array<Names, 3> kSchemaFields = {"schema", "name", "strict"};
constexpr Shape kSchema = {kSchemaFields, 3};
constexpr std::array<Names, 1> kSchemaFormatFields = {"json_schema"};
constexpr Shape kSchemaFormat = {kSchemaFormatFields, 1};
constexpr std::array<Names, 1> kRegexFields = {"regex"};
constexpr Shape kRegex = {kRegexFields, 1};
constexpr Shape kNoFields = {};

// The names that only kServing knows stand last.
constexpr std::array<Names, 6> kRoles = {
    "system", "user", "assistant", "tool", "latest_reminder", "developer"
};
constexpr std::array<Names, 4> kParts = {"text", "image_url", "file", "refusal"};
constexpr std::array<Names, 1> kFunctionType = {"function"};
constexpr std::array<Names, 4> kFormats = {"json_object", "json_schema", "regex", "text"};

std::span<const Names> known(std::span<const Names> names, Rules rules) {
  return rules == Rules::kServing ? names : names.first(names.size() - 1);
}

class Reader {
 public:
  Reader(Body& body, Rules rules) : body_(body), rules_(rules) {}

  ChatRequest read() {
    const Place root;
    const Fields fields(body_, body_.root(), root, kRequest);
    ChatRequest request;
    request.messages = messages(fields);
    request.model = model(fields);
    request.frequency_penalty = fields.maybe_float("frequency_penalty");
    request.logprobs = fields.maybe_bool("logprobs");
    request.top_logprobs = fields.maybe_whole("top_logprobs", kMaxU8);
    request.max_tokens = fields.maybe_whole("max_tokens", kMaxU32);
    request.n = fields.maybe_whole("n", kMaxU8);
    request.presence_penalty = fields.maybe_float("presence_penalty");
    request.seed = fields.maybe_whole("seed", kMaxU64);
    stops(fields, request);
    request.stream = fields.maybe_bool("stream");
    stream_options(fields, request);
    request.temperature = fields.maybe_float("temperature");
    request.top_p = fields.maybe_float("top_p");
    format(fields, request);
    request.tools = tools(fields);
    request.tool_choice = tool_choice(fields);
    if (const auto effort = fields.maybe_name("reasoning_effort", kEffortWishes))
      request.effort = static_cast<EffortWish>(*effort);
    request.thinking = thinking(fields);
    request.parallel_calls = fields.maybe_bool("parallel_tool_calls");
    if (rules_ == Rules::kServing) read_serving(fields, request);
    return request;
  }

 private:
  std::string_view model(const Fields& fields) {
    // A server of one model does not need the name.
    if (rules_ == Rules::kServing) return fields.maybe_text("model").value_or("");
    return fields.need_text("model");
  }

  void read_serving(const Fields& fields, ChatRequest& request) {
    if (const auto newer = fields.maybe_whole("max_completion_tokens", kMaxU32))
      request.max_tokens = newer;
    request.user = fields.maybe_text("user").value_or("");
    request.prompt_cache_key = fields.maybe_text("prompt_cache_key").value_or("");
    for (const Names name : {Names("functions"), Names("function_call")})
      if (fields.find(name) != nullptr)
        body_.refuse(fields.place(name), "is not supported; use tools and tool_choice");
  }

  std::vector<ChatMessage> messages(const Fields& fields) {
    std::vector<ChatMessage> read;
    const Place place = fields.place("messages");
    const auto items = fields.need_items("messages");
    read.reserve(items.size());
    for (std::size_t i = 0; i < items.size(); ++i) read.push_back(message(items[i], place.item(i)));
    return read;
  }

  ChatMessage message(const Json& value, const Place& place) {
    ChatMessage read;
    const auto role = read_tag(body_, value, place, "role", known(kRoles, rules_));
    if (!role) return read;
    const Names name = kRoles[*role];
    if (name == "assistant") return assistant(value, place);
    if (name == "tool") {
      read.role = Role::kTool;
      const Fields fields(body_, value, place, kToolMessage, "role");
      read.content = content(fields, true);
      read.call_id = fields.need_text("tool_call_id");
      return read;
    }
    if (name == "latest_reminder") {
      read.role = Role::kLatestReminder;
      const Fields fields(body_, value, place, kReminder, "role");
      read.content.text = fields.need_text("content");
      read.content.given = true;
      return read;
    }
    read.role = name == "user" ? Role::kUser : Role::kSystem;
    const Fields fields(body_, value, place, kNamedMessage, "role");
    read.content = content(fields, true);
    fields.maybe_text("name");
    return read;
  }

  ChatMessage assistant(const Json& value, const Place& place) {
    const Fields fields(body_, value, place, kAssistant, "role");
    ChatMessage read;
    read.role = Role::kAssistant;
    read.content = content(fields, false);
    read.reasoning = fields.maybe_text("reasoning_content");
    if (rules_ == Rules::kServing && !read.reasoning)
      read.reasoning = fields.maybe_text("reasoning");
    fields.maybe_text("name");
    if (fields.find("tool_calls") != nullptr) read.calls = calls(fields);
    read.is_prefix = fields.maybe_bool("prefix").value_or(false);
    return read;
  }

  ChatContent content(const Fields& fields, bool is_needed) {
    ChatContent read;
    const Json* const value = is_needed ? fields.need("content") : fields.find("content");
    if (value == nullptr) return read;
    read.given = true;
    const Place place = fields.place("content");
    if (value->is_string()) {
      read.text = value->text();
    } else if (value->is_array()) {
      const auto items = value->items();
      read.parts.reserve(items.size());
      for (std::size_t i = 0; i < items.size(); ++i)
        read.parts.push_back(part(items[i], place.item(i)));
    } else {
      body_.wrong_type(place, "a string or a list", *value);
    }
    return read;
  }

  ChatPart part(const Json& value, const Place& place) {
    ChatPart read;
    const auto type = read_tag(body_, value, place, "type", known(kParts, rules_));
    if (!type) return read;
    const Names name = kParts[*type];
    if (name == "image_url") return image(value, place);
    if (name == "file") {
      const Fields fields(body_, value, place, kFile, "type");
      read.kind = ChatPart::Kind::kFile;
      read.file_id = fields.maybe_text("file_id");
      read.file_data = fields.maybe_text("file_data");
      fields.maybe_text("filename");
      return read;
    }
    const Fields fields(body_, value, place, name == "text" ? kText : kRefusal, "type");
    read.text = fields.need_text(name);
    return read;
  }

  ChatPart image(const Json& value, const Place& place) {
    ChatPart read;
    read.kind = ChatPart::Kind::kImage;
    const Fields fields(body_, value, place, kImage, "type");
    const Json* const source = fields.need("image_url");
    if (source == nullptr) return read;
    const Place at = fields.place("image_url");
    const Fields url(body_, *source, at, kImageUrl);
    read.text = url.need_text("url");
    if (const auto detail = url.maybe_name("detail", kImageDetails))
      read.detail = static_cast<ImageDetail>(*detail);
    return read;
  }

  std::vector<ChatCall> calls(const Fields& fields) {
    std::vector<ChatCall> read;
    const Place list = fields.place("tool_calls");
    const auto items = fields.maybe_items("tool_calls");
    read.reserve(items.size());
    for (std::size_t i = 0; i < items.size(); ++i) {
      const Place place = list.item(i);
      const Fields call(body_, items[i], place, kCall);
      ChatCall& added = read.emplace_back();
      added.id = call.need_text("id");
      call.need_name("type", kFunctionType);
      const Json* const function = call.need("function");
      if (function == nullptr) continue;
      const Place at = call.place("function");
      const Fields called(body_, *function, at, kCalled);
      added.name = called.need_text("name");
      added.arguments = called.need_text("arguments");
    }
    return read;
  }

  std::vector<ChatTool> tools(const Fields& fields) {
    std::vector<ChatTool> read;
    const Place list = fields.place("tools");
    const auto items = fields.maybe_items("tools");
    read.reserve(items.size());
    for (std::size_t i = 0; i < items.size(); ++i) {
      const Place place = list.item(i);
      const Fields tool(body_, items[i], place, kTool);
      ChatTool& added = read.emplace_back();
      tool.need_name("type", kFunctionType);
      const Json* const function = tool.need("function");
      if (function == nullptr) continue;
      const Place at = tool.place("function");
      const Fields declared(body_, *function, at, kFunction);
      added.name = declared.need_text("name");
      added.description = declared.maybe_text("description");
      added.parameters = declared.find("parameters");
      added.strict = declared.maybe_bool("strict");
    }
    return read;
  }

  ToolChoiceWish tool_choice(const Fields& fields) {
    using Kind = ToolChoiceWish::Kind;
    constexpr Names kWanted = "`none`, `auto`, `required` or a tool";
    ToolChoiceWish wish;
    const Json* const value = fields.find("tool_choice");
    if (value == nullptr) return wish;
    const Place place = fields.place("tool_choice");
    if (value->is_string()) {
      if (value->is_text("none"))
        wish.kind = Kind::kNone;
      else if (value->is_text("required"))
        wish.kind = Kind::kRequired;
      else if (!value->is_text("auto"))
        body_.wrong_type(place, kWanted, *value);
      return wish;
    }
    const Json* const type = value->find("type");
    if (type == nullptr) {
      body_.wrong_type(place, kWanted, *value);
      return wish;
    }
    read_name(body_, *type, place.field("type"), kFunctionType);
    const Json* const function = value->find("function");
    if (function == nullptr) {
      body_.refuse(place.field("function"), "the field is missing");
      return wish;
    }
    const Place at = place.field("function");
    wish.kind = Kind::kNamed;
    wish.name = Fields(body_, *function, at, kChosen).need_text("name");
    return wish;
  }

  std::optional<ThinkingType> thinking(const Fields& fields) {
    const Json* const value = fields.find("thinking");
    if (value == nullptr) return std::nullopt;
    const Place place = fields.place("thinking");
    const Fields read(body_, *value, place, kThinking);
    const auto type = read.need_name("type", kThinkingTypes);
    read.maybe_whole("budget_tokens", kMaxU64);
    if (!type) return std::nullopt;
    return static_cast<ThinkingType>(*type);
  }

  void stops(const Fields& fields, ChatRequest& request) {
    const Json* const value = fields.find("stop");
    if (value == nullptr) return;
    const Place place = fields.place("stop");
    if (value->is_string()) {
      request.stop = value->text();
    } else if (value->is_array()) {
      const auto items = value->items();
      for (std::size_t i = 0; i < items.size(); ++i)
        request.stops.push_back(read_text(body_, items[i], place.item(i)));
    } else {
      body_.wrong_type(place, "a string or a list", *value);
    }
  }

  void stream_options(const Fields& fields, ChatRequest& request) {
    const Json* const value = fields.find("stream_options");
    if (value == nullptr) return;
    request.has_stream_options = true;
    const Place place = fields.place("stream_options");
    request.include_usage =
        Fields(body_, *value, place, kStreamOptions).maybe_bool("include_usage");
  }

  void format(const Fields& fields, ChatRequest& request) {
    const Json* const value = fields.find("response_format");
    if (value == nullptr) return;
    request.has_format = true;
    const Place place = fields.place("response_format");
    const auto type = read_tag(body_, *value, place, "type", kFormats);
    if (!type) return;
    const Names name = kFormats[*type];
    if (name == "json_schema") {
      request.format = ResponseFormat::kJsonSchema;
      const Fields format(body_, *value, place, kSchemaFormat, "type");
      const Json* const given = format.need("json_schema");
      if (given == nullptr) return;
      const Place at = format.place("json_schema");
      const Fields schema(body_, *given, at, kSchema);
      request.schema = schema.need("schema");
      schema.maybe_text("name");
      request.is_schema_strict = schema.maybe_bool("strict").value_or(false);
    } else if (name == "regex") {
      request.format = ResponseFormat::kRegex;
      request.regex = Fields(body_, *value, place, kRegex, "type").need_text("regex");
    } else {
      const Fields none(body_, *value, place, kNoFields, "type");
      if (name == "json_object") request.format = ResponseFormat::kJsonObject;
    }
  }

  Body& body_;
  Rules rules_;
};

}  // namespace

ChatRequest read_chat_request(Body& body, Rules rules) { return Reader(body, rules).read(); }

}  // namespace artery::codec::api
