#pragma once
// One line of model output in the form of ../shared/golden/codec/outputs.jsonl: read, run through
// the processor and the generators, its events and response. One thread at a time.

#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "codec/api/convert.h"
#include "codec/api/json_tree.h"
#include "codec/api/output_sink.h"
#include "codec/deepseek/output_processor.h"
#include "codec/tokenizer.h"

namespace artery::cli {

struct OutputChunk {
  enum class Kind : std::uint8_t { kReady, kText, kTokens, kFinish };
  Kind kind = Kind::kText;
  std::optional<codec::api::PromptUsage> usage;
  std::optional<std::string> fingerprint;
  std::string text;
  std::int64_t token_count = 0;
  std::vector<TokenId> ids;
  std::optional<std::vector<codec::deepseek::IdLogprob>> logprobs;
  codec::deepseek::BackendFinish finish = codec::deepseek::BackendFinish::kStop;
};

struct OutputCase {
  codec::api::Api api = codec::api::Api::kChat;
  bool thinking = false;
  bool include_usage = false, continues_content = false;  // Chat
  codec::api::AnswerHead head;
  std::optional<std::string> signature;   // Messages
  codec::api::NamespaceTools namespaces;  // Responses, and the two below
  bool has_apply_patch = false, has_tool_search = false;
  codec::api::ResponsesEcho echo;
  codec::api::ParsingOptions parsing;
  codec::deepseek::SpecialTexts specials;
  bool wants_tokenizer = true;
  std::vector<OutputChunk> chunks;
  // Of the complete response, where they are not those of the events.
  std::string response_id, response_model;
  codec::api::PromptUsage prompt;
};

// kInvalidArgument: what is missing or of a wrong kind, or why the request in it is refused.
Result<OutputCase> read_output_case(const codec::api::Json& line);

Result<> push_chunk(
    codec::deepseek::OutputProcessor& processor,
    const OutputChunk& chunk,
    codec::api::OutputSink& sink
);

struct OutputRun {
  struct Event {
    std::size_t chunk = 0;
    codec::api::ApiEvent event;
  };
  std::vector<Event> events;
  std::optional<std::size_t> finished_after;
  std::vector<std::pair<std::size_t, std::string>> errors;  // by chunk
  std::string response;
};

// `tokenizer`: may be null.
OutputRun run_output_case(
    const OutputCase& output,
    const codec::Tokenizer* tokenizer,
    codec::api::Faithfulness faithfulness
);

// {"events":...,"finished_after":...,"done":...,"response":...,"error":...} without the brackets.
std::string run_json(const OutputCase& output, const OutputRun& run);

}  // namespace artery::cli
