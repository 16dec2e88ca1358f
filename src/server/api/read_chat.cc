#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/parse.hpp>
#include <utility>

#include "server/api/cache_wish.h"
#include "server/api/requests.h"

namespace artery::server::api {
namespace {

namespace json = boost::json;

constexpr int kArgumentsDepthMax = 64;

std::string std_string(const json::string& text) { return {text.data(), text.size()}; }

// null, "", a string, or a list of text parts, which are joined by line breaks as vLLM does.
Result<std::string> read_content(const Fields& message, const std::string& path) {
  const json::value* content = message.find("content");
  if (content == nullptr) return std::string();
  if (content->is_string()) return std_string(content->get_string());
  if (!content->is_array()) {
    return fail_field(
        path + ".content",
        "{}.content must be a string or an array of parts, not {}",
        path,
        type_name(*content)
    );
  }
  std::string out;
  std::size_t index = 0;
  for (const json::value& part : content->get_array()) {
    const std::string part_path = path + ".content[" + std::to_string(index) + "]";
    std::string text;
    if (part.is_string()) {
      text = std_string(part.get_string());
    } else {
      const Fields fields = TRY(Fields::of(part, part_path));
      const std::string type = TRY(fields.text("type")).value_or("text");
      if (type != "text" && type != "input_text" && type != "output_text" && type != "refusal") {
        return fail_field(
            part_path + ".type",
            "{}.type \"{}\" is not supported: this model takes text only",
            part_path,
            type
        );
      }
      const auto found = TRY(fields.text(type == "refusal" ? "refusal" : "text"));
      if (!found) return fail_field(part_path + ".text", "{}.text is missing", part_path);
      text = *found;
    }
    if (index++ > 0) out += '\n';
    out += text;
  }
  return out;
}

// Templates walk the arguments as a mapping, clients send them as a string of JSON (FR-B1). What
// is not an object stays the string it is.
void open_arguments(json::object& function) {
  json::value* arguments = function.if_contains("arguments");
  if (arguments == nullptr || !arguments->is_string()) return;
  auto parsed = parse_json(std_string(arguments->get_string()), kArgumentsDepthMax);
  if (parsed && parsed->is_object()) *arguments = parsed.take();
}

Result<> normalise_tool_calls(json::object& message, const std::string& path) {
  json::value* calls = message.if_contains("tool_calls");
  if (calls == nullptr || calls->is_null()) {
    message.erase("tool_calls");
    return {};
  }
  if (!calls->is_array()) {
    return fail_field(
        path + ".tool_calls", "{}.tool_calls must be an array, not {}", path, type_name(*calls)
    );
  }
  std::size_t index = 0;
  for (json::value& call : calls->get_array()) {
    const std::string call_path = path + ".tool_calls[" + std::to_string(index++) + "]";
    const Fields fields = TRY(Fields::of(call, call_path));
    const json::object* function = TRY(fields.object("function"));
    if (function == nullptr) {
      return fail_field(call_path + ".function", "{}.function is missing", call_path);
    }
    const Fields inner = TRY(Fields::of(*fields.find("function"), call_path + ".function"));
    if (!TRY(inner.text("name"))) {
      return fail_field(call_path + ".function.name", "{}.function.name is missing", call_path);
    }
    open_arguments(call.get_object().at("function").get_object());
  }
  return {};
}

Result<codec::ChatMessage> read_message(const json::value& value, const std::string& path) {
  const Fields fields = TRY(Fields::of(value, path));
  codec::ChatMessage message;
  const auto role = TRY(fields.text("role"));
  if (!role || role->empty()) return fail_field(path + ".role", "{}.role is missing", path);
  // OpenAI renamed the role; the templates of open models know only the old name.
  message.role = *role == "developer" ? "system" : *role;
  message.content = TRY(read_content(fields, path));
  TRY(fields.text("name"));
  TRY(fields.text("tool_call_id"));
  json::object object = value.get_object();
  object["role"] = message.role;
  object["content"] = message.content;
  object.erase("cache_control");  // a mark for the cache must not change the prompt
  object.erase("prefix");
  TRY(normalise_tool_calls(object, path));
  // Newer vLLM and some gateways call it "reasoning"; templates know the older name.
  const auto reasoning = TRY(fields.text("reasoning"));
  if (reasoning && !TRY(fields.text("reasoning_content"))) {
    object["reasoning_content"] = *reasoning;
    object.erase("reasoning");
  }
  message.json = to_json(object);
  return message;
}

// DeepSeek's spelling of continue_final_message: `"prefix": true` in an assistant's last message.
Result<bool> ends_with_prefix(const json::array& messages) {
  bool found = false;
  for (std::size_t i = 0; i < messages.size(); ++i) {
    const std::string path = "messages[" + std::to_string(i) + "]";
    const Fields fields = TRY(Fields::of(messages[i], path));
    if (!TRY(fields.flag("prefix", false))) continue;
    const bool is_last = i + 1 == messages.size();
    if (!is_last || TRY(fields.text("role")).value_or("") != "assistant") {
      return fail_field(
          path + ".prefix", "{}.prefix: only the last message may be one, the assistant's", path
      );
    }
    found = true;
  }
  return found;
}

// Templates print tools as they are: with its mark for the cache a tool would be another prefix.
json::array without_cache_marks(const json::array& tools) {
  json::array out = tools;
  for (json::value& tool : out) tool.get_object().erase("cache_control");
  return out;
}

Result<std::string> read_tools(const Fields& body) {
  const json::array* tools = TRY(body.array("tools"));
  if (tools == nullptr || tools->empty()) return std::string();
  std::size_t index = 0;
  for (const json::value& tool : *tools) {
    const std::string path = "tools[" + std::to_string(index++) + "]";
    const Fields fields = TRY(Fields::of(tool, path));
    if (TRY(fields.text("type")).value_or("function") != "function") {
      return fail_field(path + ".type", "{}.type must be \"function\"", path);
    }
    const json::object* function = TRY(fields.object("function"));
    if (function == nullptr) return fail_field(path + ".function", "{}.function is missing", path);
    const Fields inner = TRY(Fields::of(*fields.find("function"), path + ".function"));
    if (!TRY(inner.text("name"))) {
      return fail_field(path + ".function.name", "{}.function.name is missing", path);
    }
    TRY(inner.object("parameters"));
  }
  // "none" forbids calls: a model that does not see the tools cannot make one.
  if (TRY(body.text("tool_choice")).value_or("auto") == "none") return std::string();
  return to_json(without_cache_marks(*tools));
}

Result<std::string> read_kwargs(const Fields& body) {
  const json::object* given = TRY(body.object("chat_template_kwargs"));
  json::object kwargs = given == nullptr ? json::object() : *given;
  const auto effort = TRY(body.text("reasoning_effort"));
  if (effort && !kwargs.contains("reasoning_effort")) kwargs["reasoning_effort"] = *effort;
  return kwargs.empty() ? std::string() : to_json(kwargs);
}

Result<int> read_logprobs(const Fields& body) {
  const bool wanted = TRY(body.flag("logprobs", false));
  const auto top = TRY(body.integer("top_logprobs", 0, kLogprobsMax));
  if (top && *top > 0 && !wanted) {
    return fail_field("top_logprobs", "top_logprobs needs \"logprobs\": true");
  }
  return wanted ? static_cast<int>(top.value_or(0)) : -1;
}

}  // namespace

Result<codec::ChatInput> read_chat_input(const Fields& body) {
  codec::ChatInput input;
  const json::array* messages = TRY(body.array("messages"));
  if (messages == nullptr) return fail_field("messages", "messages is missing");
  if (messages->empty()) return fail_field("messages", "messages must not be empty");
  input.messages.reserve(messages->size());
  for (const json::value& message : *messages) {
    const std::string path = "messages[" + std::to_string(input.messages.size()) + "]";
    input.messages.push_back(TRY(read_message(message, path)));
  }
  input.tools_json = TRY(read_tools(body));
  const json::array* documents = TRY(body.array("documents"));
  if (documents != nullptr) input.documents_json = to_json(*documents);
  input.kwargs_json = TRY(read_kwargs(body));
  input.continue_final_message = TRY(body.flag("continue_final_message", false));
  if (TRY(ends_with_prefix(*messages))) input.continue_final_message = true;
  input.add_generation_prompt =
      TRY(body.flag("add_generation_prompt", !input.continue_final_message));
  if (input.continue_final_message && input.add_generation_prompt) {
    return fail_field(
        "add_generation_prompt",
        "add_generation_prompt and continue_final_message cannot both be true"
    );
  }
  return input;
}

Result<ChatRequest> read_chat(const json::value& value, std::int64_t vocab_size) {
  const Fields body = TRY(Fields::of(value, ""));
  codec::ChatInput input = TRY(read_chat_input(body));
  ChatRequest request = TRY(read_chat_settings(value, vocab_size));
  request.input = std::move(input);
  request.params.cache_seen = observed_class(request.input);
  return request;
}

Result<ChatRequest> read_chat_settings(const json::value& value, std::int64_t vocab_size) {
  const Fields body = TRY(Fields::of(value, ""));
  ChatRequest request;
  request.params = TRY(read_params(body, vocab_size));
  if (!TRY(body.text("suffix")).value_or("").empty()) {
    return fail_field("suffix", "suffix: text is inserted by /v1/completions only");
  }
  request.params.logprobs = TRY(read_logprobs(body));
  request.parallel_calls = TRY(body.flag("parallel_tool_calls", true));
  request.include_reasoning = TRY(body.flag("include_reasoning", true));
  const auto old_name = TRY(body.integer("max_tokens", 1, std::int64_t{1} << 62));
  const auto new_name = TRY(body.integer("max_completion_tokens", 1, std::int64_t{1} << 62));
  request.params.max_tokens = new_name.value_or(old_name.value_or(-1));
  return request;
}

}  // namespace artery::server::api
