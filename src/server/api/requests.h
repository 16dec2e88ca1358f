#pragma once
// The generation requests as typed, checked values: request JSON ends here. Every wrong value is
// kInvalidArgument (or kUnsupported) naming its field; unknown fields are ignored; known fields
// that cannot be honoured are refused by name. Pure functions, any thread.

#include <boost/json/fwd.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "codec/prompt/chat_template.h"
#include "engine/engine.h"
#include "kvstore/types.h"
#include "server/api/json_reader.h"

namespace artery::server::api {

constexpr int kChoicesMax = 128;     // n
constexpr int kPromptsMax = 1024;    // prompts of one completion request
constexpr int kStopStringsMax = 16;  // stop
constexpr int kLogprobsMax = 20;
constexpr std::int64_t kCompletionTokensDefault = 16;  // OpenAI's default of /v1/completions

struct GenerateParams {
  std::string model;  // empty: the one that is served
  int n = 1;
  std::int64_t max_tokens = -1;     // -1: all that fits
  engine::SamplingParams sampling;  // all but seed (when !has_seed) and stop_ids
  bool has_seed = false;
  std::vector<std::string> stops;
  bool include_stop = false;  // include_stop_str_in_output
  std::vector<TokenId> stop_token_ids;
  bool ignore_eos = false;
  bool skip_special = true;
  int logprobs = -1;  // -1: none; else how many alternatives are shown
  bool echo = false;
  bool stream = false;
  bool include_usage = false;
  bool continuous_usage = false;
  bool timings = false;
  std::string cache_salt;
  std::optional<kvstore::TtlClass> cache_asked;             // cache_ttl, cache_control
  kvstore::TtlClass cache_seen = kvstore::TtlClass::kHour;  // as the conversation looks
  int priority = 0;
  bool has_priority = false;
};

struct ChatRequest {
  GenerateParams params;
  codec::ChatInput input;
  bool parallel_calls = true;
  bool include_reasoning = true;
};

struct PromptInput {
  bool is_text = true;
  std::string text;
  std::vector<TokenId> ids;
};

struct CompletionRequest {
  GenerateParams params;
  std::string suffix;  // empty: none; else the prompts are texts and what is between is asked for
  std::vector<PromptInput> prompts;  // at least one
};

struct TokenizeRequest {
  std::string model;
  bool is_chat = false;
  std::string prompt;
  codec::ChatInput input;  // is_chat
  bool add_special = true;
  bool return_token_strs = false;
};

struct DetokenizeRequest {
  std::string model;
  std::vector<TokenId> tokens;
  std::optional<bool> skip_special;  // absent: the inverse of /tokenize
};

// `vocab_size`: ids in the request must be below it.
Result<ChatRequest> read_chat(const boost::json::value& body, std::int64_t vocab_size);
// All but the conversation, which another reader takes.
Result<ChatRequest> read_chat_settings(const boost::json::value& body, std::int64_t vocab_size);
Result<CompletionRequest> read_completion(const boost::json::value& body, std::int64_t vocab_size);
Result<TokenizeRequest> read_tokenize(const boost::json::value& body);
Result<DetokenizeRequest> read_detokenize(const boost::json::value& body, std::int64_t vocab_size);

// Shared by the readers above.
Result<GenerateParams> read_params(const Fields& body, std::int64_t vocab_size);
Result<codec::ChatInput> read_chat_input(const Fields& body);
Result<std::vector<TokenId>> read_token_ids(
    const boost::json::array& values, const std::string& path, std::int64_t vocab_size
);

}  // namespace artery::server::api
