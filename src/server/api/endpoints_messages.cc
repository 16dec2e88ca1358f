// POST /v1/messages and /v1/messages/count_tokens: Anthropic's API on any model.

#include <memory>
#include <utility>

#include "codec/api/generators.h"
#include "server/api/app.h"
#include "server/api/converted_input.h"
#include "server/api/json_writer.h"
#include "server/api/sink_writer.h"

namespace artery::server::api {

using codec::api::Api;
using codec::api::ConvertedRequest;

std::optional<ConvertedRequest> App::convert_or_refuse(
    const Live& live, const Call& call, Api api, std::string_view body
) const {
  auto converted = codec::api::convert(api, body, serving_options(*live.serving));
  if (converted) return std::move(*converted);
  reply_error(call, to_api_error(converted.error()));
  return std::nullopt;
}

Result<GenerationInput> App::input_of(const Live& live, const ConvertedRequest& request) const {
  TRY(check_model(live, request.model));
  return generation_input(request, *live.serving, {live.prompt_bytes_max, live.max_model_len});
}

void App::messages(Call& call) {
  const auto now = live_or_refuse(call);
  if (!now) return;
  if (draining_) return reply_error(call, draining_error());
  const auto request = convert_or_refuse(*now, call, Api::kMessages, take_body(call));
  if (!request) return;
  auto input = input_of(*now, *request);
  if (!input) return reply_error(call, input.error());
  const auto tokens = static_cast<std::int64_t>(input->prompts.front().ids.size());
  input->make_writer = [is_stream = request->stream, tokens](const AnswerHead& head) {
    codec::api::MessagesAnswer answer;  // a thinking block comes with the first thought
    answer.head.id = head.id;
    answer.head.model = head.model;
    answer.faithfulness = codec::api::Faithfulness::kSafe;
    SinkAnswer sink;
    sink.is_stream = is_stream;
    if (is_stream) {
      sink.events = codec::api::messages_events(std::move(answer));
    } else {
      sink.response = codec::api::messages_response(std::move(answer));
    }
    sink.prompt_tokens = tokens;
    sink.errors = ErrorShape::kAnthropic;
    return make_sink_writer(std::move(sink));
  };
  input->id_prefix = "msg_";
  begin_generation(call, now, input.take());
}

void App::count_tokens(Call& call) {
  const auto now = live_or_refuse(call);
  if (!now) return;
  const auto request = convert_or_refuse(*now, call, Api::kMessages, take_body(call));
  if (!request) return;
  const auto input = input_of(*now, *request);
  if (!input) return reply_error(call, input.error());
  JsonWriter out;
  out.begin_object();
  out.field("input_tokens", static_cast<std::int64_t>(input->prompts.front().ids.size()));
  out.end_object();
  reply_json(call, 200, out.take());
}

}  // namespace artery::server::api
