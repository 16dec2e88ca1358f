#include "codec/api/convert_responses_read.h"

#include <array>
#include <limits>

namespace artery::codec::api {
namespace {

using Names = std::string_view;
using ItemKind = ResponsesItem::Kind;
using ToolKind = ResponsesTool::Kind;

constexpr std::uint64_t kMaxU8 = 255, kMaxU32 = std::numeric_limits<std::uint32_t>::max();

// Declaration order of the official structs, found by giving it arrays in place of objects.
constexpr std::array<Names, 13> kRequestFields = {
    "model",
    "input",
    "instructions",
    "max_output_tokens",
    "reasoning",
    "stream",
    "temperature",
    "text",
    "tool_choice",
    "tools",
    "top_logprobs",
    "top_p",
    "user"
};
constexpr Shape kRequest = {kRequestFields, 13};
constexpr std::array<Names, 3> kReasoningFields = {"effort", "summary", "generate_summary"};
constexpr Shape kReasoning = {kReasoningFields, 3};
constexpr std::array<Names, 2> kTextFields = {"format", "verbosity"};
constexpr Shape kText = {kTextFields, 2};
constexpr std::array<Names, 4> kSchemaFields = {"name", "schema", "description", "strict"};
constexpr Shape kSchema = {kSchemaFields, 4};
constexpr std::array<Names, 4> kFunctionFields = {"name", "description", "parameters", "strict"};
constexpr Shape kFunction = {kFunctionFields, 4};
constexpr std::array<Names, 1> kCustomFields = {"name"};
constexpr Shape kCustom = {kCustomFields, 1};
constexpr std::array<Names, 3> kNamespaceFields = {"name", "description", "tools"};
constexpr Shape kNamespace = {kNamespaceFields, 3};
constexpr std::array<Names, 2> kWebSearchFields = {"search_context_size", "user_location"};
constexpr Shape kWebSearch = {kWebSearchFields, 2};
constexpr std::array<Names, 4> kLocationFields = {"city", "country", "region", "timezone"};
constexpr Shape kLocation = {kLocationFields, 4};
constexpr std::array<Names, 3> kToolSearchFields = {"execution", "description", "parameters"};
constexpr Shape kToolSearch = {kToolSearchFields, 3};
constexpr std::array<Names, 1> kTextPartFields = {"text"};
constexpr Shape kTextPart = {kTextPartFields, 1};
constexpr std::array<Names, 1> kRefusalFields = {"refusal"};
constexpr Shape kRefusal = {kRefusalFields, 1};
constexpr std::array<Names, 3> kImageFields = {"image_url", "detail", "file_id"};
constexpr Shape kImage = {kImageFields, 3};
constexpr Shape kNoFields = {};

constexpr std::array<Names, 3> kSizes = {"low", "medium", "high"};
constexpr std::array<Names, 3> kSummaries = {"auto", "concise", "detailed"};
constexpr std::array<Names, 2> kExecutions = {"client", "server"};
constexpr std::array<Names, 3> kFormats = {"text", "json_schema", "json_object"};
constexpr std::array<Names, 4> kRoles = {"user", "assistant", "system", "developer"};
constexpr std::array<Names, 2> kInnerTools = {"function", "custom"};
constexpr std::array<Names, 4> kChoices = {
    "function", "web_search", "web_search_2025_08_26", "custom"
};
constexpr std::array<Names, 5> kServingChoices = {
    "function", "web_search", "web_search_2025_08_26", "custom", "allowed_tools"
};
constexpr std::array<Names, 2> kAllowedModes = {"auto", "required"};
constexpr std::array<Names, 4> kMessageParts = {
    "input_text", "output_text", "input_image", "input_file"
};
// kServing: what the official API sends back in assistant messages, and Chat's spelling.
constexpr std::array<Names, 6> kServingParts = {
    "input_text", "output_text", "input_image", "input_file", "refusal", "text"
};
constexpr std::array<Names, 3> kOutputParts = {"input_text", "input_image", "input_file"};

// The tag of an enum whose unknown variants are allowed.
std::optional<Names> open_tag(Body& body, const Json& value, const Place& place) {
  const Json* found = nullptr;
  if (value.is_array()) {
    if (!value.items().empty()) found = &value.items().front();
  } else if (value.is_object()) {
    found = value.find("type");
  } else {
    body.wrong_type(place, "an object", value);
    return std::nullopt;
  }
  if (found == nullptr) {
    body.refuse(place.field("type"), "the field is missing");
    return std::nullopt;
  }
  if (found->is_string()) return found->text();
  body.wrong_type(place.field("type"), "a string", *found);
  return std::nullopt;
}

std::optional<Names> one_of(const Fields& fields, Names name, std::span<const Names> names) {
  const auto index = fields.maybe_name(name, names);
  if (!index) return std::nullopt;
  return names[*index];
}

class ToolReader {
 public:
  explicit ToolReader(Body& body) : body_(body) {}

