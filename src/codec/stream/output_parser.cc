#include "codec/stream/output_parser.h"

#include <algorithm>
#include <array>
#include <utility>

#include "codec/stream/harmony.h"
#include "codec/stream/json_scan.h"

namespace artery::codec {
namespace {

constexpr std::string_view kNone = "none", kAuto = "auto";
constexpr std::array<std::string_view, 11> kToolCallNames = {
    "auto",
    "none",
    "deepseek_v3",
    "deepseek_v31",
    "hermes",
    "llama3_json",
    "llama4_json",
    "mistral",
    "openai",
    "qwen3_coder",
    "qwen3_xml"
};
constexpr std::array<std::string_view, 7> kReasoningNames = {
    "auto", "none", "deepseek_r1", "deepseek_v3", "mistral", "openai_gptoss", "qwen3"
};

template <typename Names>
Result<> check_name(const Names& names, const std::string& name, const char* flag) {
  if (std::find(names.begin(), names.end(), name) != names.end()) return {};
  std::string known;
  for (const std::string_view one : names) known += (known.empty() ? "" : ", ") + std::string(one);
  return fail_field(flag, "{}: no parser \"{}\"; there are {}", flag, name, known);
}

bool has(std::string_view text, std::string_view part) { return text.find(part) != text.npos; }

// By the markup that the template itself writes for calls of earlier turns.
std::string_view tool_call_of(std::string_view source) {
  if (has(source, "<|channel|>") && has(source, "<|message|>")) return "openai";
  if (has(source, "<tool_call>") && has(source, "<function=") && has(source, "<parameter=")) {
    return "qwen3_coder";
  }
  if (has(source, "<function=") || has(source, "<arg_key>")) return kNone;  // other families
  if (has(source, "<tool_call>")) return "hermes";
  if (has(source, "[TOOL_CALLS]")) return "mistral";
  if (has(source, "<｜tool▁call▁begin｜>")) {
    return has(source, "```json") ? "deepseek_v3" : "deepseek_v31";
  }
  const bool is_llama = has(source, "<|start_header_id|>") || has(source, "<|header_start|>");
  return is_llama && has(source, "\"parameters\"") ? "llama3_json" : kNone;
}

std::string_view reasoning_of(std::string_view source) {
  if (has(source, "<|channel|>") && has(source, "<|message|>")) return "openai_gptoss";
  if (has(source, "[THINK]")) return "mistral";
  if (!has(source, "</think>")) return kNone;
  return has(source, "<｜Assistant｜>") ? "deepseek_v3" : "qwen3";
}

bool ends_with_marker(std::string_view prompt, std::string_view marker) {
  while (!prompt.empty() && is_json_space(prompt.back())) prompt.remove_suffix(1);
  return prompt.ends_with(marker);
}

}  // namespace

Result<> check_parser_choice(const ParserChoice& choice) {
  TRY(check_name(kToolCallNames, choice.tool_call, "--tool-call-parser"));
  return check_name(kReasoningNames, choice.reasoning, "--reasoning-parser");
}

Result<std::shared_ptr<const OutputFormat>> OutputFormat::make(
    const ParserChoice& choice, std::string_view template_source, IsControlText is_control
) {
  TRY(check_parser_choice(choice));
  std::string tools = choice.tool_call, reasoning = choice.reasoning;
  if (tools == kAuto) tools = tool_call_of(template_source);
  if (reasoning == kAuto) {
    // The channels are one format: they are read whole, or not at all.
    reasoning = tools == "openai" ? "openai_gptoss" : reasoning_of(template_source);
  }
  return std::shared_ptr<const OutputFormat>(
      new OutputFormat(std::move(tools), std::move(reasoning), std::move(is_control))
  );
}

std::optional<ThinkSplitter> OutputFormat::make_splitter(
    std::string_view prompt, std::optional<std::string_view> continued
) const {
  if (reasoning_ == kNone || reasoning_ == "openai_gptoss" || tool_call_ == "openai") return {};
  const bool is_mistral = reasoning_ == "mistral";
  const std::string open = is_mistral ? "[THINK]" : "<think>";
  const std::string close = is_mistral ? "[/THINK]" : "</think>";
  // R1 thinks always, and of older templates it is the model that should write the marker but may
  // not, as in vLLM. A prompt that has closed the reasoning wants none.
  if (continued && !continued->empty()) {
    // The answer's beginning tells, as if the model had written it.
    const std::size_t opened = continued->rfind(open), closed = continued->rfind(close);
    const bool goes_on =
        opened != continued->npos && (closed == continued->npos || closed < opened);
    return ThinkSplitter(MarkerSet({open, close}, is_control_), goes_on);
  }
  const bool is_open = ends_with_marker(prompt, open) ||
                       (reasoning_ == "deepseek_r1" && !ends_with_marker(prompt, close));
  return ThinkSplitter(MarkerSet({open, close}, is_control_), is_open);
}

std::unique_ptr<CallParser> OutputFormat::make_calls(CallParserStart start, bool with_calls) const {
  if (tool_call_ == "openai" || reasoning_ == "openai_gptoss") {
    return make_harmony(start, with_calls && tool_call_ == "openai");
  }
  if (!with_calls || tool_call_ == kNone) return nullptr;
  if (tool_call_ == "mistral") return make_mistral_calls(start);
  if (tool_call_.starts_with("deepseek")) return make_deepseek_calls(start);
  if (tool_call_.starts_with("llama")) return make_llama_calls(start);
  if (tool_call_.starts_with("qwen3")) return make_xml_calls(start);
  return make_hermes_calls(start);
}

OutputParser OutputFormat::start(
    std::string_view prompt,
    std::shared_ptr<const DeclaredTools> tools,
    std::optional<std::string_view> continued
) const {
  const bool with_calls = tools != nullptr;
  return {
      make_splitter(prompt, continued), make_calls({is_control_, std::move(tools)}, with_calls)
  };
}

OutputParser::OutputParser(const OutputParser& other)
    : think_(other.think_),
      calls_(other.calls_ ? other.calls_->clone() : nullptr),
      reader_(other.reader_ ? other.reader_->clone() : nullptr),
      events_(other.events_),
      drop_space_(other.drop_space_) {}

OutputParser& OutputParser::operator=(const OutputParser& other) {
  return *this = OutputParser(other);
}

bool OutputParser::takes(std::string_view control_token) const {
  return (think_ && think_->takes(control_token)) || (calls_ && calls_->takes(control_token));
}

void OutputParser::pass(std::string_view text) {
  while (drop_space_ && !text.empty() && is_json_space(text.front())) text.remove_prefix(1);
  if (text.empty()) return;
  drop_space_ = false;
  if (calls_) {
    calls_->push_text(text, events_);
  } else {
    events_.content(text);
  }
}

void OutputParser::push_text(std::string_view text) {
  if (reader_) return reader_->push_text(text, events_);
  if (!think_ || think_->is_over()) {
    pass(text);
    return;
  }
  std::string passed;
  think_->push_text(text, events_, passed);
  drop_space_ = think_->is_over() && think_->was_reasoning();
  pass(passed);
}

void OutputParser::push_control(std::string_view token) {
  if (reader_) return reader_->push_added(token, events_);
  std::string passed;
  if (think_ && think_->takes(token)) {
    if (events_.in_call()) return;  // no place for reasoning
    think_->push_control(token, events_, passed);
    pass(passed);
    drop_space_ = think_->is_over() && think_->was_reasoning();
    return;
  }
  // Markup of a call ends reasoning that lacks its own end.
  if (think_ && !think_->is_over()) think_->close(events_, passed);
  pass(passed);
  if (calls_) calls_->push_control(token, events_);
}

void OutputParser::finish() {
  if (reader_) return reader_->finish(events_);
  std::string passed;
  if (think_ && !think_->is_over()) think_->close(events_, passed);
  pass(passed);
  if (calls_) calls_->finish(events_);
}

}  // namespace artery::codec
