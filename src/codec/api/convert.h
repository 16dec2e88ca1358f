#pragma once
// Requests of the three public APIs (Chat Completions, Messages, Responses) to a conversation and
// options, by the rules of deepseek-recipe 0.2.0 (../shared/golden/codec/README-requests.md has the
// record of them). Pure functions, any thread; bad input is a ConvertError, never a crash.

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "codec/api/conversation.h"

namespace artery::codec::api {

enum class Api : std::uint8_t { kChat, kMessages, kResponses };

enum class ModelVersion : std::uint8_t { kV4, kV41 };

enum class MissingReasoning : std::uint8_t { kFillEmpty, kReject };

enum class WebSearch : std::uint8_t { kDrop, kReject };

// recipe: exactly what the official package does. serving: what a server of any model wants: the
// model's name does not matter (`version` below counts), sampling values stay as sent, n,
// penalties, parallel_tool_calls and the like are honoured (see `Beyond`).
enum class Rules : std::uint8_t { kRecipe, kServing };

struct ConvertOptions {
  bool default_thinking = true;
  MissingReasoning missing_reasoning = MissingReasoning::kFillEmpty;
  WebSearch responses_web_search = WebSearch::kDrop;
  WebSearch messages_web_search = WebSearch::kReject;
  std::int64_t thinking_max_tokens = 393216;
  std::int64_t plain_max_tokens = 393216;
  // Names to versions, exact spelling.
  std::map<std::string, ModelVersion, std::less<>> versions = {
      {"DeepSeek-V4-Pro", ModelVersion::kV4}, {"DeepSeek-V4.1-Flash", ModelVersion::kV41}
  };
  std::string image_token = "<｜image｜>";  // what conversion puts in the text for an image
  Rules rules = Rules::kRecipe;
  ModelVersion serving_version = ModelVersion::kV41;  // kServing: whose conversion rules count
};

// What stands against a request. `stage`: kParse when the body is no JSON or has not the API's
// shape (the official wording of these is its JSON library's; ours names the field), kConvert for
// everything the rules refuse.
struct ConvertError {
  enum class Stage : std::uint8_t { kParse, kConvert };
  Stage stage = Stage::kConvert;
  int status = 400;
  std::string message;
  std::string type = "invalid_request_error";
  std::optional<std::string> param;
  std::string code = "invalid_value";  // as a server shows it; body() repeats the type
  // {"error":{"message":...,"type":...,"param":...,"code":...}}
  JsonText body() const;
};

// Which texts the engine may write. `schema`: JSON text for all kinds but kRegex (the pattern).
struct OutputConstraint {
  enum class Kind : std::uint8_t { kJson, kRegex, kToolCall, kToolCallRequired };
  Kind kind = Kind::kJson;
  std::string schema;
};

struct InferenceOptions {
  std::optional<std::int64_t> max_tokens;
  float temperature = 1;
  float top_p = 1;
  bool logprobs = false;
  std::optional<int> top_logprobs;
  std::optional<std::int64_t> seed;
  std::optional<OutputConstraint> constraint;
};

enum class InitialStage : std::uint8_t {
  kReasoningStart,         // a new turn's reasoning, leading newlines dropped
  kReasoningContinuation,  // of a prefix, newlines kept
  kContentContinuation     // the answer of a prefix, newlines kept
};

struct ParsingOptions {
  bool tool_calls = true;
  bool starts_in_calls = false;  // wins over `stage`
  bool json_output = false;
  std::optional<InitialStage> stage;  // nullopt: thinking is off
  std::vector<std::string> stops;
};

// Responses: what its response objects repeat of the request. JSON texts are as the response shows
// them. The second half: recipe always shows the values here, serving what was asked for.
struct ResponsesEcho {
  std::optional<std::string> instructions;
  std::optional<std::int64_t> max_output_tokens;
  float temperature = 1;
  float top_p = 1;
  int top_logprobs = 0;
  std::optional<std::string> user;
  JsonText reasoning = R"({"effort":null,"summary":null})";
  JsonText text = R"({"format":{"type":"text"},"verbosity":null})";
  JsonText tool_choice = R"("auto")";
  JsonText tools = "[]";

  double frequency_penalty = 0, presence_penalty = 0;
  bool parallel_tool_calls = true;
  std::optional<std::int64_t> max_tool_calls;
  std::optional<std::string> previous_response_id, prompt_cache_key, safety_identifier;
  bool store = false;
  JsonText metadata = "{}";
};

// "ns::name" (or "ns__name") -> {namespace, local name}
using NamespaceTools = std::map<std::string, std::pair<std::string, std::string>, std::less<>>;

// Fields of the APIs that recipe drops and a server honours (Rules::kServing).
struct Beyond {
  static constexpr std::uint64_t kMinTokensMax = 1u << 30;

  int n = 1;
  double presence_penalty = 0, frequency_penalty = 0;
  std::optional<double> temperature, top_p;  // as sent
  std::optional<int> top_k;                  // Messages
  bool ignore_eos = false;                   // vLLM's, of load generators; Messages, Responses
  int min_tokens = 0;                        // the same
  bool parallel_calls = true;                // parallel_tool_calls, disable_parallel_tool_use
  bool include_usage = false;                // stream_options
  std::optional<std::string> named_tool;     // tool_choice by name
  std::string user;
  std::string prompt_cache_key;
  // cache_control anywhere in a Messages request: the longest ttl, in seconds (300 by default).
  std::optional<std::int64_t> cache_control_s;
  // Responses
  std::optional<std::string> previous_response_id;
  std::optional<bool> store;  // absent: the API's default, true
  JsonText metadata = "{}";
  bool includes_encrypted_reasoning = false;
};

struct ConvertedRequest {
  Api api = Api::kChat;
  ModelVersion version = ModelVersion::kV41;
  std::string model;  // as sent
  bool stream = false;
  Conversation conversation;
  InferenceOptions inference;
  ParsingOptions parsing;
  std::vector<ImageSource> images;  // of all messages, in prompt order
  NamespaceTools namespaces;        // Responses
  bool has_apply_patch = false;     // Responses: the custom tool is declared
  bool has_tool_search = false;     // Responses: declared with execution client
  // Responses, kServing: custom tools beside apply_patch; offered as functions with one string.
  std::vector<std::string> custom_tools;
  ResponsesEcho echo;  // Responses
  Beyond beyond;

  // How many tokens may be generated after a prompt of that many: the request's wish or the
  // default (8,192; thinking 65,536; effort max 131,072) within the context.
  tl::expected<std::int64_t, ConvertError> resolve_max_tokens(
      std::int64_t prompt_tokens, std::int64_t context_limit
  ) const;
};

using Converted = tl::expected<ConvertedRequest, ConvertError>;

// `body`: the bytes that came. Dispatches to the three below.
Converted convert(Api api, std::string_view body, const ConvertOptions& options);

// What a Responses request says before it is converted, also of one that conversion refuses: the
// map of its own namespace tools (conversion adds those that tool searches found) and the echo. The
// error is of kParse.
struct ResponsesHead {
  std::string model;
  tl::expected<NamespaceTools, ConvertError> namespaces;
  ResponsesEcho echo;
};
tl::expected<ResponsesHead, ConvertError> responses_head(
    std::string_view body, const ConvertOptions& options
);

// "chat", "messages", "responses"
std::optional<Api> api_of(std::string_view name);

}  // namespace artery::codec::api
