#include <array>
#include <span>

#include "base/hash.h"
#include "cli/request_case.h"
#include "codec/api/generators.h"
#include "codec/api/json_out.h"
#include "codec/api/json_style.h"

namespace artery::cli {
namespace {

using namespace codec::api;

// A JSON object or array as it is written.
class Writer {
 public:
  Writer(std::string& out, char open) : out_(out), close_(open == '{' ? '}' : ']') { out_ += open; }
  ~Writer() { out_ += close_; }
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;

  std::string& item() {
    if (!std::exchange(first_, false)) out_ += ',';
    return out_;
  }
  std::string& key(std::string_view name) {
    put_json_string(item(), name);
    return out_ += ':';
  }
  void text(std::string_view name, std::string_view value) { put_json_string(key(name), value); }
  void maybe_text(std::string_view name, const std::optional<std::string>& value) {
    if (value)
      put_json_string(key(name), *value);
    else
      key(name) += "null";
  }
  void flag(std::string_view name, bool value) { put_json_bool(key(name), value); }
  void flag(std::string_view name, std::optional<bool> value) {
    if (value)
      put_json_bool(key(name), *value);
    else
      key(name) += "null";
  }
  template <class Int>
  void whole(std::string_view name, std::optional<Int> value) {
    if (value)
      put_json_int(key(name), static_cast<std::int64_t>(*value));
    else
      key(name) += "null";
  }
  void real(std::string_view name, double value) { put_json_number(key(name), value); }
  void raw(std::string_view name, std::string_view json) { key(name) += json; }

