#pragma once
// Parts of Chat Completions objects that events and responses share. Pure, any thread.

#include <span>
#include <string>
#include <string_view>

#include "codec/api/output_sink.h"

namespace artery::codec::api {

std::string_view chat_finish_reason(FinishReason reason);

// {"prompt_tokens":...,...}; reasoning tokens only where the answer is a thinking one.
void append_chat_usage(std::string& out, const AnswerUsage& usage, bool thinking);

}  // namespace artery::codec::api
