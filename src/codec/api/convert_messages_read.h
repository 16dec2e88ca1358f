#pragma once
// A Messages request as its JSON says it, typed but not judged: the fields in the order of the
// official package's declaration (which counts where an array stands for an object). Views of the
// body. Private to the Messages conversion.

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "codec/api/body.h"
#include "codec/api/conversation.h"
#include "codec/api/rules.h"

namespace artery::codec::api {

struct MessagesImage {
  enum class Kind : std::uint8_t { kBase64, kUrl, kFile };
  Kind kind = Kind::kUrl;
  std::string_view mime;  // kBase64: "image/png", ...
  std::string_view data;  // the base64, the URL, or the file's id
};

struct MessagesBlock {
  enum class Kind : std::uint8_t {
    kText,
    kImage,
    kDocument,
    kThinking,
    kServerToolUse,
    kToolUse,
    kToolResult,
    kWebSearchResult,
    kToolAddition,
    kToolReference,  // inside results only
    kSearchResult,   // kServing: of the user's own
    kIgnored         // kServing: what means nothing to another model (redacted_thinking)
  };
  Kind kind = Kind::kText;
  std::string_view text;  // kText, kThinking; kDocument: its media type
  MessagesImage image;
  std::string_view id;    // kToolUse, kToolResult: of the call
  std::string_view name;  // kToolUse, kServerToolUse, kToolAddition, kToolReference
  const Json* input = nullptr;
  // kToolResult, kSearchResult: its blocks; a text is one.
  std::vector<MessagesBlock> parts;
};

struct MessagesMessage {
  Role role = Role::kUser;
  bool is_list = false;  // of blocks; a text is one block
  std::vector<MessagesBlock> blocks;
};

struct MessagesTool {
  std::optional<std::string_view> type;  // a server tool
  std::string_view name;
  std::optional<std::string_view> description;
  const Json* schema = nullptr;
  bool defer_loading = false;
};

struct MessagesRequest {
  std::string_view model;
  std::vector<MessagesMessage> messages;
  std::optional<std::vector<std::string_view>> system;
  std::optional<std::uint64_t> max_tokens;
  std::optional<float> temperature, top_p;
  std::vector<std::string_view> stops;
  std::optional<bool> stream;
  std::vector<MessagesTool> tools;
  ToolChoiceWish tool_choice;
  bool any_tool = false;  // tool_choice any, which recipe takes for auto
  std::optional<ThinkingType> thinking;
  std::optional<EffortWish> effort;
  // Rules::kServing only
  std::optional<std::uint64_t> top_k, min_tokens;
  std::optional<std::int64_t> seed;  // not Anthropic's, as the two below: named as in Chat
  std::optional<float> presence_penalty, frequency_penalty;
  bool ignore_eos = false, has_thread = false;
  bool parallel_calls = true;
  std::string_view user;
  std::optional<std::int64_t> cache_control_s;
  const Json* format_schema = nullptr;  // output_config.format, or the beta's output_format
};

// What is wrong is kept in `body`. kServing: more kinds of blocks and tools are understood.
MessagesRequest read_messages_request(Body& body, Rules rules);

}  // namespace artery::codec::api
