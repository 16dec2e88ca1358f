#pragma once
// The fixed texts of DeepSeek's prompts: facts of the format, byte for byte. The tool prompt is
// spelled with the default special tokens, which stand for whatever spelling the model has.

#include <span>
#include <string_view>

#include "codec/api/conversation.h"
#include "codec/api/convert.h"

namespace artery::codec::deepseek {

// Names of the call markup: V4 "tool_calls", V4.1 " calls".
struct CallTags {
  std::string_view block, invoke, parameter;
};
const CallTags& call_tags(api::ModelVersion version);

// What thinking begins the prompt with; empty: nothing.
std::string_view effort_text(api::ModelVersion version, api::Effort effort);

// The tool prompt in pieces. kDsml, kThink and kThinkEnd are special tokens, kBlock, kInvoke and
// kParameter the tags, kSchemas the lines of the tools.
enum class ToolPiece { kText, kDsml, kThink, kThinkEnd, kBlock, kInvoke, kParameter, kSchemas };
struct ToolPromptPiece {
  ToolPiece kind;
  std::string_view text = {};
};
std::span<const ToolPromptPiece> tool_prompt();

inline constexpr std::string_view kUpdatedSchemas = "\n\n### Updated Tool Schemas\n\n";
inline constexpr std::string_view kJsonObjectV4 =
    "\n\nYou are a helpful assistant designed to output JSON.\n## Response Format:\n\n"
    "Reply with JSON object ONLY.";
inline constexpr std::string_view kSchemaFormat =
    "\n\n## Response Format:\n\nYou MUST strictly adhere to the following schema to reply:\n";
inline constexpr std::string_view kJsonObject = "{\"type\": \"json_object\"}";

}  // namespace artery::codec::deepseek
