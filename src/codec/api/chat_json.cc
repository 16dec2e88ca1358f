#include "codec/api/chat_json.h"

#include <algorithm>

#include "codec/api/json_out.h"

namespace artery::codec::api {

std::string_view chat_finish_reason(FinishReason reason) {
  switch (reason) {
    case FinishReason::kLength:
      return "length";
    case FinishReason::kContentFilter:
      return "content_filter";
    case FinishReason::kToolCalls:
      return "tool_calls";
    case FinishReason::kStop:
    case FinishReason::kStopSequence:
    case FinishReason::kEndOfStream:
      break;
  }
  return "stop";
}

void append_chat_usage(std::string& out, const AnswerUsage& usage, bool thinking) {
  const auto put = [&](std::string_view key, std::int64_t value) {
    out += key;
    put_json_int(out, value);
  };
  const std::int64_t prompt = usage.prompt.prompt_tokens, hit = usage.prompt.cache_hit_tokens;
  put(R"({"prompt_tokens":)", prompt);
  put(R"(,"completion_tokens":)", usage.completion_tokens);
  put(R"(,"total_tokens":)", prompt + usage.completion_tokens);
  put(R"(,"prompt_tokens_details":{"cached_tokens":)", hit);
  out += '}';
  if (thinking && usage.reasoning_tokens) {
    put(R"(,"completion_tokens_details":{"reasoning_tokens":)", *usage.reasoning_tokens);
    out += '}';
  }
  put(R"(,"prompt_cache_hit_tokens":)", hit);
  put(R"(,"prompt_cache_miss_tokens":)", std::max<std::int64_t>(0, prompt - hit));
  out += '}';
}

}  // namespace artery::codec::api
