#pragma once
// Messages to prompt text. A model's Jinja template runs in the Rust bridge (minijinja); ChatML and
// the Llama forms are built in, so that a build without Rust still chats. Immutable after
// construction, any thread.

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "codec/tokenizer.h"

namespace artery::codec {

struct ChatMessage {
  std::string role;
  std::string content;  // text, parts joined; what the built-in forms use
  std::string json;  // the whole message as a JSON object, what a Jinja template sees; empty: made
                     // of the two above
};

struct ChatInput {
  std::vector<ChatMessage> messages;
  std::string tools_json;      // a JSON array, or empty
  std::string documents_json;  // a JSON array, or empty
  std::string kwargs_json;     // a JSON object of further template variables, or empty
  bool add_generation_prompt = true;
  bool continue_final_message = false;
  std::string now;  // "2026-07-26 12:34:56" for strftime_now; empty: the wall clock
  // The Jinja template sees the messages as transformers 5.24 would show them. Otherwise shapes
  // that clients send are evened out first: tool arguments given as the text of a JSON object
  // become the object (FR-B1); content null, missing or [] becomes "", and text parts are joined
  // unless the template knows parts (FR-C3).
  bool as_sent = false;
};

// `literal` marks the bytes that came from messages, tools and variables where they hold the text
// of a control token: the tokenizer must not turn those into control tokens (FR-B7).
struct RenderedPrompt {
  std::string text;
  std::vector<ByteRange> literal;
};

struct TemplateTokens {
  std::string bos, eos;              // texts of the tokens, empty when the vocabulary has none
  std::vector<std::string> control;  // texts of all control tokens
};

class ChatTemplate {
 public:
  virtual ~ChatTemplate() = default;
  // `source`: Jinja text, or "chatml" / "llama2" / "llama3" / "mistral" for a built-in form. A
  // Jinja source whose shape is a built-in form works without Rust too; another one is kUnsupported
  // there, with what to install. kBadFile when it does not parse (line and reason).
  static Result<std::unique_ptr<ChatTemplate>> make(std::string_view source, TemplateTokens tokens);

  // kInvalidArgument: the template refused the messages (raise_exception's text) or failed.
  virtual Result<RenderedPrompt> render(const ChatInput& input) const = 0;
  virtual std::string_view source() const = 0;
};

// True when this build has the Rust bridge.
bool has_jinja();

}  // namespace artery::codec
