#include <utility>

#include "server/api/answer.h"

namespace artery::server::api {
namespace {

void write_token(JsonWriter& out, const ShownToken& token) {
  out.field("token", token.text).key("logprob").number(token.logprob);
  out.key("bytes").begin_array();
  for (const char c : token.bytes) out.integer(static_cast<unsigned char>(c));
  out.end_array();
}

void write_logprobs(JsonWriter& out, const std::vector<ShownToken>& tokens) {
  out.key("logprobs").begin_object().key("content").begin_array();
  for (const ShownToken& token : tokens) {
    out.begin_object();
    write_token(out, token);
    out.key("top_logprobs").begin_array();
    for (const ShownToken& other : token.top) {
      out.begin_object();
      write_token(out, other);
      out.end_object();
    }
    out.end_array().end_object();
  }
  out.end_array().end_object();
}

// `with_index`: the form of a stream.
void write_calls(JsonWriter& out, const std::vector<CallDelta>& calls, bool with_index) {
  out.key("tool_calls").begin_array();
  for (const CallDelta& call : calls) {
    out.begin_object();
    if (with_index) out.field("index", call.index);
    if (!call.name.empty()) out.field("id", call.id).field("type", "function");
    out.key("function").begin_object();
    if (!call.name.empty()) out.field("name", call.name);
    out.field("arguments", call.arguments).end_object().end_object();
  }
  out.end_array();
}

void write_delta(JsonWriter& out, const Delta& delta) {
  if (!delta.calls.empty()) {
    write_calls(out, delta.calls, true);
  } else if (!delta.reasoning.empty()) {
    out.field("reasoning_content", delta.reasoning);
  } else {
    out.field("content", delta.text);
  }
}

class ChatFormat final : public AnswerFormat {
 public:
  using AnswerFormat::AnswerFormat;

  std::string opening_chunk(int index, const ChunkExtras& extras) const override {
    JsonWriter out;
    out.begin_object();
    write_head(out, chunk_object());
    out.key("choices").begin_array().begin_object();
    out.field("index", index).key("delta").begin_object();
    out.field("role", "assistant").field("content", "").end_object();
    out.key("logprobs").null().key("finish_reason").null();
    out.end_object().end_array();
    write_extras(out, extras);
    out.end_object();
    return out.take();
  }

  std::string chunk(const ChoicePart& part, const ChunkExtras& extras) const override {
    JsonWriter out;
    out.begin_object();
    write_head(out, chunk_object());
    out.key("choices").begin_array().begin_object();
    out.field("index", part.index).key("delta").begin_object();
    if (!part.ending) write_delta(out, part.delta);
    out.end_object();
    if (show_logprobs_ && !part.delta.tokens.empty()) {
      write_logprobs(out, part.delta.tokens);
    } else {
      out.key("logprobs").null();
    }
    write_ending(out, part.ending);
    out.end_object().end_array();
    write_extras(out, extras);
    out.end_object();
    return out.take();
  }

 protected:
  const char* chunk_object() const override { return "chat.completion.chunk"; }
  const char* answer_object() const override { return "chat.completion"; }
  void write_choice(JsonWriter& out, const ChoicePart& choice) const override {
    out.begin_object().field("index", choice.index);
    out.key("message").begin_object().field("role", "assistant");
    const Delta& delta = choice.delta;
    if (!delta.reasoning.empty()) out.field("reasoning_content", delta.reasoning);
    out.key("content");
    delta.text.empty() && !delta.calls.empty() ? out.null() : out.string(delta.text);
    out.key("refusal").null();
    if (!delta.calls.empty()) write_calls(out, delta.calls, false);
    out.end_object();
    if (show_logprobs_) {
      write_logprobs(out, choice.delta.tokens);
    } else {
      out.key("logprobs").null();
    }
    write_ending(out, choice.ending);
    out.end_object();
  }
};

}  // namespace

std::unique_ptr<AnswerFormat> make_chat_format(AnswerHead head, bool show_logprobs) {
  return std::make_unique<ChatFormat>(std::move(head), show_logprobs);
}

}  // namespace artery::server::api