  std::vector<ResponsesTool> read(std::span<const Json> items, const Place& list) {
    std::vector<ResponsesTool> tools;
    tools.reserve(items.size());
    for (std::size_t i = 0; i < items.size(); ++i) tools.push_back(tool(items[i], list.item(i)));
    return tools;
  }

 private:
  ResponsesTool tool(const Json& value, const Place& place) {
    ResponsesTool read;
    const auto type = open_tag(body_, value, place);
    if (!type) return read;
    if (*type == "function" || *type == "custom") {
      read = declared(value, place, *type);
    } else if (*type == "namespace") {
      read = name_space(value, place);
    } else if (*type == "web_search" || *type == "web_search_2025_08_26") {
      read = web_search(value, place);
    } else if (*type == "tool_search") {
      const Fields fields(body_, value, place, kToolSearch, "type");
      read.kind = ToolKind::kToolSearch;
      read.execution = one_of(fields, "execution", kExecutions);
      read.description = fields.maybe_text("description");
      read.parameters = fields.find("parameters");
    } else {
      const Fields none(body_, value, place, kNoFields, "type");
    }
    read.type = *type;
    read.source = &value;
    return read;
  }

  ResponsesTool declared(const Json& value, const Place& place, Names type) {
    const bool is_custom = type == "custom";
    const Fields fields(body_, value, place, is_custom ? kCustom : kFunction, "type");
    ResponsesTool read;
    read.kind = is_custom ? ToolKind::kCustom : ToolKind::kFunction;
    read.type = type;
    read.name = fields.need_text("name");
    read.source = &value;
    if (is_custom) return read;
    read.description = fields.maybe_text("description");
    read.parameters = fields.find("parameters");
    read.strict = fields.maybe_bool("strict");
    return read;
  }

  ResponsesTool name_space(const Json& value, const Place& place) {
    const Fields fields(body_, value, place, kNamespace, "type");
    ResponsesTool read;
    read.kind = ToolKind::kNamespace;
    read.name = fields.need_text("name");
    read.description = fields.maybe_text("description");
    const Place list = fields.place("tools");
    const auto items = fields.need_items("tools");
    for (std::size_t i = 0; i < items.size(); ++i) {
      const Place at = list.item(i);
      const auto type = read_tag(body_, items[i], at, "type", kInnerTools);
      if (type) read.inner.push_back(declared(items[i], at, kInnerTools[*type]));
    }
    return read;
  }

  ResponsesTool web_search(const Json& value, const Place& place) {
    const Fields fields(body_, value, place, kWebSearch, "type");
    ResponsesTool read;
    read.kind = ToolKind::kWebSearch;
    read.context_size = one_of(fields, "search_context_size", kSizes);
    const Json* const location = fields.find("user_location");
    if (location == nullptr) return read;
    const Place at = fields.place("user_location");
    const Fields user(body_, *location, at, kLocation);
    read.has_location = true;
    read.city = user.maybe_text("city");
    read.country = user.maybe_text("country");
    read.region = user.maybe_text("region");
    read.timezone = user.maybe_text("timezone");
    return read;
  }

  Body& body_;
};

class ItemReader {
 public:
  ItemReader(Body& body, Rules rules) : body_(body), rules_(rules) {}

  ResponsesItem read(const Json& value, const Place& place, std::size_t index) {
    ResponsesItem item;
    item.index = index;
    const Json* const type = value.find("type");
    if (type == nullptr && value.find("role") == nullptr) {
      body_.refuse(place, "expected an item: an object with a `type` or a `role`");
      return item;
    }
    if (type != nullptr && !type->is_string()) {
      body_.wrong_type(place.field("type"), "a string", *type);
      return item;
    }
    const Fields fields(body_, value, place, kNoFields);
    read_as(type == nullptr ? Names("message") : type->text(), fields, item);
    return item;
  }