 private:
  std::string& out_;
  char close_;
  bool first_ = true;
};

void put_tools(std::string& out, const std::vector<Tool>& tools) {
  Writer list(out, '[');
  for (const Tool& tool : tools) {
    Writer one(list.item(), '{');
    one.text("name", tool.name);
    one.maybe_text("description", tool.description);
    one.raw("parameters", tool.parameters);
    one.flag("strict", tool.strict);
    one.flag("defer_loading", tool.defer_loading);
  }
}

constexpr std::array<std::string_view, 5> kRoles = {
    "system", "user", "assistant", "tool", "latest_reminder"
};

void put_calls(Writer& message, const std::vector<ToolCall>& calls) {
  if (calls.empty()) return message.raw("tool_calls", "null");
  Writer list(message.key("tool_calls"), '[');
  for (const ToolCall& call : calls) {
    Writer one(list.item(), '{');
    one.text("id", call.id);
    one.text("name", call.name);
    one.text("arguments", call.arguments);
  }
}

void put_message(std::string& out, const Message& message) {
  Writer one(out, '{');
  one.text("role", kRoles[static_cast<std::size_t>(message.role)]);
  one.text("content", message.content);
  if (message.role == Role::kAssistant) {
    one.maybe_text("reasoning_content", message.reasoning);
    one.flag("prefix", message.is_prefix);
    put_calls(one, message.calls);
  }
  if (message.role == Role::kTool) one.text("tool_call_id", message.call_id);
  if (!message.tools.empty()) put_tools(one.key("tools"), message.tools);
  if (!message.images.empty()) one.whole("images", std::optional(message.images.size()));
}

void put_conversation(std::string& out, const Conversation& conversation) {
  constexpr std::array<std::string_view, 3> kChoices = {"auto", "none", "required"};
  constexpr std::array<std::string_view, 4> kEfforts = {"low", "high", "xhigh", "max"};
  constexpr std::array<std::string_view, 4> kFormats = {
      "text", "json_object", "json_schema", "regex"
  };
  Writer one(out, '{');
  {
    Writer messages(one.key("messages"), '[');
    for (const Message& message : conversation.messages) put_message(messages.item(), message);
  }
  put_tools(one.key("tools"), conversation.tools);
  one.text("tool_choice", kChoices[static_cast<std::size_t>(conversation.tool_choice)]);
  one.flag("thinking_mode", conversation.thinking);
  if (conversation.effort)
    one.text("reasoning_effort", kEfforts[static_cast<std::size_t>(*conversation.effort)]);
  else
    one.raw("reasoning_effort", "null");
  const ResponseFormat format = conversation.format;
  one.text("response_format", kFormats[static_cast<std::size_t>(format)]);
  one.raw("response_schema", format == ResponseFormat::kJsonSchema ? conversation.schema : "null");
  one.maybe_text(
      "response_regex",
      format == ResponseFormat::kRegex ? std::optional(conversation.regex) : std::nullopt
  );
}

void put_inference(std::string& out, const InferenceOptions& inference) {
  constexpr std::array<std::string_view, 4> kKinds = {
      "json", "regex", "tool_call", "tool_call_required"
  };
  Writer one(out, '{');
  one.whole("max_tokens", inference.max_tokens);
  one.real("temperature", static_cast<double>(inference.temperature));
  one.real("top_p", static_cast<double>(inference.top_p));
  one.flag("logprobs", inference.logprobs);
  one.whole("top_logprobs", inference.top_logprobs);
  one.whole("seed", inference.seed);
  if (!inference.constraint) return one.raw("output_constraint", "null");
  Writer constraint(one.key("output_constraint"), '{');
  constraint.text("kind", kKinds[static_cast<std::size_t>(inference.constraint->kind)]);
  constraint.text("schema", inference.constraint->schema);
}

void put_parsing(std::string& out, const ParsingOptions& parsing) {
  constexpr std::array<std::string_view, 3> kStages = {
      "ReasoningStart", "ReasoningContinuation", "ContentContinuation"
  };
  Writer one(out, '{');
  one.flag("parse_tool_calls", parsing.tool_calls);
  one.flag("starts_in_tool_calls", parsing.starts_in_calls);
  one.flag("parse_json_output", parsing.json_output);
  if (parsing.stage)
    one.text("thinking_initial_stage", kStages[static_cast<std::size_t>(*parsing.stage)]);
  else
    one.raw("thinking_initial_stage", "null");
  Writer stops(one.key("stop_sequences"), '[');
  for (const std::string& stop : parsing.stops) put_json_string(stops.item(), stop);
}

void put_images(std::string& out, const std::vector<ImageSource>& images) {
  constexpr std::array<std::string_view, 3> kKinds = {"data_url", "url", "bytes"};
  constexpr std::array<std::string_view, 4> kDetails = {"low", "high", "original", "auto"};
  Writer list(out, '[');
  for (const ImageSource& image : images) {
    Writer one(list.item(), '{');
    one.text("kind", kKinds[static_cast<std::size_t>(image.kind)]);
    one.text("detail", kDetails[static_cast<std::size_t>(image.detail)]);
    one.text("path", image.path);
    one.text("sha256", hex(sha256(std::as_bytes(std::span(image.data)))));
    const bool is_url = image.kind == ImageSource::Kind::kUrl;
    one.maybe_text("url", is_url ? std::optional(image.data) : std::nullopt);
  }
}

void put_convert_error(Writer& one, const ConvertError& error) {
  one.whole("status", std::optional(error.status));
  one.text("body", error.body());
}

void put_resolved(std::string& out, const RequestCase& request, const ConvertedRequest& converted) {
  Writer list(out, '[');
  for (const auto& [prompt_tokens, limit] : request.resolve) {
    Writer one(list.item(), '[');
    put_json_int(one.item(), prompt_tokens);
    put_json_int(one.item(), limit);
    const auto tokens = converted.resolve_max_tokens(prompt_tokens, limit);
    if (tokens) {
      put_json_int(one.item(), *tokens);
    } else {
      Writer error(one.item(), '{');
      put_convert_error(error, tokens.error());
    }
  }
}

// Half-open ranges of code points.
void put_ranges(std::string& out, const codec::deepseek::Rendered& prompt) {
  Writer list(out, '[');
  std::size_t at = 0;
  std::int64_t points = 0;
  const auto points_to = [&](std::size_t end) {
    for (; at < end; ++at) points += (static_cast<unsigned char>(prompt.text[at]) & 0xC0) != 0x80;
    return points;
  };
  for (const codec::ByteRange& range : prompt.specials) {
    Writer one(list.item(), '[');
    put_json_int(one.item(), points_to(range.begin));
    put_json_int(one.item(), points_to(range.end));
  }
}

void put_prompt(
    Writer& result,
    const RequestCase& request,
    const ConvertedRequest& converted,
    const codec::Tokenizer* tokenizer
) {
  const auto prompt =
      codec::deepseek::render(converted.conversation, converted.version, request.specials);
  result.text("prompt", prompt.text);
  put_ranges(result.key("special_ranges"), prompt);
  if (tokenizer == nullptr) return;
  const auto ids = codec::deepseek::encode(prompt, *tokenizer);
  if (!ids)
    return result.text("ids_error", "failed to encode conversation: " + ids.error().message);
  Writer list(result.key("ids"), '[');
  for (const TokenId id : *ids) put_json_int(list.item(), id);
}

// Responses: the first event's response object, without its time.
void put_created(Writer& result, const ConvertedRequest& converted) {
  ResponsesAnswer answer;
  answer.head.id = "ID";
  answer.head.model = converted.model;
  answer.thinking = converted.conversation.thinking;
  answer.namespaces = converted.namespaces;
  answer.has_apply_patch = converted.has_apply_patch;
  answer.echo = converted.echo;
  const std::string text = created_response(answer);
  const auto tree = JsonTree::parse(text);
  if (!tree) return;
  Writer one(result.key("created_response"), '{');
  for (const JsonMember& member : tree->root().members()) {
    if (member.key != "created_at") append_json(one.key(member.key), member.value);
  }
}

void put_namespaces(std::string& out, const NamespaceTools& namespaces) {
  Writer map(out, '{');
  for (const auto& [name, parts] : namespaces) {
    Writer one(map.key(name), '[');
    put_json_string(one.item(), parts.first);
    put_json_string(one.item(), parts.second);
  }
}

void put_echo(std::string& out, const ResponsesEcho& echo) {
  Writer one(out, '{');
  one.maybe_text("instructions", echo.instructions);
  one.whole("max_output_tokens", echo.max_output_tokens);
  one.real("temperature", static_cast<double>(echo.temperature));
  one.real("top_p", static_cast<double>(echo.top_p));
  one.whole("top_logprobs", std::optional(echo.top_logprobs));
  one.maybe_text("user", echo.user);
}

// What a Responses request that is refused says for itself.
void put_before_error(std::string& out, const RequestCase& request) {
  const auto head = responses_head(request.body, request.options);
  if (!head) return;
  out += ",\"before_error\":";
  Writer one(out, '{');
  one.text("model", head->model);
  if (head->namespaces) {
    put_namespaces(one.key("namespace_tool_map"), *head->namespaces);
  } else {
    Writer error(one.key("namespace_tool_map_error"), '{');
    put_convert_error(error, head->namespaces.error());
  }
  put_echo(one.key("echo"), head->echo);
}

void put_result(
    std::string& out,
    const RequestCase& request,
    const ConvertedRequest& converted,
    const codec::Tokenizer* tokenizer
) {
  Writer result(out, '{');
  result.text("model_version", converted.version == ModelVersion::kV4 ? "v4" : "v4.1");
  result.flag("stream", converted.stream);
  put_prompt(result, request, converted, tokenizer);
  put_inference(result.key("inference"), converted.inference);
  put_resolved(result.key("resolve_max_tokens"), request, converted);
  put_parsing(result.key("parsing"), converted.parsing);
  put_conversation(result.key("conversation"), converted.conversation);
  put_images(result.key("image_sources"), converted.images);
  if (converted.api != Api::kResponses) return;
  const auto head = responses_head(request.body, request.options);
  if (head && head->namespaces) put_namespaces(result.key("namespace_tool_map"), *head->namespaces);
  put_echo(result.key("echo"), converted.echo);
  put_created(result, converted);
}

void put_error(std::string& out, const ConvertError& error) {
  Writer one(out, '{');
  if (error.stage == ConvertError::Stage::kConvert) {
    one.text("stage", "convert");
    return put_convert_error(one, error);
  }
  one.text("stage", "parse");
  one.raw("status", "null");
  one.text("message", error.message);
}

}  // namespace

std::string run_request_case(const RequestCase& request, const codec::Tokenizer* tokenizer) {
  const Converted converted = convert(request.api, request.body, request.options);
  std::string out = converted ? "\"result\":" : "\"error\":";
  if (converted)
    put_result(out, request, *converted, tokenizer);
  else
    put_error(out, converted.error());
  const bool is_refused = !converted && converted.error().stage == ConvertError::Stage::kConvert;
  if (is_refused && request.api == Api::kResponses) put_before_error(out, request);
  return out;
}

}  // namespace artery::cli
