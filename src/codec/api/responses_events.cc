#include <utility>

#include "codec/api/generators.h"
#include "codec/api/responses_response.h"
#include "codec/api/responses_stream.h"

namespace artery::codec::api {

namespace {

template <class Base>
class ResponsesSink : public Base {
 public:
  explicit ResponsesSink(ResponsesStream stream) : stream_(std::move(stream)) {}
  void start(const PromptUsage&, const std::optional<std::string>&) override { stream_.start(); }
  void reasoning(std::string_view text, std::span<const TokenLogprob>) override {
    stream_.reasoning(text);
  }
  void content(std::string_view text, std::span<const TokenLogprob> logprobs) override {
    stream_.content(text, logprobs);
  }
  void begin_call(std::string_view name, std::string_view id) override {
    stream_.begin_call(name, id);
  }
  void arguments(std::string_view text) override { stream_.arguments(text); }
  void finish(const AnswerFinish& finish) override { stream_.finish(finish); }

 protected:
  ResponsesStream stream_;
};

class Generator : public ResponsesSink<EventGenerator> {
 public:
  using ResponsesSink::ResponsesSink;
  std::vector<ApiEvent> take() override { return stream_.take(); }
  std::unique_ptr<EventGenerator> clone() const override {
    return std::make_unique<Generator>(*this);
  }
};

class Builder : public ResponsesSink<ResponseBuilder> {
 public:
  using ResponsesSink::ResponsesSink;
  std::string json() const override { return stream_.response(); }
  std::unique_ptr<ResponseBuilder> clone() const override {
    return std::make_unique<Builder>(*this);
  }
};

}  // namespace

std::unique_ptr<EventGenerator> responses_events(ResponsesAnswer answer) {
  return std::make_unique<Generator>(ResponsesStream(std::move(answer), true));
}

std::unique_ptr<ResponseBuilder> responses_response(ResponsesAnswer answer) {
  return std::make_unique<Builder>(ResponsesStream(std::move(answer), false));
}

std::string created_response(const ResponsesAnswer& answer) {
  ResponseFacts facts;
  facts.created_at = answer.head.ids->unix_time_s();
  return responses_object(answer, facts);
}

}  // namespace artery::codec::api