 private:
  void read_as(Names type, const Fields& fields, ResponsesItem& item) {
    if (type == "message") return message(fields, item);
    if (type == "reasoning") return reasoning(fields, item);
    if (type == "function_call" || type == "custom_tool_call") return call(type, fields, item);
    if (type == "function_call_output") {
      item.kind = ItemKind::kOutput;
      item.call_id = fields.maybe_text("call_id");
      return parts("output", kOutputParts, fields, item);
    }
    if (type == "custom_tool_call_output") {
      item.kind = ItemKind::kCustomOutput;
      item.call_id = fields.need_text("call_id");
      if (fields.find("output") != nullptr) parts("output", kOutputParts, fields, item);
      return;
    }
    if (type == "tool_search_call") return search_call(fields, item);
    if (type == "tool_search_output") {
      item.kind = ItemKind::kSearchOutput;
      item.call_id = fields.need_text("call_id");
      fields.maybe_name("execution", kExecutions);
      const Place list = fields.place("tools");
      item.tools = ToolReader(body_).read(fields.need_items("tools"), list);
      return;
    }
    if (type == "web_search_call") item.kind = ItemKind::kWebSearch;
    if (type == "item_reference" && rules_ == Rules::kServing) {
      item.kind = ItemKind::kReference;
      item.name = fields.need_text("id");
    }
  }

  void message(const Fields& fields, ResponsesItem& item) {
    item.kind = ItemKind::kMessage;
    if (const auto role = fields.need_name("role", kRoles)) {
      const Names name = kRoles[*role];
      item.is_developer = name == "developer";
      item.role = name == "user"        ? Role::kUser
                  : name == "assistant" ? Role::kAssistant
                                        : Role::kSystem;
    }
    const bool serving = rules_ == Rules::kServing;
    parts("content", serving ? std::span<const Names>(kServingParts) : kMessageParts, fields, item);
  }

  void reasoning(const Fields& fields, ResponsesItem& item) {
    item.kind = ItemKind::kReasoning;
    fields.maybe_text("encrypted_content");
    const Place list = fields.place("content");
    const auto items = fields.maybe_items("content");
    for (std::size_t i = 0; i < items.size(); ++i) {
      const Place at = list.item(i);
      item.reasoning.push_back(Fields(body_, items[i], at, kTextPart).need_text("text"));
    }
  }

  void call(Names type, const Fields& fields, ResponsesItem& item) {
    const bool is_custom = type == "custom_tool_call";
    item.kind = is_custom ? ItemKind::kCustomCall : ItemKind::kCall;
    item.call_id = fields.need_text("call_id");
    item.name = fields.need_text("name");
    item.arguments = fields.need_text(is_custom ? "input" : "arguments");
    if (!is_custom) item.name_space = fields.maybe_text("namespace");
  }

  void search_call(const Fields& fields, ResponsesItem& item) {
    item.kind = ItemKind::kSearchCall;
    item.call_id = fields.need_text("call_id");
    fields.maybe_name("execution", kExecutions);
    item.search = fields.need("arguments");
    if (item.search != nullptr && !item.search->is_object())
      body_.wrong_type(fields.place("arguments"), "an object", *item.search);
  }

  // The content of a message or an output: a string is one part of text.
  void parts(Names name, std::span<const Names> kinds, const Fields& fields, ResponsesItem& item) {
    const Json* const value = fields.need(name);
    if (value == nullptr) return;
    const Place place = fields.place(name);
    if (value->is_string()) {
      item.parts.emplace_back().text = value->text();
    } else if (value->is_array()) {
      const auto items = value->items();
      item.parts.reserve(items.size());
      for (std::size_t i = 0; i < items.size(); ++i)
        item.parts.push_back(part(items[i], place.item(i), kinds));
    } else {
      body_.wrong_type(place, "a string or a list", *value);
    }
  }

