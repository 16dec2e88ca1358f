#include "codec/api/convert_messages_read.h"

#include <algorithm>
#include <array>
#include <limits>

namespace artery::codec::api {
namespace {

using Names = std::string_view;
using Kind = MessagesBlock::Kind;

constexpr std::uint64_t kMaxU32 = std::numeric_limits<std::uint32_t>::max(),
                        kMaxU64 = std::numeric_limits<std::uint64_t>::max();
// Anthropic's two lives of a cached prefix.
constexpr std::int64_t kShortCache = 300, kLongCache = 3600;

// Declaration order of the official structs, found by giving it arrays in place of objects.
constexpr std::array<Names, 13> kRequestFields = {
    "model",
    "messages",
    "system",
    "max_tokens",
    "temperature",
    "top_p",
    "stop_sequences",
    "stream",
    "tools",
    "tool_choice",
    "thinking",
    "output_config",
    "metadata"
};
constexpr Shape kRequest = {kRequestFields, 13};
constexpr std::array<Names, 2> kMessageFields = {"role", "content"};
constexpr Shape kMessage = {kMessageFields, 2};
constexpr std::array<Names, 1> kTextFields = {"text"};
constexpr Shape kText = {kTextFields, 1};
constexpr std::array<Names, 1> kSourceFields = {"source"};
constexpr Shape kSource = {kSourceFields, 1};
constexpr std::array<Names, 2> kThoughtFields = {"signature", "thinking"};
constexpr Shape kThought = {kThoughtFields, 2};
constexpr std::array<Names, 3> kUseFields = {"id", "name", "input"};
constexpr Shape kUse = {kUseFields, 3};
constexpr std::array<Names, 3> kResultFields = {"tool_use_id", "content", "is_error"};
constexpr Shape kResult = {kResultFields, 3};
constexpr std::array<Names, 2> kSearchFields = {"tool_use_id", "content"};
constexpr Shape kSearch = {kSearchFields, 2};
constexpr std::array<Names, 1> kAdditionFields = {"tool"};
constexpr Shape kAddition = {kAdditionFields, 1};
constexpr std::array<Names, 1> kAddedFields = {"name"};
constexpr Shape kAdded = {kAddedFields, 1};
constexpr std::array<Names, 1> kReferenceFields = {"tool_name"};
constexpr Shape kReference = {kReferenceFields, 1};
constexpr std::array<Names, 2> kBase64Fields = {"media_type", "data"};
constexpr Shape kBase64 = {kBase64Fields, 2};
constexpr std::array<Names, 1> kUrlFields = {"url"};
constexpr Shape kUrl = {kUrlFields, 1};
constexpr std::array<Names, 1> kFileFields = {"file_id"};
constexpr Shape kFile = {kFileFields, 1};
constexpr std::array<Names, 1> kDocumentFields = {"media_type"};
constexpr Shape kDocument = {kDocumentFields, 1};
constexpr std::array<Names, 1> kChoiceFields = {"disable_parallel_tool_use"};
constexpr Shape kChoice = {kChoiceFields, 1};
constexpr std::array<Names, 2> kNamedChoiceFields = {"name", "disable_parallel_tool_use"};
constexpr Shape kNamedChoice = {kNamedChoiceFields, 2};
constexpr std::array<Names, 2> kThinkingFields = {"type", "budget_tokens"};
constexpr Shape kThinking = {kThinkingFields, 2};
constexpr std::array<Names, 1> kOutputFields = {"effort"};
constexpr Shape kOutput = {kOutputFields, 1};
constexpr std::array<Names, 1> kMetadataFields = {"user_id"};
constexpr Shape kMetadata = {kMetadataFields, 1};
constexpr Shape kNoFields = {};

constexpr std::array<Names, 3> kRoles = {"user", "assistant", "system"};
// The names that only kServing knows stand last.
constexpr std::array<Names, 11> kBlocks = {
    "text",
    "image",
    "document",
    "thinking",
    "server_tool_use",
    "tool_use",
    "tool_result",
    "web_search_tool_result",
    "tool_addition",
    "redacted_thinking",
    "search_result"
};
constexpr std::array<Names, 5> kResultBlocks = {
    "text", "image", "document", "tool_reference", "search_result"
};
constexpr std::array<Names, 1> kSystemBlocks = {"text"};
constexpr std::array<Names, 1> kAddedTypes = {"tool_reference"};
constexpr std::array<Names, 3> kSources = {"base64", "url", "file"};
constexpr std::array<Names, 5> kMimes = {
    "image/jpeg", "image/jpg", "image/png", "image/gif", "image/webp"
};
constexpr std::array<Names, 4> kChoices = {"auto", "any", "tool", "none"};

class Reader {
 public:
  Reader(Body& body, Rules rules) : body_(body), serving_(rules == Rules::kServing) {}

