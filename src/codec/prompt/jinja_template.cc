#include "codec/prompt/jinja_template.h"

#include <boost/json/serialize.hpp>
#include <utility>

#include "codec/prompt/builtin_forms.h"
#include "codec/prompt/internal/artery_bridge.h"

namespace artery::codec {
namespace {

ArteryBytes bytes(std::string_view text) { return {text.data(), text.size()}; }

// What the bridge returned, freed with the object.
class Output {
 public:
  Output() = default;
  Output(const Output&) = delete;
  Output& operator=(const Output&) = delete;
  ~Output() {
    if (value_.text.data != nullptr) artery_template_output_free(&value_);
  }

  ArteryTemplateOutput* slot() { return &value_; }
  const ArteryTemplateOutput& operator*() const { return value_; }
  std::string text() const { return {value_.text.data, value_.text.size}; }

 private:
  ArteryTemplateOutput value_ = {};
};

std::string failure_text(const Output& output) {
  if ((*output).status == kArteryRaised) {
    return fmt::format("the chat template refused the messages: {}", output.text());
  }
  if ((*output).line == 0) return fmt::format("chat template: {}", output.text());
  return fmt::format("chat template, line {}: {}", (*output).line, output.text());
}

std::string message_json(const ChatMessage& message) {
  // Boost's serialize escapes a string as a JSON text; it keeps the bytes of UTF-8 as they are.
  return fmt::format(
      "{{\"role\":{},\"content\":{}}}",
      boost::json::serialize(boost::json::string_view(message.role)),
      boost::json::serialize(boost::json::string_view(message.content))
  );
}

class JinjaTemplate final : public ChatTemplate {
 public:
  JinjaTemplate(std::string source, ArteryTemplate* compiled)
      : source_(std::move(source)), compiled_(compiled) {}
  ~JinjaTemplate() override { artery_template_free(compiled_); }
  JinjaTemplate(const JinjaTemplate&) = delete;
  JinjaTemplate& operator=(const JinjaTemplate&) = delete;

  Result<RenderedPrompt> render(const ChatInput& input) const override {
    std::vector<std::string> made(input.messages.size());
    std::vector<ArteryBytes> messages;
    messages.reserve(input.messages.size());
    for (std::size_t i = 0; i < input.messages.size(); ++i) {
      const ChatMessage& message = input.messages[i];
      if (message.json.empty()) made[i] = message_json(message);
      messages.push_back(bytes(message.json.empty() ? made[i] : message.json));
    }
    const std::string now = input.now.empty() ? local_time_text() : input.now;
    const ArteryTemplateInput request = {
        .messages = messages.data(),
        .message_count = messages.size(),
        .tools = bytes(input.tools_json),
        .documents = bytes(input.documents_json),
        .kwargs = bytes(input.kwargs_json),
        .now = bytes(now),
        .add_generation_prompt = input.add_generation_prompt,
        .continue_final_message = input.continue_final_message,
        .as_sent = input.as_sent,
    };
    Output output;
    artery_template_render(compiled_, &request, output.slot());
    if ((*output).status != kArteryOk) {
      return fail_field("messages", "{}", failure_text(output));
    }
    RenderedPrompt prompt = {.text = output.text(), .literal = {}};
    prompt.literal.reserve((*output).literal_count);
    for (std::size_t i = 0; i < (*output).literal_count; ++i) {
      prompt.literal.push_back({(*output).literal[i].begin, (*output).literal[i].end});
    }
    return prompt;
  }

  std::string_view source() const override { return source_; }

 private:
  std::string source_;
  ArteryTemplate* compiled_;
};

}  // namespace

Result<std::unique_ptr<ChatTemplate>> make_jinja(std::string_view source, TemplateTokens tokens) {
  std::vector<ArteryBytes> control;
  control.reserve(tokens.control.size());
  for (const std::string& text : tokens.control) control.push_back(bytes(text));
  Output output;
  ArteryTemplate* compiled = artery_template_compile(
      bytes(source),
      bytes(tokens.bos),
      bytes(tokens.eos),
      control.data(),
      control.size(),
      output.slot()
  );
  if (compiled == nullptr) return fail(Code::kBadFile, "{}", failure_text(output));
  return std::make_unique<JinjaTemplate>(std::string(source), compiled);
}

}  // namespace artery::codec
