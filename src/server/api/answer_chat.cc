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
    if (!part.ending) out.field("content", part.delta.text);
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
    out.field("content", choice.delta.text).key("refusal").null().end_object();
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