  MessagesRequest read() {
    const Place root;
    const Fields fields(body_, body_.root(), root, kRequest);
    MessagesRequest request;
    request.model = serving_ ? fields.maybe_text("model").value_or("") : fields.need_text("model");
    messages(fields, request);
    system(fields, request);
    request.max_tokens = fields.maybe_whole("max_tokens", kMaxU32);
    request.temperature = fields.maybe_float("temperature");
    request.top_p = fields.maybe_float("top_p");
    const Place stops = fields.place("stop_sequences");
    const auto items = fields.maybe_items("stop_sequences");
    for (std::size_t i = 0; i < items.size(); ++i)
      request.stops.push_back(read_text(body_, items[i], stops.item(i)));
    request.stream = fields.maybe_bool("stream");
    tools(fields, request);
    tool_choice(fields, request);
    thinking(fields, request);
    output_config(fields, request);
    metadata(fields, request);
    if (serving_) serving(fields, request);
    request.cache_control_s = cache_s_;
    return request;
  }

 private:
  std::span<const Names> known(std::span<const Names> names, std::size_t more) const {
    return serving_ ? names : names.first(names.size() - more);
  }

  // Any block, tool or the request itself may ask for a cached prefix.
  void note_cache(const Json& value) {
    const Json* const control = serving_ ? value.find("cache_control") : nullptr;
    if (control == nullptr || !control->is_object()) return;
    const Json* const ttl = control->find("ttl");
    const bool is_long = ttl != nullptr && ttl->is_text("1h");
    cache_s_ = std::max(cache_s_.value_or(0), is_long ? kLongCache : kShortCache);
  }

  void messages(const Fields& fields, MessagesRequest& request) {
    const Place list = fields.place("messages");
    const auto items = fields.need_items("messages");
    request.messages.reserve(items.size());
    for (std::size_t i = 0; i < items.size(); ++i) {
      const Place place = list.item(i);
      MessagesMessage& message = request.messages.emplace_back();
      const Fields one(body_, items[i], place, kMessage);
      const auto role = one.need_name("role", kRoles);
      if (!role) return;
      message.role = *role == 0 ? Role::kUser : *role == 1 ? Role::kAssistant : Role::kSystem;
      content(one, message);
    }
  }

  void content(const Fields& fields, MessagesMessage& message) {
    const Json* const value = fields.need("content");
    if (value == nullptr) return;
    message.is_list = value->is_array();
    message.blocks = blocks(*value, fields.place("content"), known(kBlocks, 2));
  }

  // A text or a list of blocks of the `names`.
  std::vector<MessagesBlock> blocks(
      const Json& value, const Place& place, std::span<const Names> names
  ) {
    std::vector<MessagesBlock> read;
    if (value.is_string()) {
      read.emplace_back().text = value.text();
    } else if (value.is_array()) {
      read.reserve(value.items().size());
      for (std::size_t i = 0; i < value.items().size() && body_.ok(); ++i)
        read.push_back(block(value.items()[i], place.item(i), names));
    } else {
      body_.wrong_type(place, "a string or a list", value);
    }
    return read;
  }

  MessagesBlock block(const Json& value, const Place& place, std::span<const Names> names) {
    const auto type = read_tag(body_, value, place, "type", names);
    if (!type) return {};
    note_cache(value);
    const Names name = names[*type];
    MessagesBlock read;
    if (name == "text") {
      read.text = Fields(body_, value, place, kText, "type").need_text("text");
    } else if (name == "image" || name == "document") {
      const Fields fields(body_, value, place, kSource, "type");
      const Json* const source = fields.need("source");
      if (source == nullptr) return read;
      read.kind = name == "image" ? Kind::kImage : Kind::kDocument;
      if (name == "image")
        read.image = image(*source, fields.place("source"));
      else
        document(*source, fields.place("source"), read);
    } else if (name == "thinking") {
      read.kind = Kind::kThinking;
      const Fields fields(body_, value, place, kThought, "type");
      read.text = fields.need_text("thinking");
      fields.maybe_text("signature");
    } else if (name == "redacted_thinking") {
      read.kind = Kind::kIgnored;
    } else if (name == "search_result") {
      search_result(value, place, read);
    } else {
      tool_block(name, value, place, read);
    }
    return read;
  }

