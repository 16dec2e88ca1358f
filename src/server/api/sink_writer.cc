#include "server/api/sink_writer.h"

#include <optional>
#include <utility>
#include <vector>

#include "server/api/json_writer.h"

namespace artery::server::api {
namespace {

using codec::api::ApiEvent;
using codec::api::OutputSink;
using codec::api::TokenLogprob;

TokenLogprob shown_as(const ShownToken& token) {
  TokenLogprob out{token.bytes, token.logprob, {}};
  for (const ShownToken& other : token.top) out.top.push_back(shown_as(other));
  return out;
}

// One delta has text, or reasoning, or a part of a call; a whole answer has all of them.
void tell(const Delta& delta, OutputSink& sink) {
  std::vector<TokenLogprob> logprobs;
  for (const ShownToken& token : delta.tokens) {
    if (token.is_content) logprobs.push_back(shown_as(token));
  }
  if (!delta.reasoning.empty()) sink.reasoning(delta.reasoning, {});
  if (!delta.text.empty()) sink.content(delta.text, logprobs);
  for (const CallDelta& call : delta.calls) {
    if (!call.name.empty()) sink.begin_call(call.name, call.id);
    if (!call.arguments.empty()) sink.arguments(call.arguments);
  }
}

codec::api::FinishReason reason_of(const Ending& ending) {
  using codec::api::FinishReason;
  if (ending.reason == "length") return FinishReason::kLength;
  if (ending.reason == "tool_calls") return FinishReason::kToolCalls;
  return ending.stop_string.empty() ? FinishReason::kStop : FinishReason::kStopSequence;
}

class SinkWriter final : public AnswerWriter {
 public:
  explicit SinkWriter(SinkAnswer answer) : answer_(std::move(answer)) {}

  // How much of the prompt was found stands in the first event.
  bool shows_progress() const override { return !started_; }

  std::string part(const ChoicePart& part, const Progress* now, bool) override {
    start(now == nullptr ? AnswerUsage() : now->usage);
    take(part);
    return events();
  }

  std::string end(const Progress& now) override {
    start(now.usage);
    finish(now.usage);
    std::string out = events();
    if (answer_.on_complete && answer_.response) answer_.on_complete(answer_.response->json());
    return out;
  }

  std::string failure(const ApiError& error) override {
    std::string out;
    append_event(out, "error", failure_json(error));
    return out;
  }

  std::string heartbeat() const override {
    return answer_.errors == ErrorShape::kAnthropic ? "event: ping\ndata: {\"type\": \"ping\"}\n\n"
                                                    : ": keep-alive\n\n";
  }

  std::string whole(const std::vector<ChoicePart>& choices, const Progress& now) override {
    start(now.usage);
    take(choices.front());
    finish(now.usage);
    std::string json = answer_.response->json();
    if (answer_.on_complete) answer_.on_complete(json);
    return json;
  }

  ErrorShape error_shape() const override { return answer_.errors; }

 private:
  template <typename Tell>
  void each(const Tell& say) {
    if (answer_.is_stream) say(static_cast<OutputSink&>(*answer_.events));
    if (answer_.response) say(static_cast<OutputSink&>(*answer_.response));
  }

  void start(const AnswerUsage& now) {
    if (std::exchange(started_, true)) return;
    const codec::api::PromptUsage usage{answer_.prompt_tokens, now.cached_tokens.value_or(0)};
    each([&](OutputSink& sink) { sink.start(usage, answer_.fingerprint); });
  }

  void take(const ChoicePart& part) {
    if (answer_.tokenizer != nullptr) reasoning_ += part.delta.reasoning;
    each([&](OutputSink& sink) { tell(part.delta, sink); });
    if (part.ending) ending_ = *part.ending;
  }

  void finish(const AnswerUsage& used) {
    codec::api::AnswerFinish finish;
    finish.reason = reason_of(ending_);
    finish.stop_sequence = ending_.stop_string;
    finish.usage.prompt = {used.prompt_tokens, used.cached_tokens.value_or(0)};
    finish.usage.completion_tokens = used.completion_tokens;
    if (answer_.tokenizer != nullptr) {
      finish.usage.reasoning_tokens =
          static_cast<std::int64_t>(answer_.tokenizer->encode(reasoning_, {}).size());
    }
    each([&](OutputSink& sink) { sink.finish(finish); });
  }

  std::string events() {
    std::string out;
    for (const ApiEvent& event : answer_.events->take()) {
      append_event(out, event.name, event.data);
      ++sent_;
    }
    return out;
  }

  std::string failure_json(const ApiError& error) const {
    if (answer_.errors == ErrorShape::kAnthropic) return error_json(error, answer_.errors);
    // The `error` event of OpenAI's Responses reference.
    JsonWriter out;
    out.begin_object().field("type", "error");
    error.code.empty() ? out.key("code").null() : out.field("code", error.code);
    out.field("message", error.message);
    error.param.empty() ? out.key("param").null() : out.field("param", error.param);
    out.field("sequence_number", sent_).end_object();
    return out.take();
  }

  SinkAnswer answer_;
  bool started_ = false;
  std::int64_t sent_ = 0;  // events
  std::string reasoning_;
  Ending ending_;
};

}  // namespace

std::unique_ptr<AnswerWriter> make_sink_writer(SinkAnswer answer) {
  return std::make_unique<SinkWriter>(std::move(answer));
}

}  // namespace artery::server::api
