#include <algorithm>
#include <numeric>

#include "codec/api/json_out.h"
#include "codec/api/rules.h"
#include "codec/deepseek/encoding.h"
#include "codec/deepseek/prompt_texts.h"
#include "codec/deepseek/prompt_writer.h"
#include "codec/deepseek/render_calls.h"

namespace artery::codec::deepseek {
namespace {

using api::Message;
using api::ModelVersion;
using api::Role;

// A turn as the encoding sees it. V4's first one may be several system messages.
struct Turn {
  Role role = Role::kSystem;
  const Message* message = nullptr;  // null: a system turn with no message of its own
};

class Renderer {
 public:
  Renderer(
      const api::Conversation& conversation, ModelVersion version, const SpecialTexts& specials
  )
      : conversation_(conversation),
        version_(version),
        is_v4_(version == ModelVersion::kV4),
        has_tools_(conversation.has_active_tools()),
        out_(specials) {}

  Rendered render() {
    arrange();
    out_.reserve(expected_size());
    out_.special(specials().bos);
    // Without a turn V4 still says how to think.
    if (turns_.empty() && is_v4_) begin_first(Role::kSystem);
    for (std::size_t i = 0; i < turns_.size(); ++i) turn(i);
    if (turns_.empty() || !is_open(turns_.size() - 1)) header();
    if (has_tools_ && conversation_.tool_choice == api::ToolChoice::kRequired) {
      out_.plain("\n\n<").special(specials().dsml).plain(call_tags(version_).block).plain(">\n");
    }
    return out_.take();
  }

 private:
  const SpecialTexts& specials() const { return out_.specials(); }

  bool has_format() const {
    return conversation_.format == api::ResponseFormat::kJsonObject ||
           conversation_.format == api::ResponseFormat::kJsonSchema;
  }

  // Which turns there are, in which order.
  void arrange() {
    const auto& messages = conversation_.messages;
    for (const std::size_t index : is_v4_ ? v4_order() : api::prompt_order(conversation_)) {
      const Message& message = messages[index];
      if (is_v4_ && message.role == Role::kSystem) {
        if (!message.content.empty()) first_systems_.push_back(&message);
        continue;
      }
      const bool repeats = message.role == Role::kLatestReminder && !turns_.empty() &&
                           turns_.back().role == Role::kLatestReminder;
      if (repeats && !is_v4_) continue;
      turns_.push_back({message.role, &message});
    }
    const bool needs_system = has_tools_ || has_format() || !first_systems_.empty();
    if (needs_system && (turns_.empty() || turns_.front().role != Role::kSystem))
      turns_.insert(turns_.begin(), Turn{});
  }