  void tool_block(Names name, const Json& value, const Place& place, MessagesBlock& read) {
    if (name == "tool_use" || name == "server_tool_use") {
      read.kind = name == "tool_use" ? Kind::kToolUse : Kind::kServerToolUse;
      const Fields fields(body_, value, place, kUse, "type");
      read.id = fields.need_text("id");
      read.name = fields.need_text("name");
      read.input = fields.need("input");
    } else if (name == "tool_result") {
      read.kind = Kind::kToolResult;
      const Fields fields(body_, value, place, kResult, "type");
      read.id = fields.need_text("tool_use_id");
      if (const Json* const content = fields.find("content"); content != nullptr)
        read.parts = blocks(*content, fields.place("content"), known(kResultBlocks, 1));
      fields.maybe_bool("is_error");
    } else if (name == "web_search_tool_result") {
      read.kind = Kind::kWebSearchResult;
      const Fields fields(body_, value, place, kSearch, "type");
      fields.need_text("tool_use_id");
      fields.need("content");
    } else if (name == "tool_addition") {
      read.kind = Kind::kToolAddition;
      const Fields fields(body_, value, place, kAddition, "type");
      const Json* const tool = fields.need("tool");
      if (tool == nullptr) return;
      const Place at = fields.place("tool");
      if (read_tag(body_, *tool, at, "type", kAddedTypes))
        read.name = Fields(body_, *tool, at, kAdded, "type").need_text("name");
    } else {
      read.kind = Kind::kToolReference;
      read.name = Fields(body_, value, place, kReference, "type").need_text("tool_name");
    }
  }

  // A search result of the user's own: its texts.
  void search_result(const Json& value, const Place& place, MessagesBlock& read) {
    read.kind = Kind::kSearchResult;
    const Fields fields(body_, value, place, kNoFields, "type");
    if (const Json* const content = fields.find("content"); content != nullptr)
      read.parts = blocks(*content, fields.place("content"), kSystemBlocks);
  }

  void document(const Json& source, const Place& place, MessagesBlock& read) {
    if (!source.is_object() && !source.is_array())
      return body_.wrong_type(place, "a document's source", source);
    read.text =
        Fields(body_, source, place, kDocument).maybe_text("media_type").value_or("unknown");
  }

  MessagesImage image(const Json& value, const Place& place) {
    MessagesImage read;
    const auto type = read_tag(body_, value, place, "type", kSources);
    if (!type) return read;
    if (*type == 0) {
      read.kind = MessagesImage::Kind::kBase64;
      const Fields fields(body_, value, place, kBase64, "type");
      const auto mime = fields.need_name("media_type", kMimes);
      if (mime) read.mime = *mime == 1 ? kMimes[0] : kMimes[*mime];
      read.data = fields.need_text("data");
    } else if (*type == 1) {
      read.data = Fields(body_, value, place, kUrl, "type").need_text("url");
    } else {
      read.kind = MessagesImage::Kind::kFile;
      read.data = Fields(body_, value, place, kFile, "type").need_text("file_id");
    }
    return read;
  }

  void system(const Fields& fields, MessagesRequest& request) {
    const Json* const value = fields.find("system");
    if (value == nullptr) return;
    const Place place = fields.place("system");
    auto& texts = request.system.emplace();
    for (const MessagesBlock& block : blocks(*value, place, kSystemBlocks))
      texts.push_back(block.text);
  }

  void tools(const Fields& fields, MessagesRequest& request) {
    const Place list = fields.place("tools");
    const auto items = fields.maybe_items("tools");
    request.tools.reserve(items.size());
    for (std::size_t i = 0; i < items.size(); ++i) {
      const Place place = list.item(i);
      MessagesTool& tool = request.tools.emplace_back();
      if (!items[i].is_object()) return body_.refuse(place, "missing field `name`");
      note_cache(items[i]);
      const Fields one(body_, items[i], place, kNoFields);
      if (const Json* const type = one.raw("type"); type != nullptr) {
        const std::string_view name = read_text(body_, *type, place.field("type"));
        // A plain function by its full name.
        if (!serving_ || name != "custom") {
          tool.type = name;
          tool.name = one.maybe_text("name").value_or("web_search");
          continue;
        }
      }
      tool.name = one.need_text("name");
      tool.description = one.maybe_text("description");
      tool.schema = one.find("input_schema");
      tool.defer_loading = one.maybe_bool("defer_loading").value_or(false);
    }
  }

