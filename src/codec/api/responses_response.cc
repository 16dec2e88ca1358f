#include "codec/api/responses_response.h"

#include <fmt/core.h>

#include "codec/api/json_out.h"

namespace artery::codec::api {

namespace {

class ObjectWriter {
 public:
  void json(std::string_view key, std::string_view value) {
    out_ += out_.empty() ? '{' : ',';
    out_ += '"';
    out_ += key;
    out_ += "\":";
    out_ += value;
  }
  void text(std::string_view key, std::string_view value) {
    std::string quoted;
    put_json_string(quoted, value);
    json(key, quoted);
  }
  void maybe_text(std::string_view key, const std::optional<std::string>& value) {
    value ? text(key, *value) : json(key, "null");
  }
  void whole(std::string_view key, const std::optional<std::int64_t>& value) {
    json(key, value ? std::to_string(*value) : "null");
  }
  template <class Number>
  void number(std::string_view key, Number value) {
    std::string digits;
    put_json_number(digits, value);
    json(key, digits);
  }
  void flag(std::string_view key, bool value) { json(key, value ? "true" : "false"); }
  std::string take() { return std::move(out_) + '}'; }

 private:
  std::string out_;
};

std::string incomplete_details(const AnswerFinish* finish) {
  if (finish == nullptr) return "null";
  if (finish->reason == FinishReason::kLength) return R"({"reason":"max_output_tokens"})";
  if (finish->reason == FinishReason::kContentFilter) return R"({"reason":"content_filter"})";
  return "null";
}

std::string usage_json(const AnswerFinish* finish) {
  if (finish == nullptr) return "null";
  const AnswerUsage& usage = finish->usage;
  return fmt::format(
      R"({{"input_tokens":{},"input_tokens_details":{{"cached_tokens":{}}},"output_tokens":{},)"
      R"("output_tokens_details":{{"reasoning_tokens":{}}},"total_tokens":{}}})",
      usage.prompt.prompt_tokens,
      usage.prompt.cache_hit_tokens,
      usage.completion_tokens,
      usage.reasoning_tokens.value_or(0),
      usage.prompt.prompt_tokens + usage.completion_tokens
  );
}

}  // namespace

std::string responses_object(const ResponsesAnswer& answer, const ResponseFacts& facts) {
  const ResponsesEcho& echo = answer.echo;
  ObjectWriter out;
  out.text("id", answer.head.id);
  out.text("object", "response");
  out.whole("created_at", facts.created_at);
  out.text("status", facts.status);
  out.flag("background", false);
  out.whole("completed_at", facts.completed_at);
  out.json("content_filters", "null");
  out.json("error", facts.error);
  out.number("frequency_penalty", echo.frequency_penalty);
  out.json("incomplete_details", incomplete_details(facts.finish));
  out.maybe_text("instructions", echo.instructions);
  out.whole("max_output_tokens", echo.max_output_tokens);
  out.whole("max_tool_calls", echo.max_tool_calls);
  out.text("model", answer.head.model);
  out.json("moderation", "null");
  out.json("output", '[' + facts.output + ']');
  out.flag("parallel_tool_calls", echo.parallel_tool_calls);
  out.number("presence_penalty", echo.presence_penalty);
  out.maybe_text("previous_response_id", echo.previous_response_id);
  out.maybe_text("prompt_cache_key", echo.prompt_cache_key);
  out.json("prompt_cache_retention", "null");
  out.json("reasoning", echo.reasoning);
  out.maybe_text("safety_identifier", echo.safety_identifier);
  out.text("service_tier", "default");
  out.flag("store", echo.store);
  out.number("temperature", echo.temperature);
  out.json("text", echo.text);
  out.json("tool_choice", echo.tool_choice);
  out.json("tools", echo.tools);
  out.whole("top_logprobs", echo.top_logprobs);
  out.number("top_p", echo.top_p);
  out.text("truncation", "disabled");
  out.json("usage", usage_json(facts.finish));
  out.maybe_text("user", echo.user);
  out.json("metadata", echo.metadata);
  return out.take();
}

}  // namespace artery::codec::api