  ResponsesPart part(const Json& value, const Place& place, std::span<const Names> kinds) {
    ResponsesPart read;
    const auto type = read_tag(body_, value, place, "type", kinds);
    if (!type) return read;
    const Names name = kinds[*type];
    if (name == "input_image") {
      const Fields fields(body_, value, place, kImage, "type");
      read.kind = ResponsesPart::Kind::kImage;
      read.image_url = fields.maybe_text("image_url");
      if (const auto detail = fields.maybe_name("detail", kImageDetails))
        read.detail = static_cast<ImageDetail>(*detail);
      read.file_id = fields.maybe_text("file_id");
    } else if (name == "input_file") {
      const Fields none(body_, value, place, kNoFields, "type");
      read.kind = ResponsesPart::Kind::kFile;
    } else {
      const bool is_refusal = name == "refusal";
      const Fields fields(body_, value, place, is_refusal ? kRefusal : kTextPart, "type");
      read.text = fields.need_text(is_refusal ? "refusal" : "text");
    }
    return read;
  }

  Body& body_;
  Rules rules_;
};

class RequestReader {
 public:
  RequestReader(Body& body, Rules rules) : body_(body), rules_(rules) {}

  ResponsesRequest read() {
    const Place root;
    const Fields fields(body_, body_.root(), root, kRequest);
    ResponsesRequest request;
    // A server of one model does not need the name.
    request.model = rules_ == Rules::kServing ? fields.maybe_text("model").value_or("")
                                              : fields.need_text("model");
    input(fields, request);
    request.instructions = fields.maybe_text("instructions");
    request.max_output_tokens = fields.maybe_whole("max_output_tokens", kMaxU32);
    reasoning(fields, request);
    request.stream = fields.maybe_bool("stream");
    request.temperature = fields.maybe_float("temperature");
    text(fields, request);
    request.tool_choice = tool_choice(fields);
    const Place tools = fields.place("tools");
    request.tools = ToolReader(body_).read(fields.maybe_items("tools"), tools);
    request.top_logprobs = fields.maybe_whole("top_logprobs", kMaxU8);
    request.top_p = fields.maybe_float("top_p");
    request.user = fields.maybe_text("user");
    if (rules_ == Rules::kServing) request.serving = serving(fields);
    return request;
  }

 private:
  void input(const Fields& fields, ResponsesRequest& request) {
    const Json* const value = fields.find("input");
    if (value == nullptr) return;
    request.has_input = true;
    const Place place = fields.place("input");
    if (value->is_string()) {
      request.input_text = value->text();
    } else if (value->is_array()) {
      const auto items = value->items();
      request.items.reserve(items.size());
      ItemReader reader(body_, rules_);
      for (std::size_t i = 0; i < items.size(); ++i)
        request.items.push_back(reader.read(items[i], place.item(i), i));
    } else {
      body_.wrong_type(place, "a string or a list of items", *value);
    }
  }

  void reasoning(const Fields& fields, ResponsesRequest& request) {
    const Json* const value = fields.find("reasoning");
    if (value == nullptr) return;
    const Place place = fields.place("reasoning");
    const Fields config(body_, *value, place, kReasoning);
    if (const auto effort = config.maybe_name("effort", kEffortWishes))
      request.effort = static_cast<EffortWish>(*effort);
    request.summary = one_of(config, "summary", kSummaries);
    const auto older = one_of(config, "generate_summary", kSummaries);
    if (!request.summary) request.summary = older;
  }

  void text(const Fields& fields, ResponsesRequest& request) {
    const Json* const value = fields.find("text");
    if (value == nullptr) return;
    const Place place = fields.place("text");
    const Fields config(body_, *value, place, kText);
    if (const Json* const format = config.raw("format"))
      request.format = read_format(*format, config.place("format"));
    request.verbosity = one_of(config, "verbosity", kSizes);
  }

  ResponsesFormat read_format(const Json& value, const Place& place) {
    ResponsesFormat format;
    const auto type = read_tag(body_, value, place, "type", kFormats);
    if (!type) return format;
    if (kFormats[*type] != "json_schema") {
      const Fields none(body_, value, place, kNoFields, "type");
      if (kFormats[*type] == "json_object") format.kind = ResponseFormat::kJsonObject;
      return format;
    }
    const Fields fields(body_, value, place, kSchema, "type");
    format.kind = ResponseFormat::kJsonSchema;
    format.name = fields.need_text("name");
    format.schema = fields.need("schema");
    format.description = fields.maybe_text("description");
    format.strict = fields.maybe_bool("strict");
    return format;
  }

