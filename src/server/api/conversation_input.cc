#include "server/api/conversation_input.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include "server/api/json_reader.h"
#include "server/api/json_writer.h"

namespace artery::server::api {
namespace {

using codec::api::Message;
using codec::api::Role;
using codec::api::Tool;

constexpr std::string_view kBetween = "\n\n";

void append_paragraph(std::string& text, std::string_view more) {
  if (more.empty()) return;
  if (!text.empty()) text += kBetween;
  text += more;
}

void write_calls(JsonWriter& out, const Message& message) {
  out.key("tool_calls").begin_array();
  for (const codec::api::ToolCall& call : message.calls) {
    out.begin_object().field("id", call.id).field("type", "function");
    out.key("function").begin_object().field("name", call.name);
    out.field("arguments", call.arguments).end_object().end_object();
  }
  out.end_array();
}

codec::ChatMessage assistant_turn(const Message& message) {
  JsonWriter out;
  out.begin_object().field("role", "assistant").field("content", message.content);
  if (message.reasoning && !message.reasoning->empty()) {
    out.field("reasoning_content", *message.reasoning);
  }
  if (!message.calls.empty()) write_calls(out, message);
  out.end_object();
  return {"assistant", message.content, out.take()};
}

codec::ChatMessage tool_turn(const Message& message) {
  JsonWriter out;
  out.begin_object().field("role", "tool").field("content", message.content);
  out.field("tool_call_id", message.call_id).end_object();
  return {"tool", message.content, out.take()};
}

// Turns in the making.
class Turns {
 public:
  void add(const Message& message) {
    switch (message.role) {
      case Role::kSystem:
        if (!begun_) return append_paragraph(system_, message.content);
        if (message.content.empty()) return;
        return say("<system-reminder>\n" + message.content + "\n</system-reminder>");
      case Role::kUser:
      case Role::kLatestReminder:
        return say(message.content);
      case Role::kAssistant:
        return take_turn(assistant_turn(message));
      case Role::kTool:
        return take_turn(tool_turn(message));
    }
  }

  std::vector<codec::ChatMessage> take() {
    if (!system_.empty()) turns_.insert(turns_.begin(), {"system", std::move(system_), {}});
    return std::move(turns_);
  }

 private:
  void say(std::string_view text) {
    begun_ = true;
    if (!turns_.empty() && turns_.back().role == "user") {
      append_paragraph(turns_.back().content, text);
      return;
    }
    turns_.push_back({"user", std::string(text), {}});
  }
  void take_turn(codec::ChatMessage turn) {
    begun_ = true;
    turns_.push_back(std::move(turn));
  }

  std::string system_;
  std::vector<codec::ChatMessage> turns_;
  bool begun_ = false;  // a turn that is not the system's has come
};

// Those that a turn of the conversation added too: templates know one list.
std::vector<Tool> all_tools(const codec::api::Conversation& conversation) {
  std::vector<Tool> out = conversation.tools;
  for (const Message& message : conversation.messages) {
    for (const Tool& tool : message.tools) {
      const bool is_there =
          std::ranges::any_of(out, [&](const Tool& one) { return one.name == tool.name; });
      if (!is_there) out.push_back(tool);
    }
  }
  return out;
}

std::string tools_json(const std::vector<Tool>& tools) {
  JsonWriter out;
  out.begin_array();
  for (const Tool& tool : tools) {
    out.begin_object().field("type", "function").key("function").begin_object();
    out.field("name", tool.name);
    if (tool.description) out.field("description", *tool.description);
    out.key("parameters").raw(tool.parameters).end_object().end_object();
  }
  out.end_array();
  return out.take();
}

}  // namespace

Result<codec::ChatInput> chat_input(const codec::api::Conversation& conversation) {
  codec::ChatInput input;
  Turns turns;
  for (const Message& message : conversation.messages) {
    if (!message.images.empty()) {
      const std::string& path = message.images.front().path;
      return fail_field(path, "{}: this model takes text only, not images", path);
    }
    turns.add(message);
  }
  input.messages = turns.take();
  if (conversation.tool_choice != codec::api::ToolChoice::kNone) {
    const std::vector<Tool> tools = all_tools(conversation);
    if (!tools.empty()) input.tools_json = tools_json(tools);
  }
  const bool goes_on = !conversation.messages.empty() && conversation.messages.back().is_prefix;
  input.continue_final_message = goes_on;
  input.add_generation_prompt = !goes_on;
  // Templates think by default where they can.
  if (!conversation.thinking) input.kwargs_json = R"({"enable_thinking":false})";
  return input;
}

}  // namespace artery::server::api
