#pragma once
// Calls in DeepSeek's markup (DSML), as prompts show past ones (V4: in the order of their ids).
// Pure, any thread; linear but for that order.

#include <span>

#include "codec/api/conversation.h"
#include "codec/api/json_style.h"
#include "codec/deepseek/prompt_texts.h"
#include "codec/deepseek/prompt_writer.h"

namespace artery::codec::deepseek {

// How JSON inside prompts is spelled.
api::JsonStyle json_style(api::ModelVersion version);

// The whole block, without blanks around it.
void render_calls(
    PromptWriter& out, std::span<const api::ToolCall> calls, api::ModelVersion version
);

}  // namespace artery::codec::deepseek
