#include "codec/prompt/form_shape.h"

#include <algorithm>
#include <array>
#include <string>

namespace artery::codec {
namespace {

bool has(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

template <std::size_t N>
bool has_any(std::string_view text, const std::array<std::string_view, N>& parts) {
  return std::any_of(parts.begin(), parts.end(), [&](auto part) { return has(text, part); });
}

// Jinja string literals write a line feed as \n or as itself.
std::string unescape_newlines(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (std::size_t i = 0; i < source.size(); ++i) {
    if (source.substr(i, 2) == "\\n") {
      out += '\n';
      ++i;
    } else {
      out += source[i];
    }
  }
  return out;
}

// The text that one string literal puts between the markers of a system turn.
std::string default_system_of(std::string_view text) {
  constexpr std::string_view kBegin = "<|im_start|>system\n";
  constexpr std::string_view kEnd = "<|im_end|>";
  for (std::size_t at = text.find(kBegin); at != std::string_view::npos;
       at = text.find(kBegin, at + 1)) {
    const std::string_view rest = text.substr(at + kBegin.size());
    const std::string_view inner = rest.substr(0, rest.find(kEnd));
    // A quote, brace or escape means that the literal ended or that an expression stands here.
    if (inner.size() < rest.size() && !inner.empty() &&
        inner.find_first_of("'\"{}\\") == std::string_view::npos) {
      return std::string(inner);
    }
  }
  return {};
}

std::optional<FormShape> chatml(std::string_view source) {
  // Anything that rewrites contents, thinks, or writes other turns is another form.
  constexpr std::array<std::string_view, 11> kForeign = {
      "trim",
      "strip",
      "split",
      "think",
      "bos_token",
      "reasoning",
      "replace",
      "im_middle",
      "strftime",
      "raise_exception",
      "functions."
  };
  const std::string text = unescape_newlines(source);
  if (!has(text, "<|im_start|>assistant\n") || !has(text, "<|im_end|>")) return std::nullopt;
  if (has_any(text, kForeign)) return std::nullopt;
  FormShape shape = {.form = Form::kChatMl, .default_system = default_system_of(text)};
  // A system turn of its own that is not understood: better none than another prompt.
  if (shape.default_system.empty() && has(text, "<|im_start|>system")) return std::nullopt;
  return shape;
}

std::optional<FormShape> llama3(std::string_view source) {
  constexpr std::array<std::string_view, 5> kForeign = {
      "Available functions", "recipient", "think", "<function", "reserved_special_token"
  };
  const std::string text = unescape_newlines(source);
  if (!has(text, "<|start_header_id|>assistant<|end_header_id|>\n\n") || !has(text, "<|eot_id|>") ||
      !has(text, "trim") || has_any(text, kForeign)) {
    return std::nullopt;
  }
  FormShape shape = {.form = Form::kLlama3};
  if (!has(text, "Today Date: ")) return shape;
  if (!has(text, "Cutting Knowledge Date: December 2023\n")) return std::nullopt;
  shape.knowledge_header = true;
  if (has(text, "strftime_now(\"%d %b %Y\")")) return shape;
  constexpr std::string_view kDate = "set date_string = \"";
  const std::size_t at = text.find(kDate);
  if (at == std::string::npos) return std::nullopt;
  const std::size_t begin = at + kDate.size();
  shape.date = text.substr(begin, text.find('"', begin) - begin);
  return shape;
}

std::optional<FormShape> inst(std::string_view source) {
  if (!has(source, "[/INST]") || has(source, "[SYSTEM_PROMPT]")) return std::nullopt;
  if (has(source, "<<SYS>>")) return FormShape{.form = Form::kLlama2};
  const bool spaced = has(source, "[INST] ") && has(source, " [/INST]");
  return FormShape{.form = Form::kMistral, .spaced = spaced};
}

}  // namespace

std::optional<FormShape> shape_by_name(std::string_view name) {
  if (name == "chatml") return FormShape{.form = Form::kChatMl};
  if (name == "llama2") return FormShape{.form = Form::kLlama2};
  if (name == "llama3") return FormShape{.form = Form::kLlama3};
  if (name == "mistral") return FormShape{.form = Form::kMistral};
  return std::nullopt;
}

std::optional<FormShape> shape_of_source(std::string_view source) {
  std::optional<FormShape> shape = chatml(source);
  if (!shape) shape = llama3(source);
  if (!shape) shape = inst(source);
  if (shape) shape->knows_tools = has(source, "tools");
  return shape;
}

}  // namespace artery::codec
