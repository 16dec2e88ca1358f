#pragma once
// Answers of the Messages and Responses APIs: what a model's output parser said, through the
// codec's event generators and response builders. As AnswerWriter: under its generation's lock.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "codec/api/output_sink.h"
#include "codec/tokenizer.h"
#include "server/api/answer_writer.h"

namespace artery::server::api {

struct SinkAnswer {
  bool is_stream = false;
  std::unique_ptr<codec::api::EventGenerator> events;     // a stream's
  std::unique_ptr<codec::api::ResponseBuilder> response;  // null: a stream nobody keeps
  std::int64_t prompt_tokens = 0;
  std::string fingerprint;
  ErrorShape errors = ErrorShape::kOpenAi;
  // Counts the tokens of the reasoning; null: they are not counted. Outlives the writer.
  const codec::Tokenizer* tokenizer = nullptr;
  // Called once with the whole response when the answer is complete; may be empty.
  std::function<void(std::string response_json)> on_complete;
};

std::unique_ptr<AnswerWriter> make_sink_writer(SinkAnswer answer);

}  // namespace artery::server::api