  // V4 shows calls by their ids, and so what answers them: as many messages behind the calls as
  // there are calls, results first.
  std::vector<std::size_t> v4_order() const {
    const auto& messages = conversation_.messages;
    std::vector<std::size_t> order(messages.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    const auto answers = [&](std::size_t i) {
      return messages[i].role == Role::kTool || messages[i].role == Role::kUser;
    };
    for (std::size_t i = 0; i < messages.size(); ++i) {
      const std::size_t last = std::min(messages.size() - 1, i + messages[i].calls.size());
      std::size_t end = i + 1;
      while (end <= last && answers(end)) ++end;
      std::sort(
          order.begin() + static_cast<std::ptrdiff_t>(i + 1),
          order.begin() + static_cast<std::ptrdiff_t>(end),
          [&](std::size_t a, std::size_t b) {
            const bool a_is_user = messages[a].role == Role::kUser;
            const bool b_is_user = messages[b].role == Role::kUser;
            if (a_is_user != b_is_user) return b_is_user;
            const int by_id = a_is_user ? 0 : messages[a].call_id.compare(messages[b].call_id);
            return by_id != 0 ? by_id < 0 : a < b;
          }
      );
    }
    return order;
  }

  std::size_t expected_size() const {
    std::size_t size = 1024;
    for (const Message& message : conversation_.messages) {
      size += message.content.size() + 64;
      if (message.reasoning) size += message.reasoning->size();
      for (const api::ToolCall& call : message.calls) size += call.arguments.size() * 3 / 2 + 256;
    }
    for (const api::Tool& tool : conversation_.tools)
      size += tool.parameters.size() * 5 / 4 + tool.description.value_or("").size() + 64;
    return size + conversation_.schema.size() * 5 / 4 + 2048;
  }

  void turn(std::size_t i) {
    if (i == 0) begin_first(turns_.front().role);
    switch (turns_[i].role) {
      case Role::kSystem:
        return system(i);
      case Role::kUser:
        return user(i);
      case Role::kTool:
        open_user(i);
        out_.plain("<tool_result>");
        content(*turns_[i].message);
        out_.plain("</tool_result>");
        return;
      case Role::kLatestReminder:
        out_.special(specials().latest_reminder);
        return content(*turns_[i].message);
      case Role::kAssistant:
        return assistant(i);
    }
  }

  void begin_first(Role role) {
    std::string_view effort;
    if (conversation_.thinking)
      effort = effort_text(version_, conversation_.effort.value_or(api::Effort::kHigh));
    if (!is_v4_ && (!effort.empty() || role == Role::kSystem)) out_.special(specials().system);
    out_.plain(effort);
  }

  void content(const Message& message) {
    out_.text_with_images(message.content, message.image_places);
  }

  void system(std::size_t i) {
    if (i > 0) out_.special(specials().system);
    for (std::size_t k = 0; k < first_systems_.size(); ++k) {
      if (k > 0) out_.plain("\n\n");
      content(*first_systems_[k]);
    }
    const Message* message = turns_[i].message;
    if (message != nullptr) content(*message);
    if (i == 0 && has_tools_) tools();
    if (i == 0) format();
    if (message == nullptr || message->tools.empty()) return;
    out_.plain(kUpdatedSchemas);
    schema_lines(message->tools, true);
  }

  void schema_lines(std::span<const api::Tool> tools, bool deferred_too) {
    bool first = true;
    for (const api::Tool& tool : tools) {
      if (tool.defer_loading && !deferred_too) continue;
      if (!std::exchange(first, false)) out_.plain("\n");
      std::string& text = out_.tail();
      text += "{\"name\": ";
      api::put_json_string(text, tool.name);
      text += ", \"description\": ";
      api::put_json_string(text, tool.description.value_or(std::string()));
      text += ", \"parameters\": ";
      append_restyled(text, tool.parameters, json_style(version_));
      text += '}';
    }
  }

  void tools() {
    const CallTags& tags = call_tags(version_);
    out_.plain("\n\n");
    for (const ToolPromptPiece& piece : tool_prompt()) {
      switch (piece.kind) {
        case ToolPiece::kText:
          out_.plain(piece.text);
          break;
        case ToolPiece::kDsml:
          out_.special(specials().dsml);
          break;
        case ToolPiece::kThink:
          out_.special(specials().think_begin);
          break;
        case ToolPiece::kThinkEnd:
          out_.special(specials().think_end);
          break;
        case ToolPiece::kBlock:
          out_.plain(tags.block);
          break;
        case ToolPiece::kInvoke:
          out_.plain(tags.invoke);
          break;
        case ToolPiece::kParameter:
          out_.plain(tags.parameter);
          break;
        case ToolPiece::kSchemas:
          schema_lines(conversation_.tools, is_v4_);
          break;
      }
    }
  }

  void format() {
    if (conversation_.format == api::ResponseFormat::kJsonSchema) {
      out_.plain(kSchemaFormat);
      append_restyled(out_.tail(), conversation_.schema, json_style(version_));
    } else if (conversation_.format == api::ResponseFormat::kJsonObject) {
      if (is_v4_)
        out_.plain(kJsonObjectV4);
      else
        out_.plain(kSchemaFormat).plain(kJsonObject);
    }
  }

  // Empty ones among V4's users' words leave no blank lines.
  void user(std::size_t i) {
    const Message& message = *turns_[i].message;
    const bool follows = i > 0 && turns_[i - 1].role == Role::kUser;
    const bool hides_gap = is_v4_ && follows && (message.content.empty() || !user_spoke_);
    if (!hides_gap) open_user(i);
    user_spoke_ = !message.content.empty() || (follows && user_spoke_);
    content(message);
  }

  // V4 begins a new turn for a result behind a user's words.
  void open_user(std::size_t i) {
    const bool joins =
        i > 0 &&
        (turns_[i - 1].role == Role::kTool ||
         (turns_[i - 1].role == Role::kUser && (!is_v4_ || turns_[i].role == Role::kUser)));
    if (joins)
      out_.plain("\n\n");
    else
      out_.special(specials().user);
  }

  // A prefix that the model goes on from.
  bool is_open(std::size_t i) const {
    const Turn& turn = turns_[i];
    return turn.role == Role::kAssistant && turn.message->is_prefix &&
           (!is_v4_ || i + 1 == turns_.size());
  }

  void assistant(std::size_t i) {
    const Message& message = *turns_[i].message;
    out_.special(specials().assistant);
    const bool keeps = conversation_.thinking && (has_tools_ || message.is_prefix) &&
                       (is_v4_ ? message.reasoning.has_value() : i > 0);
    if (keeps) {
      out_.special(specials().think_begin);
      out_.assistant_text(message.reasoning.value_or(std::string()));
    }
    // A prefix of reasoning alone is not closed.
    const bool stays_open = keeps && is_open(i) && message.content.empty() && message.calls.empty();
    if (!stays_open) out_.special(specials().think_end);
    out_.assistant_text(message.content);
    if (!message.calls.empty()) {
      out_.plain("\n\n");
      render_calls(out_, message.calls, version_);
    }
    if (!is_open(i)) out_.special(specials().eos);
  }

  void header() {
    out_.special(specials().assistant);
    out_.special(conversation_.thinking ? specials().think_begin : specials().think_end);
  }

  const api::Conversation& conversation_;
  const ModelVersion version_;
  const bool is_v4_, has_tools_;
  PromptWriter out_;
  std::vector<Turn> turns_;
  std::vector<const Message*> first_systems_;  // V4
  bool user_spoke_ = false;                    // in the run of users' turns at hand
};

}  // namespace

Rendered render(
    const api::Conversation& conversation, api::ModelVersion version, const SpecialTexts& specials
) {
  return Renderer(conversation, version, specials).render();
}

}  // namespace artery::codec::deepseek
