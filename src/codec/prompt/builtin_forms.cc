#include "codec/prompt/builtin_forms.h"

#include <array>
#include <ctime>
#include <utility>

namespace artery::codec {
namespace {

// What str.strip() of Python takes off, the ASCII part and the no-break spaces of UTF-8.
std::string_view strip(std::string_view text) {
  constexpr std::string_view kAscii = " \t\n\r\v\f\x1c\x1d\x1e\x1f";
  constexpr std::array<std::string_view, 19> kWide = {
      "\u0085",
      "\u00a0",
      "\u1680",
      "\u2000",
      "\u2001",
      "\u2002",
      "\u2003",
      "\u2004",
      "\u2005",
      "\u2006",
      "\u2007",
      "\u2008",
      "\u2009",
      "\u200a",
      "\u2028",
      "\u2029",
      "\u202f",
      "\u205f",
      "\u3000"
  };
  for (bool again = true; again && !text.empty();) {
    again = false;
    if (kAscii.find(text.front()) != std::string_view::npos) {
      text.remove_prefix(1);
      again = true;
      continue;
    }
    if (kAscii.find(text.back()) != std::string_view::npos) {
      text.remove_suffix(1);
      again = true;
      continue;
    }
    for (std::string_view space : kWide) {
      if (text.starts_with(space)) {
        text.remove_prefix(space.size());
        again = true;
      } else if (text.ends_with(space)) {
        text.remove_suffix(space.size());
        again = true;
      }
    }
  }
  return text;
}

// The prompt as it grows: the form's own text, and data that no control token may come of.
class Writer {
 public:
  Writer& own(std::string_view text) {
    prompt_.text += text;
    return *this;
  }
  Writer& data(std::string_view text) {
    if (text.empty()) return *this;
    const std::size_t begin = prompt_.text.size();
    prompt_.text += text;
    prompt_.literal.push_back({begin, prompt_.text.size()});
    return *this;
  }
  RenderedPrompt take() { return std::move(prompt_); }

 private:
  RenderedPrompt prompt_;
};

// "26 Jul 2026" of "2026-07-26 12:34:56"; empty when it is not of that shape.
std::string day_text(std::string_view now) {
  constexpr std::array<std::string_view, 12> kMonths = {
      "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"
  };
  if (now.size() < 10 || now[4] != '-' || now[7] != '-') return {};
  const int month = (now[5] - '0') * 10 + (now[6] - '0');
  if (month < 1 || month > 12) return {};
  const std::string_view name = kMonths[static_cast<std::size_t>(month - 1)];
  return fmt::format("{} {} {}", now.substr(8, 2), name, now.substr(0, 4));
}

class BuiltinTemplate final : public ChatTemplate {
 public:
  BuiltinTemplate(std::string source, FormShape shape, TemplateTokens tokens)
      : source_(std::move(source)), shape_(std::move(shape)), tokens_(std::move(tokens)) {}

  Result<RenderedPrompt> render(const ChatInput& input) const override {
    if (shape_.knows_tools && !input.tools_json.empty()) {
      return fail(
          Code::kUnsupported,
          "tools need this model's Jinja chat template, which is not in this build: install cargo "
          ">= 1.87 and rebuild"
      );
    }
    if (input.continue_final_message && input.messages.empty()) {
      return fail_field("messages", "continue_final_message: there is no message to continue");
    }
    Writer out;
    switch (shape_.form) {
      case Form::kChatMl:
        chatml(input, out);
        break;
      case Form::kLlama3:
        llama3(input, out);
        break;
      case Form::kLlama2:
        TRY(llama2(input, out));
        break;
      case Form::kMistral:
        TRY(mistral(input, out));
        break;
    }
    return out.take();
  }

  std::string_view source() const override { return source_; }

 private:
  // With continue_final_message the prompt ends with the last content.
  static bool ends_here(const ChatInput& input, std::size_t i) {
    return input.continue_final_message && i + 1 == input.messages.size();
  }
  static bool generates(const ChatInput& input) {
    return input.add_generation_prompt && !input.continue_final_message;
  }

  void chatml(const ChatInput& input, Writer& out) const {
    const auto& messages = input.messages;
    if (!shape_.default_system.empty() && !messages.empty() && messages[0].role != "system") {
      out.own("<|im_start|>system\n").own(shape_.default_system).own("<|im_end|>\n");
    }
    for (std::size_t i = 0; i < messages.size(); ++i) {
      out.own("<|im_start|>").data(messages[i].role).own("\n").data(messages[i].content);
      if (!ends_here(input, i)) out.own("<|im_end|>\n");
    }
    if (generates(input)) out.own("<|im_start|>assistant\n");
  }