  ResponsesChoice tool_choice(const Fields& fields) {
    using Kind = ToolChoiceWish::Kind;
    constexpr Names kWanted = "`none`, `auto`, `required` or a tool";
    ResponsesChoice choice;
    const Json* const value = fields.find("tool_choice");
    if (value == nullptr) return choice;
    choice.given = true;
    choice.source = value;
    const Place place = fields.place("tool_choice");
    if (value->is_text("none")) {
      choice.wish.kind = Kind::kNone;
    } else if (value->is_text("required")) {
      choice.wish.kind = Kind::kRequired;
    } else if (value->is_object() && value->find("type") != nullptr) {
      read_choice(*value, place, choice);
    } else if (!value->is_text("auto")) {
      body_.wrong_type(place, kWanted, *value);
    }
    return choice;
  }

  void read_choice(const Json& value, const Place& place, ResponsesChoice& choice) {
    const bool serving = rules_ == Rules::kServing;
    const std::span<const Names> types =
        serving ? std::span<const Names>(kServingChoices) : kChoices;
    const auto type = read_tag(body_, value, place, "type", types);
    if (!type) return;
    choice.type = types[*type];
    if (choice.type == "allowed_tools") return allowed_tools(value, place, choice);
    choice.is_web_search = choice.type.starts_with("web_search");
    if (choice.is_web_search) return;
    choice.wish.kind = ToolChoiceWish::Kind::kNamed;
    choice.wish.name = Fields(body_, value, place, kCustom, "type").need_text("name");
  }

  void allowed_tools(const Json& value, const Place& place, ResponsesChoice& choice) {
    const Fields fields(body_, value, place, kNoFields, "type");
    if (fields.need_name("mode", kAllowedModes) == 1U)
      choice.wish.kind = ToolChoiceWish::Kind::kRequired;
    std::vector<Names>& names = choice.allowed.emplace();
    const Place list = fields.place("tools");
    const auto items = fields.need_items("tools");
    for (std::size_t i = 0; i < items.size(); ++i) {
      const Place at = list.item(i);
      const Fields tool(body_, items[i], at, kCustom);
      if (const auto name = tool.maybe_text("name")) names.push_back(*name);
    }
  }

  ResponsesServing serving(const Fields& fields) {
    ResponsesServing read;
    read.previous_response_id = fields.maybe_text("previous_response_id");
    read.prompt_cache_key = fields.maybe_text("prompt_cache_key");
    read.safety_identifier = fields.maybe_text("safety_identifier");
    read.store = fields.maybe_bool("store");
    read.parallel_calls = fields.maybe_bool("parallel_tool_calls");
    read.ignore_eos = fields.maybe_bool("ignore_eos");
    read.min_tokens = fields.maybe_whole("min_tokens", Beyond::kMinTokensMax);
    read.max_tool_calls = fields.maybe_integer("max_tool_calls");
    read.seed = fields.maybe_integer("seed");
    if (fields.maybe_whole("n", kMaxU32).value_or(1) != 1)
      body_.refuse(fields.place("n"), "must be 1: an answer of this API is one response");
    read.frequency_penalty = fields.maybe_float("frequency_penalty");
    read.presence_penalty = fields.maybe_float("presence_penalty");
    read.metadata = fields.find("metadata");
    if (read.metadata != nullptr && !read.metadata->is_object())
      body_.wrong_type(fields.place("metadata"), "an object", *read.metadata);
    const auto include = fields.maybe_items("include");
    for (std::size_t i = 0; i < include.size(); ++i) {
      const Names name = read_text(body_, include[i], fields.place("include"));
      if (name == "reasoning.encrypted_content") read.includes_encrypted_reasoning = true;
      if (name == "message.output_text.logprobs") read.includes_logprobs = true;
    }
    for (const Names name : {Names("conversation"), Names("prompt")})
      if (fields.find(name) != nullptr)
        body_.refuse(
            fields.place(name), "is not supported; send the whole input or previous_response_id"
        );
    return read;
  }

  Body& body_;
  Rules rules_;
};

}  // namespace

ResponsesRequest read_responses_request(Body& body, Rules rules) {
  return RequestReader(body, rules).read();
}

}  // namespace artery::codec::api
