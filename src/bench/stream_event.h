#pragma once
// What one streamed chunk of /v1/completions or /v1/chat/completions says, as far as a load
// generator cares. Pure function, any thread.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace artery::bench {

struct StreamEvent {
  bool valid = false;     // JSON of a known shape
  bool token = false;     // carries generated text, or stands for a token without any
  bool finished = false;  // has a finish_reason
  std::string error;      // the error event's message
  std::optional<std::int64_t> prompt_tokens, output_tokens, cached_tokens;  // of a usage chunk
};

StreamEvent read_stream_event(std::string_view data);

// The message of an error body, or the start of the body itself.
std::string error_text(std::string_view body);

}  // namespace artery::bench