  void llama3(const ChatInput& input, Writer& out) const {
    const auto& messages = input.messages;
    std::size_t i = 0;
    if (shape_.knowledge_header || !messages.empty()) out.own(tokens_.bos);
    if (shape_.knowledge_header) {
      const std::string now = input.now.empty() ? local_time_text() : input.now;
      out.own("<|start_header_id|>system<|end_header_id|>\n\n");
      out.own("Cutting Knowledge Date: December 2023\nToday Date: ");
      out.own(shape_.date.empty() ? day_text(now) : shape_.date).own("\n\n");
      if (!messages.empty() && messages[0].role == "system") {
        out.data(strip(messages[0].content));
        if (ends_here(input, 0)) return;
        i = 1;
      }
      out.own("<|eot_id|>");
    }
    for (; i < messages.size(); ++i) {
      out.own("<|start_header_id|>").data(messages[i].role).own("<|end_header_id|>\n\n");
      out.data(strip(messages[i].content));
      if (!ends_here(input, i)) out.own("<|eot_id|>");
    }
    if (generates(input)) out.own("<|start_header_id|>assistant<|end_header_id|>\n\n");
  }

  // Turns after an optional system message must be user, assistant, user, ...
  static Result<> check_turns(const ChatInput& input, std::size_t first) {
    for (std::size_t i = first; i < input.messages.size(); ++i) {
      if (input.messages[i].role != ((i - first) % 2 == 0 ? "user" : "assistant")) {
        return fail_field(
            "messages",
            "the chat template refused the messages: after the optional system message, "
            "conversation roles must alternate user/assistant/user/assistant/... (messages[{}])",
            i
        );
      }
    }
    return {};
  }

  Result<> llama2(const ChatInput& input, Writer& out) const {
    const auto& messages = input.messages;
    const std::size_t first = !messages.empty() && messages[0].role == "system" ? 1 : 0;
    TRY(check_turns(input, first));
    for (std::size_t i = first; i < messages.size(); ++i) {
      const std::string_view content = strip(messages[i].content);
      if (messages[i].role == "user") {
        out.own(tokens_.bos).own("[INST] ");
        if (i == first && first == 1) {
          out.own("<<SYS>>\n").data(messages[0].content).own("\n<</SYS>>\n\n");
        }
        out.data(content);
        if (!ends_here(input, i)) out.own(" [/INST]");
      } else {
        out.own(" ").data(content);
        if (!ends_here(input, i)) out.own(" ").own(tokens_.eos);
      }
    }
    return {};
  }

  Result<> mistral(const ChatInput& input, Writer& out) const {
    const auto& messages = input.messages;
    const std::size_t first = !messages.empty() && messages[0].role == "system" ? 1 : 0;
    TRY(check_turns(input, first));
    const std::string_view space = shape_.spaced ? " " : "";
    out.own(tokens_.bos);
    for (std::size_t i = first; i < messages.size(); ++i) {
      if (messages[i].role == "user") {
        out.own("[INST]").own(space);
        if (first == 1 && i + 1 == messages.size()) out.data(messages[0].content).own("\n\n");
        out.data(messages[i].content);
        if (!ends_here(input, i)) out.own(space).own("[/INST]");
      } else {
        out.own(space).data(messages[i].content);
        if (!ends_here(input, i)) out.own(tokens_.eos);
      }
    }
    return {};
  }

  std::string source_;
  FormShape shape_;
  TemplateTokens tokens_;
};

}  // namespace

std::unique_ptr<ChatTemplate> make_builtin(
    std::string source, FormShape shape, TemplateTokens tokens
) {
  return std::make_unique<BuiltinTemplate>(std::move(source), std::move(shape), std::move(tokens));
}

std::string local_time_text() {
  const std::time_t now = std::time(nullptr);
  std::tm parts = {};
  localtime_r(&now, &parts);
  std::array<char, 32> text = {};
  const std::size_t size = std::strftime(text.data(), text.size(), "%Y-%m-%d %H:%M:%S", &parts);
  return std::string(text.data(), size);
}

}  // namespace artery::codec