  void tool_choice(const Fields& fields, MessagesRequest& request) {
    const Json* const value = fields.find("tool_choice");
    if (value == nullptr) return;
    const Place place = fields.place("tool_choice");
    const auto type = read_tag(body_, *value, place, "type", kChoices);
    if (!type) return;
    ToolChoiceWish& wish = request.tool_choice;
    if (kChoices[*type] == "none") {
      wish.kind = ToolChoiceWish::Kind::kNone;
      return;
    }
    const bool is_named = kChoices[*type] == "tool";
    const Fields choice(body_, *value, place, is_named ? kNamedChoice : kChoice, "type");
    if (is_named) {
      wish.kind = ToolChoiceWish::Kind::kNamed;
      wish.name = choice.need_text("name");
    }
    request.any_tool = kChoices[*type] == "any";
    request.parallel_calls = !choice.maybe_bool("disable_parallel_tool_use").value_or(false);
  }

  void thinking(const Fields& fields, MessagesRequest& request) {
    const Json* const value = fields.find("thinking");
    if (value == nullptr) return;
    const Place place = fields.place("thinking");
    const Fields thinking(body_, *value, place, kThinking);
    if (const auto type = thinking.need_name("type", kThinkingTypes))
      request.thinking = static_cast<ThinkingType>(*type);
    thinking.maybe_whole("budget_tokens", kMaxU64);
  }

  void output_config(const Fields& fields, MessagesRequest& request) {
    const Json* const value = fields.find("output_config");
    if (value == nullptr) return;
    const Place place = fields.place("output_config");
    const Fields config(body_, *value, place, kOutput);
    if (const auto effort = config.maybe_name("effort", kEffortWishes))
      request.effort = static_cast<EffortWish>(*effort);
    if (serving_) format(config, "format", request);
  }

  void metadata(const Fields& fields, MessagesRequest& request) {
    const Json* const value = fields.find("metadata");
    if (value == nullptr) return;
    const Place place = fields.place("metadata");
    request.user = Fields(body_, *value, place, kMetadata).maybe_text("user_id").value_or("");
  }

  void format(const Fields& fields, Names name, MessagesRequest& request) {
    const Json* const value = fields.find(name);
    if (value == nullptr) return;
    const Place place = fields.place(name);
    constexpr std::array<Names, 1> kFormats = {"json_schema"};
    if (read_tag(body_, *value, place, "type", kFormats))
      request.format_schema = Fields(body_, *value, place, kNoFields).need("schema");
  }

  void serving(const Fields& fields, MessagesRequest& request) {
    note_cache(body_.root());
    request.top_k = fields.maybe_whole("top_k", kMaxU32);
    sampling(fields, request);
    request.ignore_eos = fields.maybe_bool("ignore_eos").value_or(false);
    request.min_tokens = fields.maybe_whole("min_tokens", Beyond::kMinTokensMax);
    const Json* const thread = fields.find("thread");
    request.has_thread = thread != nullptr && !thread->is_null();
    if (request.format_schema == nullptr) format(fields, "output_format", request);
    const Json* const servers = fields.find("mcp_servers");
    if (servers != nullptr && servers->is_array() && !servers->items().empty())
      body_.refuse(fields.place("mcp_servers"), "is not supported; declare the tools in `tools`");
    if (fields.find("container") != nullptr)
      body_.refuse(fields.place("container"), "is not supported: there is no code execution here");
  }

  // Chat's fields: what they ask for is done, or refused where this API cannot show it.
  void sampling(const Fields& fields, MessagesRequest& request) {
    request.seed = fields.maybe_integer("seed");
    request.presence_penalty = penalty(fields, "presence_penalty");
    request.frequency_penalty = penalty(fields, "frequency_penalty");
    if (fields.maybe_whole("n", kMaxU32).value_or(1) != 1)
      body_.refuse(fields.place("n"), "must be 1: an answer of this API is one message");
    const Json* const logprobs = fields.find("logprobs");
    if (logprobs != nullptr && (!logprobs->is_bool() || logprobs->boolean()))
      body_.refuse(fields.place("logprobs"), "is not in this API; use /v1/chat/completions");
  }

  std::optional<float> penalty(const Fields& fields, Names name) {
    const auto value = fields.maybe_float(name);
    if (value && !(*value >= -2 && *value <= 2))
      body_.refuse(fields.place(name), "must be from -2 to 2");
    return value;
  }

  Body& body_;
  bool serving_;
  std::optional<std::int64_t> cache_s_;
};

}  // namespace

MessagesRequest read_messages_request(Body& body, Rules rules) {
  return Reader(body, rules).read();
}

}  // namespace artery::codec::api
