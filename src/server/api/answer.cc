#include "server/api/answer.h"

namespace artery::server::api {
namespace {

void write_usage(JsonWriter& out, const AnswerUsage& usage) {
  out.begin_object();
  out.field("prompt_tokens", usage.prompt_tokens);
  out.field("completion_tokens", usage.completion_tokens);
  out.field("total_tokens", usage.prompt_tokens + usage.completion_tokens);
  if (usage.cached_tokens) {
    out.key("prompt_tokens_details").begin_object();
    out.field("cached_tokens", *usage.cached_tokens).end_object();
    out.field("prompt_cache_hit_tokens", *usage.cached_tokens);
    out.field("prompt_cache_miss_tokens", usage.prompt_tokens - *usage.cached_tokens);
  }
  if (usage.promise) {
    out.key("cache").begin_object().field("ttl", kvstore::name(usage.promise->ttl));
    out.key("guaranteed_until");
    usage.promise->until_s > 0 ? out.integer(usage.promise->until_s) : out.null();
    out.end_object();
  }
  out.end_object();
}

void write_timings(JsonWriter& out, const AnswerTimings& timings) {
  out.key("timings").begin_object();
  out.field("queue_s", timings.parts.queue_s);
  out.field("cache_lookup_s", timings.parts.cache_lookup_s);
  out.field("load_s", timings.parts.load_s);
  out.field("prefill_s", timings.parts.prefill_s);
  out.field("decode_s", timings.parts.decode_s);
  out.field("prompt_tokens_computed", timings.prompt_tokens_computed);
  out.field("disk_tokens", timings.disk_tokens).key("cache_miss");
  timings.miss == engine::MissReason::kNone ? out.null() : out.string(engine::name(timings.miss));
  out.field("prefill_tokens_per_s", timings.prefill_tokens_per_s);
  out.field("decode_tokens_per_s", timings.decode_tokens_per_s);
  out.end_object();
}

}  // namespace

void write_ending(JsonWriter& out, const std::optional<Ending>& ending) {
  if (!ending) {
    out.key("finish_reason").null();
    return;
  }
  out.field("finish_reason", ending->reason);
  out.key("stop_reason");
  if (!ending->stop_string.empty()) {
    out.string(ending->stop_string);
  } else if (ending->stop_token >= 0) {
    out.integer(ending->stop_token);
  } else {
    out.null();
  }
}

void AnswerFormat::write_head(JsonWriter& out, const char* object) const {
  out.field("id", head_.id).field("object", object).field("created", head_.created);
  out.field("model", head_.model).field("system_fingerprint", head_.system_fingerprint);
}

void AnswerFormat::write_extras(JsonWriter& out, const ChunkExtras& extras) const {
  if (extras.usage) {
    write_usage(out.key("usage"), *extras.usage);
  } else if (extras.usage_null) {
    out.key("usage").null();
  }
  if (extras.timings) write_timings(out, *extras.timings);
}

std::string AnswerFormat::usage_chunk(const AnswerUsage& usage, const AnswerTimings* timings)
    const {
  JsonWriter out;
  out.begin_object();
  write_head(out, chunk_object());
  out.key("choices").begin_array().end_array();
  write_usage(out.key("usage"), usage);
  if (timings != nullptr) write_timings(out, *timings);
  out.end_object();
  return out.take();
}

std::string AnswerFormat::answer(
    const std::vector<ChoicePart>& choices, const AnswerUsage& usage, const AnswerTimings* timings
) const {
  JsonWriter out;
  out.begin_object();
  write_head(out, answer_object());
  out.key("choices").begin_array();
  for (const ChoicePart& choice : choices) write_choice(out, choice);
  out.end_array();
  write_usage(out.key("usage"), usage);
  if (timings != nullptr) write_timings(out, *timings);
  out.end_object();
  return out.take();
}

}  // namespace artery::server::api
