#include "bench/stream_event.h"

#include <boost/json.hpp>

namespace artery::bench {
namespace json = boost::json;
namespace {

const json::value* member(const json::value* value, std::string_view name) {
  if (value == nullptr || !value->is_object()) return nullptr;
  const json::value* found =
      value->get_object().if_contains(json::string_view(name.data(), name.size()));
  return found == nullptr || found->is_null() ? nullptr : found;
}

// A count of tokens. What cannot be one is left out: it would spoil every sum of the report.
std::optional<std::int64_t> integer(const json::value* value) {
  constexpr std::int64_t kMost = 1'000'000'000;
  if (value == nullptr) return std::nullopt;
  if (value->is_int64() && value->get_int64() >= 0 && value->get_int64() <= kMost)
    return value->get_int64();
  if (value->is_double() && value->get_double() >= 0 &&
      value->get_double() <= static_cast<double>(kMost))
    return static_cast<std::int64_t>(value->get_double());
  return std::nullopt;
}

bool has_text(const json::value* value) {
  return value != nullptr && value->is_string() && !value->get_string().empty();
}

// The first chunk of a chat has a role and no text: that is no token.
bool is_token(const json::value* choice, bool finished) {
  if (has_text(member(choice, "text"))) return true;
  const json::value* delta = member(choice, "delta");
  for (const char* name : {"content", "reasoning_content", "reasoning"})
    if (has_text(member(delta, name))) return true;
  if (member(delta, "tool_calls") != nullptr) return true;
  if (finished || member(delta, "role") != nullptr) return false;
  // A token whose text is empty or still held back, from a server that tells of each.
  return member(choice, "text") != nullptr || member(delta, "content") != nullptr;
}

std::string message_of(const json::value* error) {
  if (error->is_string()) return std::string(error->get_string());
  const json::value* message = member(error, "message");
  if (message != nullptr && message->is_string()) return std::string(message->get_string());
  return json::serialize(*error);
}

}  // namespace

StreamEvent read_stream_event(std::string_view data) {
  StreamEvent event;
  unsigned char memory[8192];
  json::monotonic_resource resource(memory, sizeof memory);
  json::error_code code;
  const json::value value =
      json::parse(json::string_view(data.data(), data.size()), code, &resource);
  if (code || !value.is_object()) return event;
  event.valid = true;
  if (const json::value* error = member(&value, "error")) {
    event.error = message_of(error);
    if (event.error.empty()) event.error = "an error event without a message";
    return event;
  }
  if (const json::value* usage = member(&value, "usage")) {
    event.prompt_tokens = integer(member(usage, "prompt_tokens"));
    event.output_tokens = integer(member(usage, "completion_tokens"));
    event.cached_tokens = integer(member(member(usage, "prompt_tokens_details"), "cached_tokens"));
  }
  const json::value* choices = member(&value, "choices");
  if (choices == nullptr || !choices->is_array()) return event;
  for (const json::value& choice : choices->get_array()) {
    const bool finished = member(&choice, "finish_reason") != nullptr;
    event.finished |= finished;
    event.token |= is_token(&choice, finished);
  }
  return event;
}

std::string error_text(std::string_view body) {
  json::error_code code;
  const json::value value = json::parse(json::string_view(body.data(), body.size()), code);
  if (!code)
    if (const json::value* error = member(&value, "error")) return message_of(error);
  constexpr std::size_t kShown = 200;
  return std::string(body.substr(0, kShown));
}

}  // namespace artery::bench
