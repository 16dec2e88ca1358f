#include "codec/deepseek/render_calls.h"

#include <algorithm>
#include <utility>

#include "codec/api/json_tree.h"

namespace artery::codec::deepseek {
namespace {

class CallRenderer {
 public:
  CallRenderer(PromptWriter& out, api::ModelVersion version)
      : out_(out),
        tags_(call_tags(version)),
        style_(json_style(version)),
        is_v4_(version == api::ModelVersion::kV4) {}

  void block(std::span<const api::ToolCall> calls) {
    open(tags_.block).plain(">\n");
    std::vector<const api::ToolCall*> order;
    order.reserve(calls.size());
    for (const api::ToolCall& item : calls) order.push_back(&item);
    if (is_v4_)
      std::ranges::sort(order, {}, [](const api::ToolCall* item) {
        return std::pair(std::string_view(item->id), item);
      });
    for (const api::ToolCall* item : order) call(*item);
    close(tags_.block);
  }

 private:
  PromptWriter& open(std::string_view tag) {
    return out_.plain("<").special(out_.specials().dsml).plain(tag);
  }
  void close(std::string_view tag) {
    out_.plain("</").special(out_.specials().dsml).plain(tag).plain(">");
  }

  void call(const api::ToolCall& call) {
    open(tags_.invoke).plain(" name=\"").plain(call.name).plain("\">\n");
    const auto arguments = api::JsonTree::parse(call.arguments);
    if (!arguments || !arguments->root().is_object()) {
      parameter("arguments", "true").plain(call.arguments);
      end_parameter();
    } else if (arguments->root().members().empty()) {
      if (!is_v4_) out_.plain("\n");
    } else {
      for (const api::JsonMember& member : arguments->root().members()) {
        if (member.value.is_string())
          parameter(member.key, "true").plain(member.value.text());
        else
          append_json(parameter(member.key, "false").tail(), member.value, style_);
        end_parameter();
      }
    }
    close(tags_.invoke);
    out_.plain("\n");
  }

  PromptWriter& parameter(std::string_view name, std::string_view is_string) {
    open(tags_.parameter).plain(" name=\"").plain(name).plain("\" string=\"").plain(is_string);
    return out_.plain("\">");
  }
  void end_parameter() {
    close(tags_.parameter);
    out_.plain("\n");
  }

  PromptWriter& out_;
  const CallTags& tags_;
  api::JsonStyle style_;
  bool is_v4_;
};

}  // namespace

api::JsonStyle json_style(api::ModelVersion version) {
  return version == api::ModelVersion::kV4 ? api::kSpacedSerdeStyle : api::kPythonStyle;
}

void render_calls(
    PromptWriter& out, std::span<const api::ToolCall> calls, api::ModelVersion version
) {
  CallRenderer(out, version).block(calls);
}

}  // namespace artery::codec::deepseek
