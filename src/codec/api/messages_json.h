#pragma once
// Parts of Messages objects that events and responses share. Pure, any thread.

#include <optional>
#include <string>
#include <string_view>

#include "codec/api/output_sink.h"

namespace artery::codec::api {

// {"id":...,"type":"message","role":"assistant","model":...,"content":[
void append_message_head(std::string& out, const AnswerHead& head);

// "stop_reason":...,"stop_sequence":...; no finish: both null.
void append_stop(std::string& out, const AnswerFinish* finish);

// {"input_tokens":...,...}
void append_messages_usage(
    std::string& out, const PromptUsage& prompt, std::int64_t completion_tokens
);

}  // namespace artery::codec::api
