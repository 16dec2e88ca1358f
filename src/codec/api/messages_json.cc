#include "codec/api/messages_json.h"

#include <algorithm>

#include "codec/api/json_out.h"

namespace artery::codec::api {
namespace {

std::string_view stop_reason(FinishReason reason) {
  switch (reason) {
    case FinishReason::kLength:
      return "max_tokens";
    case FinishReason::kContentFilter:
      return "refusal";
    case FinishReason::kToolCalls:
      return "tool_use";
    case FinishReason::kStopSequence:
      return "stop_sequence";
    case FinishReason::kStop:
    case FinishReason::kEndOfStream:
      break;
  }
  return "end_turn";
}

}  // namespace

void append_message_head(std::string& out, const AnswerHead& head) {
  out += R"({"id":)";
  put_json_string(out, head.id);
  out += R"(,"type":"message","role":"assistant","model":)";
  put_json_string(out, head.model);
  out += R"(,"content":[)";
}

void append_stop(std::string& out, const AnswerFinish* finish) {
  out += R"("stop_reason":)";
  if (finish == nullptr) {
    out += R"(null,"stop_sequence":null)";
    return;
  }
  put_json_string(out, stop_reason(finish->reason));
  out += R"(,"stop_sequence":)";
  if (finish->reason == FinishReason::kStopSequence) {
    put_json_string(out, finish->stop_sequence);
  } else {
    out += "null";
  }
}

void append_messages_usage(
    std::string& out, const PromptUsage& prompt, std::int64_t completion_tokens
) {
  out += R"({"input_tokens":)";
  put_json_int(out, std::max<std::int64_t>(0, prompt.prompt_tokens - prompt.cache_hit_tokens));
  out += R"(,"cache_creation_input_tokens":0,"cache_read_input_tokens":)";
  put_json_int(out, prompt.cache_hit_tokens);
  out += R"(,"output_tokens":)";
  put_json_int(out, completion_tokens);
  out += R"(,"service_tier":"standard"})";
}

}  // namespace artery::codec::api
