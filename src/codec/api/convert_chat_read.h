#pragma once
// A Chat Completions request as its JSON says it, typed but not judged: the fields in the order of
// the official package's declaration (which counts where an array stands for an object). Views of
// the body. Private to the Chat conversion.

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "codec/api/body.h"
#include "codec/api/conversation.h"
#include "codec/api/rules.h"

namespace artery::codec::api {

struct ChatPart {
  enum class Kind : std::uint8_t { kText, kImage, kFile };
  Kind kind = Kind::kText;
  std::string_view text;  // kText: the text; kImage: the URL
  ImageDetail detail = ImageDetail::kHigh;
  std::optional<std::string_view> file_id, file_data;  // kFile
};

struct ChatContent {
  bool given = false;                    // null or missing: not
  std::optional<std::string_view> text;  // a string; else parts
  std::vector<ChatPart> parts;
};

struct ChatCall {
  std::string_view id, name, arguments;
};

struct ChatMessage {
  Role role = Role::kUser;
  ChatContent content;
  std::optional<std::string_view> reasoning;
  std::optional<std::vector<ChatCall>> calls;
  bool is_prefix = false;
  std::string_view call_id;
};

struct ChatTool {
  std::string_view name;
  std::optional<std::string_view> description;
  const Json* parameters = nullptr;
  std::optional<bool> strict;
};

struct ChatRequest {
  std::vector<ChatMessage> messages;
  std::string_view model;
  std::optional<float> frequency_penalty, presence_penalty, temperature, top_p;
  std::optional<bool> logprobs, stream, parallel_calls, include_usage;
  std::optional<std::uint64_t> top_logprobs, max_tokens, n, seed;
  std::optional<std::string_view> stop;  // a single one
  std::vector<std::string_view> stops;   // a list
  bool has_stream_options = false, has_format = false;
  ResponseFormat format = ResponseFormat::kText;
  const Json* schema = nullptr;  // kJsonSchema
  bool is_schema_strict = false;
  std::string_view regex;  // kRegex
  std::vector<ChatTool> tools;
  ToolChoiceWish tool_choice;
  std::optional<EffortWish> effort;
  std::optional<ThinkingType> thinking;
  // Rules::kServing only
  std::string_view user, prompt_cache_key;
};

// What is wrong is kept in `body`. kServing: more roles, parts and spellings are understood.
ChatRequest read_chat_request(Body& body, Rules rules);

}  // namespace artery::codec::api
