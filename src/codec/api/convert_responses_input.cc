#include "codec/api/convert_responses_input.h"

#include <fmt/format.h>

#include <algorithm>

#include "codec/api/json_out.h"
#include "codec/api/json_style.h"

namespace artery::codec::api {

namespace {

using Kind = ResponsesItem::Kind;
using PartKind = ResponsesPart::Kind;

#define RULE(expr)                                                                    \
  do {                                                                                \
    if (auto ruled = (expr); !ruled) return tl::unexpected(std::move(ruled.error())); \
  } while (false)

// Reasoning texts are joined by a newline, those of one item first: empty ones of it count, an item
// that is empty in all does not.
std::string joined(const std::vector<std::string_view>& texts) {
  std::string text;
  for (std::size_t i = 0; i < texts.size(); ++i) {
    if (i > 0) text += '\n';
    text += texts[i];
  }
  return text;
}

}  // namespace

Ruled<std::vector<Message>> ResponsesInput::convert(const ResponsesRequest& request) {
  if (!request.instructions.value_or("").empty()) {
    Message& system = messages_.emplace_back();
    system.role = Role::kSystem;
    system.content = *request.instructions;
  } else if (!request.has_input) {
    return refused("Either input or instructions must be provided");
  }
  if (request.input_text) {
    messages_.emplace_back().content = *request.input_text;
  } else if (request.has_input && request.items.empty()) {
    return refused("Input items array must not be empty");
  }
  for (const ResponsesItem& item : request.items) RULE(add(item));
  RULE(check_answered());
  return std::move(messages_);
}

Ruled<> ResponsesInput::add(const ResponsesItem& item) {
  const bool is_search = item.kind == Kind::kSearchCall || item.kind == Kind::kSearchOutput;
  if (is_search && version_ == ModelVersion::kV4) return {};
  switch (item.kind) {
    case Kind::kMessage:
      return add_message(item);
    case Kind::kReasoning:
      // A model that thinks between its calls: only the server of any model has such.
      if (!keeps_order()) RULE(check_answered());
      add_reasoning(item);
      return {};
    case Kind::kCall:
    case Kind::kCustomCall:
    case Kind::kSearchCall:
      return add_call(item);
    case Kind::kOutput:
    case Kind::kCustomOutput:
      return add_output(item);
    case Kind::kSearchOutput:
      return add_found_tools(item);
    case Kind::kWebSearch:
      return keeps_order() ? Ruled<>() : check_answered();
    case Kind::kReference:
      return refused(fmt::format("Item with id '{}' not found.", item.name));
    case Kind::kOther:
      break;
  }
  return {};
}

Ruled<> ResponsesInput::add_message(const ResponsesItem& item) {
  // Models speak after their calls too, and clients send such a history back in its order.
  if (!keeps_order()) RULE(check_answered());
  const bool as_user = item.is_developer && version_ == ModelVersion::kV4;
  auto message = content_of(item, as_user ? Role::kUser : item.role, "content");
  if (!message) return tl::unexpected(std::move(message.error()));
  if (message->role != Role::kAssistant) {
    (waiting_.empty() ? messages_ : behind_).push_back(std::move(*message));
    return {};
  }
  Message& turn = assistant();
  if (!turn.content.empty() && !message->content.empty()) turn.content += "\n\n";
  turn.content += message->content;
  return {};
}

void ResponsesInput::add_reasoning(const ResponsesItem& item) {
  const std::string text = joined(item.reasoning);
  if (text.empty()) return;
  Message* turn = &assistant();
  if (!turn->content.empty()) {
    turn = &messages_.emplace_back();
    turn->role = Role::kAssistant;
  }
  if (turn->reasoning) {
    *turn->reasoning += '\n';
    *turn->reasoning += text;
  } else {
    turn->reasoning = text;
  }
}

Ruled<> ResponsesInput::add_call(const ResponsesItem& item) {
  const std::string_view id = *item.call_id;
  if (id.empty()) return refused_empty(path(item) + ".call_id");
  if (!called_.insert(id).second) return refused(fmt::format("Duplicate 'call_id': {}.", id));
  waiting_.insert(id);
  ToolCall& call = calls_.emplace_back();
  call.id = id;
  if (item.kind == Kind::kSearchCall) {
    call.name = "tool_search";
    append_json(call.arguments, *item.search);
    return {};
  }
  call.name = item.name_space ? names_.of(*item.name_space, item.name) : std::string(item.name);
  if (item.kind == Kind::kCustomCall) {
    call.arguments = R"({"input":)";
    put_json_string(call.arguments, item.arguments);
    call.arguments += '}';
  } else {
    call.arguments = item.arguments;
  }
  return {};
}

Ruled<> ResponsesInput::add_output(const ResponsesItem& item) {
  // The official package reads a function's result first and a custom tool's id first.
  if (item.kind == Kind::kCustomOutput) RULE(answer(item));
  auto result = content_of(item, Role::kTool, "output");
  if (!result) return tl::unexpected(std::move(result.error()));
  if (!item.call_id) {
    RULE(check_answered());
    messages_.push_back(std::move(*result));
    return {};
  }
  if (item.kind == Kind::kOutput) RULE(answer(item));
  result->call_id = *item.call_id;
  results_.push_back(std::move(*result));
  close_group();
  return {};
}

Ruled<> ResponsesInput::add_found_tools(const ResponsesItem& item) {
  RULE(answer(item));
  auto text = found_tools_text(item.tools, item.index);
  if (!text) return tl::unexpected(std::move(text.error()));
  Message& result = results_.emplace_back();
  result.role = Role::kTool;
  result.call_id = *item.call_id;
  result.content = std::move(*text);
  const auto names = tools_.found.find(item.index);
  if (names != tools_.found.end() && !names->second.empty()) {
    Message& added = behind_.emplace_back();
    added.role = Role::kSystem;
    for (const std::string& name : names->second) added.tools.emplace_back().name = name;
  }
  close_group();
  return {};
}

Ruled<> ResponsesInput::check_answered() const {
  for (const ToolCall& call : calls_)
    if (waiting_.contains(call.id))
      return refused(fmt::format("No tool output found for tool call {}.", call.id));
  return {};
}

Ruled<> ResponsesInput::answer(const ResponsesItem& item) {
  const std::string_view id = *item.call_id;
  if (id.empty()) return refused_empty(path(item) + ".call_id");
  if (!called_.contains(id))
    return refused(fmt::format("No tool call found for tool output with call_id {}.", id));
  if (!answered_.insert(id).second)
    return refused(fmt::format("Duplicate tool output for call_id: {}.", id));
  waiting_.erase(id);
  return {};
}

void ResponsesInput::close_group() {
  if (!waiting_.empty()) return;
  if (!keeps_order()) {
    std::ranges::sort(calls_, {}, &ToolCall::id);
    std::ranges::sort(results_, {}, &Message::call_id);
  }
  assistant().calls = std::move(calls_);
  std::ranges::move(results_, std::back_inserter(messages_));
  std::ranges::move(behind_, std::back_inserter(messages_));
  calls_.clear();
  results_.clear();
  behind_.clear();
}

Ruled<Message> ResponsesInput::content_of(
    const ResponsesItem& item, Role role, std::string_view field
) {
  const bool has_images = version_ == ModelVersion::kV41;
  bool with_image = false;
  for (std::size_t i = 0; has_images && i < item.parts.size(); ++i) {
    if (item.parts[i].kind != PartKind::kImage) continue;
    with_image = true;
    RULE(check_image(item.parts[i], fmt::format("{}.{}[{}]", path(item), field, i)));
  }
  if (with_image && role == Role::kAssistant)
    return refused(fmt::format("{}: Image in assistant message is unsupported", path(item)));
  ContentBuilder content(version_, options_);
  for (const ResponsesPart& part : item.parts) {
    if (part.kind == PartKind::kText) {
      content.text(part.text);
    } else if (part.kind == PartKind::kFile) {
      content.text("[Unsupported Document]");
    } else if (!has_images) {
      content.image({});
    } else {
      auto source = image_of_url(*part.image_url, part.detail, path(item));
      if (!source) return tl::unexpected(std::move(source.error()));
      content.image(std::move(*source));
    }
  }
  Message message;
  message.role = role;
  content.move_into(message);
  return message;
}

Ruled<> ResponsesInput::check_image(const ResponsesPart& part, const std::string& place) const {
  const bool has_url = !part.image_url.value_or("").empty();
  if (has_url && part.file_id)
    return refused(fmt::format("{}: input_image cannot have both image_url and file_id", place));
  if (part.file_id)
    return refused(fmt::format(
        "{}: file_id is not supported. Pass the image as a base64 data url instead.", place
    ));
  if (!has_url)
    return refused(fmt::format("{}: input_image must have image_url or file_id", place));
  return {};
}

Message& ResponsesInput::assistant() {
  if (messages_.empty() || messages_.back().role != Role::kAssistant ||
      !messages_.back().calls.empty()) {
    messages_.emplace_back().role = Role::kAssistant;
  }
  return messages_.back();
}

std::string ResponsesInput::path(const ResponsesItem& item) const {
  return fmt::format("input[{}]", item.index);
}

#undef RULE

}  // namespace artery::codec::api
