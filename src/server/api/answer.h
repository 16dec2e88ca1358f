#pragma once
// Deltas to the JSON of an answer: one format for chat, one for completions. Immutable, any
// thread; knows no sockets and no engine calls.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "kvstore/types.h"
#include "server/api/choice_decoder.h"
#include "server/api/json_writer.h"

namespace artery::server::api {

struct AnswerHead {
  std::string id;
  std::int64_t created = 0;  // seconds since 1970
  std::string model;
  std::string system_fingerprint;
};

// How long the prefix is kept, where the request asked for a time.
struct CachePromise {
  kvstore::TtlClass ttl = kvstore::TtlClass::kHour;
  std::int64_t until_s = 0;  // unix seconds; 0: refused
};

struct AnswerUsage {
  std::int64_t prompt_tokens = 0;
  std::int64_t completion_tokens = 0;
  std::optional<std::int64_t> cached_tokens;  // known once a choice ended
  std::optional<CachePromise> promise;        // likewise, where one was asked for
};

// What `"timings": true` adds. Seconds; of several choices the slowest.
struct AnswerTimings {
  engine::Timings parts;
  std::int64_t prompt_tokens_computed = 0;
  std::int64_t disk_tokens = 0;  // of the cached ones: their KV came from the store
  engine::MissReason miss = engine::MissReason::kNone;
  double prefill_tokens_per_s = 0;
  double decode_tokens_per_s = 0;
};

// How a choice ended.
struct Ending {
  std::string reason;       // "stop", "length", "tool_calls", "abort"
  std::string stop_string;  // the stop string that matched
  TokenId stop_token = -1;  // the id of stop_token_ids that came
};

// A part of one choice: the same value goes into a chunk and into the whole answer.
struct ChoicePart {
  int index = 0;
  Delta delta;
  std::optional<Ending> ending;  // the last part of a choice; its delta is empty
};

struct ChunkExtras {
  bool usage_null = false;           // include_usage: all but the last chunk say null
  std::optional<AnswerUsage> usage;  // continuous_usage_stats
  // On the last chunk when no usage chunk follows.
  std::optional<AnswerTimings> timings;
};

class AnswerFormat {
 public:
  AnswerFormat(AnswerHead head, bool show_logprobs)
      : head_(std::move(head)), show_logprobs_(show_logprobs) {}
  virtual ~AnswerFormat() = default;
  AnswerFormat(const AnswerFormat&) = delete;
  AnswerFormat& operator=(const AnswerFormat&) = delete;

  // JSON of the chunk that opens a choice; empty when the API has none.
  virtual std::string opening_chunk(int index, const ChunkExtras& extras) const = 0;
  virtual std::string chunk(const ChoicePart& part, const ChunkExtras& extras) const = 0;
  // `choices: []` and the usage: the last chunk.
  std::string usage_chunk(const AnswerUsage& usage, const AnswerTimings* timings) const;
  // `choices[i]` has all text and tokens of choice i, and its ending.
  std::string answer(
      const std::vector<ChoicePart>& choices, const AnswerUsage& usage, const AnswerTimings* timings
  ) const;

 protected:
  virtual const char* chunk_object() const = 0;
  virtual const char* answer_object() const = 0;
  virtual void write_choice(JsonWriter& out, const ChoicePart& choice) const = 0;
  void write_head(JsonWriter& out, const char* object) const;
  void write_extras(JsonWriter& out, const ChunkExtras& extras) const;

  const AnswerHead head_;
  const bool show_logprobs_;
};

std::unique_ptr<AnswerFormat> make_chat_format(AnswerHead head, bool show_logprobs);
std::unique_ptr<AnswerFormat> make_completion_format(AnswerHead head, bool show_logprobs);

void write_ending(JsonWriter& out, const std::optional<Ending>& ending);

}  // namespace artery::server::api
