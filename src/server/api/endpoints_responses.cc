// POST /v1/responses, GET and DELETE by id: OpenAI's Responses API on any model. Answers are kept
// unless `store` is false, so that a client may go on from one by its id.

#include <memory>
#include <string_view>
#include <utility>

#include "base/log.h"
#include "codec/api/generators.h"
#include "codec/api/responses_history.h"
#include "server/api/app.h"
#include "server/api/converted_input.h"
#include "server/api/json_writer.h"
#include "server/api/sink_writer.h"

namespace artery::server::api {
namespace {

using codec::api::Api;
using codec::api::ConvertedRequest;
using codec::api::ResponsesAnswer;

std::string tenant_of(const Call& call) {
  return call.holder ? call.holder->key.tenant : std::string();
}

std::int64_t now_s(const Call& call) { return call.clock->unix_ms() / 1000; }

std::string id_in(std::string_view path) { return std::string(path.substr(path.rfind('/') + 1)); }

ApiError no_response(const std::string& id) {
  return http_error(404, "the response \"" + id + "\" is not here (any more)");
}

// Keeps a finished answer; losing one costs a client its `previous_response_id`, not its answer.
std::function<void(std::string)> keeper(
    std::shared_ptr<ResponseStore> store, StoredResponse stored
) {
  return [store = std::move(store), stored = std::move(stored)](std::string response) mutable {
    // A response of our own making has items.
    stored.output = codec::api::output_items(response).value_or("[]");
    stored.response = std::move(response);
    if (const auto kept = store->put(stored, stored.created_s); !kept) {
      log_warn("response id={} is not stored: {}", stored.id, kept.error().message);
    }
  };
}

ResponsesAnswer answer_of(const ConvertedRequest& request) {
  ResponsesAnswer answer;
  answer.namespaces = request.namespaces;
  answer.has_apply_patch = request.has_apply_patch;
  answer.has_tool_search = request.has_tool_search;
  answer.custom_tools = request.custom_tools;
  answer.echo = request.echo;
  answer.faithfulness = codec::api::Faithfulness::kSafe;
  return answer;
}

}  // namespace

// The body with everything said before it, where it goes on from a stored response.
tl::expected<std::string, codec::api::ConvertError> App::continued(
    const Call& call, std::string body
) const {
  const std::int64_t now = now_s(call);
  const std::string tenant = tenant_of(call);
  const auto stored = [&](std::string_view id) -> std::optional<StoredResponse> {
    auto found = responses_->get(std::string(id), tenant, now);
    if (found) return std::move(*found);
    log_warn("response id={} cannot be read: {}", id, found.error().message);
    return std::nullopt;
  };
  codec::api::History history;
  if (const std::string previous = codec::api::previous_response_id(body); !previous.empty()) {
    const auto found = stored(previous);
    if (!found) {
      codec::api::ConvertError error;
      error.status = 404;
      error.type = "not_found_error";
      error.param = "previous_response_id";
      error.message = "previous_response_id \"" + previous +
                      "\" is not here (any more); send the whole conversation as input";
      return tl::unexpected<codec::api::ConvertError>(std::move(error));
    }
    history = {found->input, found->output};
  }
  const auto lookup = [&](std::string_view item) -> std::optional<std::string> {
    const auto id = codec::api::response_of_item(item);
    const auto found = id ? stored(*id) : std::nullopt;
    return found ? codec::api::item_with_id(found->output, item) : std::nullopt;
  };
  return codec::api::continued_body(history, body, lookup);
}

void App::responses(Call& call) {
  const auto now = live_or_refuse(call);
  if (!now) return;
  if (draining_) return reply_error(call, draining_error());
  const auto body = continued(call, take_body(call));
  if (!body) return reply_error(call, to_api_error(body.error()));
  const auto request = convert_or_refuse(*now, call, Api::kResponses, *body);
  if (!request) return;
  auto input = input_of(*now, *request);
  if (!input) return reply_error(call, input.error());
  const bool is_kept = request->beyond.store.value_or(true);
  StoredResponse stored;
  stored.tenant = tenant_of(call);
  stored.created_s = now_s(call);
  if (is_kept) stored.input = codec::api::input_items(*body).value_or("[]");

  input->id_prefix = "resp_";
  input->make_writer = [answer = answer_of(*request),
                        is_stream = request->stream,
                        is_kept,
                        tokens = static_cast<std::int64_t>(input->prompts.front().ids.size()),
                        tokenizer = now->serving->tokenizer.get(),
                        store = responses_,
                        stored = std::move(stored)](const AnswerHead& head) mutable {
    answer.head.id = head.id;
    answer.head.model = head.model;
    SinkAnswer sink;
    sink.is_stream = is_stream;
    if (is_stream) sink.events = codec::api::responses_events(answer);
    if (!is_stream || is_kept) sink.response = codec::api::responses_response(answer);
    sink.prompt_tokens = tokens;
    sink.tokenizer = tokenizer;
    if (is_kept) {
      stored.id = head.id;
      sink.on_complete = keeper(store, std::move(stored));
    }
    return make_sink_writer(std::move(sink));
  };
  begin_generation(call, now, input.take());
}

void App::count_input_tokens(Call& call) {
  const auto now = live_or_refuse(call);
  if (!now) return;
  const auto body = continued(call, take_body(call));
  if (!body) return reply_error(call, to_api_error(body.error()));
  const auto request = convert_or_refuse(*now, call, Api::kResponses, *body);
  if (!request) return;
  const auto input = input_of(*now, *request);
  if (!input) return reply_error(call, input.error());
  JsonWriter out;
  out.begin_object().field("object", "response.input_tokens");
  out.field("input_tokens", static_cast<std::int64_t>(input->prompts.front().ids.size()));
  out.end_object();
  reply_json(call, 200, out.take());
}

void App::get_response(Call& call) {
  if (call.request->query.find("stream=true") != std::string::npos) {
    ApiError error = http_error(400, "stream: a stored response comes whole; ask without it");
    error.param = "stream";
    return reply_error(call, error);
  }
  const std::string id = id_in(call.request->path);
  const auto found = responses_->get(id, tenant_of(call), now_s(call));
  if (!found) return reply_error(call, found.error());
  if (!*found) return reply_error(call, no_response(id));
  reply_json(call, 200, (*found)->response);
}

void App::delete_response(Call& call) {
  const std::string id = id_in(call.request->path);
  const auto removed = responses_->remove(id, tenant_of(call));
  if (!removed) return reply_error(call, removed.error());
  if (!*removed) return reply_error(call, no_response(id));
  JsonWriter out;
  out.begin_object().field("id", id).field("object", "response").field("deleted", true);
  out.end_object();
  reply_json(call, 200, out.take());
}

}  // namespace artery::server::api
