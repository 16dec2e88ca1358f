#include <algorithm>
#include <utility>

#include "server/api/answer.h"

namespace artery::server::api {
namespace {

// token -> log probability, the chosen token among them, as OpenAI's legacy form has it.
void write_top(JsonWriter& out, const ShownToken& token) {
  if (!token.has_logprob) {
    out.null();
    return;
  }
  out.begin_object();
  bool has_chosen = false;
  for (std::size_t i = 0; i < token.top.size(); ++i) {
    const ShownToken& other = token.top[i];
    // Two ids can have one text; JSON keys should not repeat, the better one stays.
    const bool repeated = std::any_of(
        token.top.begin(),
        token.top.begin() + static_cast<std::ptrdiff_t>(i),
        [&](const ShownToken& earlier) { return earlier.text == other.text; }
    );
    if (repeated) continue;
    out.key(other.text).number(other.logprob);
    has_chosen = has_chosen || other.text == token.text;
  }
  if (!has_chosen) out.key(token.text).number(token.logprob);
  out.end_object();
}

void write_logprobs(JsonWriter& out, const std::vector<ShownToken>& tokens) {
  out.key("logprobs").begin_object();
  out.key("tokens").begin_array();
  for (const ShownToken& token : tokens) out.string(token.text);
  out.end_array().key("token_logprobs").begin_array();
  for (const ShownToken& token : tokens) {
    token.has_logprob ? out.number(token.logprob) : out.null();
  }
  out.end_array().key("top_logprobs").begin_array();
  for (const ShownToken& token : tokens) write_top(out, token);
  out.end_array().key("text_offset").begin_array();
  for (const ShownToken& token : tokens) out.integer(token.text_offset);
  out.end_array().end_object();
}

class CompletionFormat final : public AnswerFormat {
 public:
  using AnswerFormat::AnswerFormat;

  std::string opening_chunk(int, const ChunkExtras&) const override { return {}; }

  std::string chunk(const ChoicePart& part, const ChunkExtras& extras) const override {
    JsonWriter out;
    out.begin_object();
    write_head(out, chunk_object());
    out.key("choices").begin_array();
    write_part(out, part, show_logprobs_ && !part.delta.tokens.empty());
    out.end_array();
    write_extras(out, extras);
    out.end_object();
    return out.take();
  }

 protected:
  const char* chunk_object() const override { return "text_completion"; }
  const char* answer_object() const override { return "text_completion"; }
  void write_choice(JsonWriter& out, const ChoicePart& choice) const override {
    write_part(out, choice, show_logprobs_);
  }

 private:
  static void write_part(JsonWriter& out, const ChoicePart& part, bool with_logprobs) {
    out.begin_object().field("index", part.index).field("text", part.delta.text);
    if (with_logprobs) {
      write_logprobs(out, part.delta.tokens);
    } else {
      out.key("logprobs").null();
    }
    write_ending(out, part.ending);
    out.end_object();
  }
};

}  // namespace

std::unique_ptr<AnswerFormat> make_completion_format(AnswerHead head, bool show_logprobs) {
  return std::make_unique<CompletionFormat>(std::move(head), show_logprobs);
}

}  // namespace artery::server::api
