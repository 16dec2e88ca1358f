#pragma once
// What a model's answer says, delta by delta, and who listens: the event generators and response
// builders of the three APIs. The parsers of every model family speak to the same sinks. Sinks: one
// thread at a time; clone() is a snapshot.

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace artery::codec::api {

struct PromptUsage {
  std::int64_t prompt_tokens = 0;
  std::int64_t cache_hit_tokens = 0;
};

struct AnswerUsage {
  PromptUsage prompt;
  std::int64_t completion_tokens = 0;
  // nullopt: not counted (no tokenizer, or thinking is off).
  std::optional<std::int64_t> reasoning_tokens;
};

// One token with its log probability. `bytes`: of the token; its shown text is these bytes, or
// \xNN byte by byte when they are no UTF-8 alone.
struct TokenLogprob {
  std::string bytes;
  float logprob = 0;  // out of range (NaN, infinities): shown as null
  std::vector<TokenLogprob> top;
};

enum class FinishReason : std::uint8_t {
  kStop,           // the model ended its turn
  kLength,         // max_tokens or the context
  kContentFilter,  //
  kToolCalls,      // ended after at least one complete call name
  kStopSequence,   // one of the request's came
  kEndOfStream     // the input ended without a reason
};

struct AnswerFinish {
  FinishReason reason = FinishReason::kStop;
  std::string stop_sequence;  // kStopSequence
  AnswerUsage usage;
};

class OutputSink {
 public:
  virtual ~OutputSink() = default;
  // Once, before everything else.
  virtual void start(const PromptUsage& usage, const std::optional<std::string>& fingerprint) = 0;
  // UTF-8; `logprobs` of the tokens behind it, or none.
  virtual void reasoning(std::string_view text, std::span<const TokenLogprob> logprobs) = 0;
  virtual void content(std::string_view text, std::span<const TokenLogprob> logprobs) = 0;
  // `id`: the call's; empty: the sink makes one.
  virtual void begin_call(std::string_view name, std::string_view id) = 0;
  virtual void arguments(std::string_view text) = 0;
  // Once, at the end.
  virtual void finish(const AnswerFinish& finish) = 0;
};

// A server-sent event: `name` empty for unnamed ones; `data` is one JSON object, compact, non-ASCII
// as it is, keys in the order of the official package.
struct ApiEvent {
  std::string name;
  std::string data;
};

// What ids and times a generator uses: fixed in tests, random and the clock in production.
class IdSource {
 public:
  virtual ~IdSource() = default;
  virtual std::string call_tail() = 0;     // 20 letters or digits and 4 digits
  virtual std::int64_t unix_time_s() = 0;  // created, created_at, completed_at
};
std::shared_ptr<IdSource> system_ids();

struct AnswerHead {
  std::string id;
  std::string model;
  std::shared_ptr<IdSource> ids = system_ids();
};

// recipe: the recorded behaviour, warts included. safe: the same but for the published list of
// mends (docs/codec.md).
enum class Faithfulness : std::uint8_t { kRecipe, kSafe };

class EventGenerator : public OutputSink {
 public:
  // Events since the last take().
  virtual std::vector<ApiEvent> take() = 0;
  virtual std::unique_ptr<EventGenerator> clone() const = 0;
};

// Puts the complete answer together.
class ResponseBuilder : public OutputSink {
 public:
  virtual std::string json() const = 0;  // the response object, compact
  virtual std::unique_ptr<ResponseBuilder> clone() const = 0;
};

}  // namespace artery::codec::api
