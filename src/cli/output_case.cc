#include "cli/output_case.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <string_view>

#include "codec/api/generators.h"
#include "codec/api/json_out.h"
#include "codec/api/json_style.h"

namespace artery::cli {

using codec::api::Api;
using codec::api::Json;

namespace {

const Json* find(const Json& object, std::string_view key) {
  const Json* const found = object.find(key);
  return found == nullptr || found->is_null() ? nullptr : found;
}

std::string text_of(const Json& object, std::string_view key, std::string_view fallback) {
  const Json* const found = find(object, key);
  return std::string(found != nullptr && found->is_string() ? found->text() : fallback);
}

bool flag_of(const Json& object, std::string_view key, bool fallback) {
  const Json* const found = find(object, key);
  return found != nullptr && found->is_bool() ? found->boolean() : fallback;
}

std::int64_t count_of(const Json& object, std::string_view key) {
  const Json* const found = find(object, key);
  if (found == nullptr || found->kind() != Json::Kind::kWhole) return 0;
  constexpr std::uint64_t kMost = std::numeric_limits<std::int64_t>::max();
  return static_cast<std::int64_t>(std::min(found->whole(), kMost));
}

codec::api::PromptUsage prompt_usage(const Json& usage) {
  return {count_of(usage, "prompt_tokens"), count_of(usage, "prompt_cache_hit_tokens")};
}

// Ids that no vocabulary has are one: -1.
TokenId token_id(const Json& value) {
  constexpr auto kMost = static_cast<std::uint64_t>(std::numeric_limits<TokenId>::max());
  if (value.kind() != Json::Kind::kWhole || value.whole() > kMost) return -1;
  return static_cast<TokenId>(value.whole());
}

float logprob(const Json& value) {
  return value.is_number() ? static_cast<float>(value.number())
                           : std::numeric_limits<float>::quiet_NaN();
}

Result<codec::deepseek::IdLogprob> read_logprob(const Json& entry) {
  if (!entry.is_array() || entry.items().size() != 2 || !entry.items()[1].is_array()) {
    return fail_field("chunks", "log probabilities must be [value, [[id, value], ...]]");
  }
  codec::deepseek::IdLogprob read;
  read.logprob = logprob(entry.items()[0]);
  for (const Json& other : entry.items()[1].items()) {
    if (!other.is_array() || other.items().size() != 2) {
      return fail_field("chunks", "an alternative must be [id, value]");
    }
    read.top.emplace_back(token_id(other.items()[0]), logprob(other.items()[1]));
  }
  return read;
}

Result<> read_tokens(std::span<const Json> items, OutputChunk& chunk) {
  if (items.size() < 2 || !items[1].is_array()) {
    return fail_field("chunks", R"(must be ["tokens", ids, logprobs])");
  }
  chunk.kind = OutputChunk::Kind::kTokens;
  for (const Json& id : items[1].items()) chunk.ids.push_back(token_id(id));
  if (items.size() < 3 || !items[2].is_array()) return {};
  chunk.logprobs.emplace();
  for (const Json& entry : items[2].items()) {
    chunk.logprobs->push_back(TRY(read_logprob(entry)));
  }
  return {};
}

Result<OutputChunk> read_chunk(const Json& value) {
  if (value.is_string()) {  // for people who write lines: a text, not counted
    OutputChunk chunk;
    chunk.text = value.text();
    return chunk;
  }
  if (!value.is_array() || value.items().empty()) {
    return fail_field("chunks", "must hold lists that begin with ready, text, tokens or finish");
  }
  const std::span<const Json> items = value.items();
  OutputChunk chunk;
  if (items[0].is_text("ready")) {
    chunk.kind = OutputChunk::Kind::kReady;
    if (items.size() > 1 && items[1].is_object()) chunk.usage = prompt_usage(items[1]);
    if (items.size() > 2 && items[2].is_string()) chunk.fingerprint = items[2].text();
  } else if (items[0].is_text("text")) {
    if (items.size() < 2 || !items[1].is_string()) {
      return fail_field("chunks", R"(must be ["text", content, token_count])");
    }
    chunk.text = items[1].text();
    if (items.size() > 2 && items[2].kind() == Json::Kind::kWhole) {
      chunk.token_count = static_cast<std::int64_t>(items[2].whole());
    }
  } else if (items[0].is_text("tokens")) {
    TRY(read_tokens(items, chunk));
  } else if (items[0].is_text("finish")) {
    chunk.kind = OutputChunk::Kind::kFinish;
    using codec::deepseek::BackendFinish;
    const Json reason = items.size() > 1 ? items[1] : Json();
    if (reason.is_text("length")) {
      chunk.finish = BackendFinish::kLength;
    } else if (reason.is_text("content_filter")) {
      chunk.finish = BackendFinish::kContentFilter;
    } else if (!reason.is_text("stop")) {
      return fail_field("chunks", "finish must be stop, length or content_filter");
    }
  } else {
    return fail_field("chunks", "must begin with ready, text, tokens or finish");
  }
  return chunk;
}

void read_specials(const Json& specials, codec::deepseek::SpecialTexts& texts) {
  texts.eos = text_of(specials, "eos", texts.eos);
  texts.think_begin = text_of(specials, "thinking_start", texts.think_begin);
  texts.think_end = text_of(specials, "thinking_end", texts.think_end);
  texts.dsml = text_of(specials, "dsml", texts.dsml);
}

Result<> read_parsing(const Json& parsing, OutputCase& output) {
  using codec::api::InitialStage;
  codec::api::ParsingOptions& options = output.parsing;
  options.tool_calls = flag_of(parsing, "parse_tool_calls", true);
  options.starts_in_calls = flag_of(parsing, "starts_in_tool_calls", false);
  options.json_output = flag_of(parsing, "parse_json_output", false);
  options.stage = std::nullopt;
  const std::string stage = text_of(parsing, "thinking_initial_stage", "");
  if (stage == "ReasoningStart") {
    options.stage = InitialStage::kReasoningStart;
  } else if (stage == "ReasoningContinuation") {
    options.stage = InitialStage::kReasoningContinuation;
  } else if (stage == "ContentContinuation") {
    options.stage = InitialStage::kContentContinuation;
  } else if (!stage.empty()) {
    return fail_field("thinking_initial_stage", "is '{}', not one of the three there are", stage);
  }
  options.stops.clear();
  if (const Json* const stops = find(parsing, "stop_sequences")) {
    for (const Json& stop : stops->items()) options.stops.emplace_back(stop.text());
  }
  if (const Json* const specials = find(parsing, "special_tokens")) {
    read_specials(*specials, output.specials);
  }
  return {};
}

Result<> use_request(const Json& generator, OutputCase& output) {
  const Json* const body = find(generator, "body");
  if (body == nullptr) return fail_field("generator", "has no body to convert");
  auto converted = codec::api::convert(output.api, codec::api::to_json(*body), {});
  if (!converted) return fail_field("generator", "{}", converted.error().message);
  output.thinking = converted->conversation.thinking;
  // The official generator takes an answer that is not streamed for one with usage.
  output.include_usage = converted->beyond.include_usage || !converted->stream;
  output.continues_content =
      converted->parsing.stage == codec::api::InitialStage::kContentContinuation;
  output.namespaces = std::move(converted->namespaces);
  output.has_apply_patch = converted->has_apply_patch;
  output.has_tool_search = converted->has_tool_search;
  output.parsing = std::move(converted->parsing);
  if (!text_of(generator, "echo", "").starts_with("default")) {
    output.echo = std::move(converted->echo);
  }
  if (const Json* const map = find(generator, "namespace_tool_map")) {
    output.namespaces.clear();
    for (const codec::api::JsonMember& member : map->members()) {
      if (!member.value.is_array() || member.value.items().size() != 2) continue;
      output.namespaces[std::string(member.key)] = {
          std::string(member.value.items()[0].text()), std::string(member.value.items()[1].text())
      };
    }
  }
  return {};
}

// What the record has in place of the clock and of random letters.
class RecordIds : public codec::api::IdSource {
 public:
  explicit RecordIds(std::int64_t created) : created_(created) {}
  std::string call_tail() override { return std::string(20, 'A') + "0000"; }
  std::int64_t unix_time_s() override { return created_; }

 private:
  std::int64_t created_;
};

codec::api::ChatAnswer chat_answer(
    const OutputCase& output,
    const codec::api::AnswerHead& head,
    codec::api::Faithfulness faithfulness
) {
  codec::api::ChatAnswer answer;
  answer.head = head;
  answer.thinking = output.thinking;
  answer.include_usage = output.include_usage;
  answer.continues_content = output.continues_content;
  answer.faithfulness = faithfulness;
  return answer;
}

void use_tools(const OutputCase& output, codec::api::ResponsesAnswer& answer) {
  answer.namespaces = output.namespaces;
  answer.has_apply_patch = output.has_apply_patch;
  answer.has_tool_search = output.has_tool_search;
  answer.echo = output.echo;
}

std::unique_ptr<codec::api::EventGenerator> generator_of(
    const OutputCase& output, codec::api::Faithfulness faithfulness
) {
  switch (output.api) {
    case Api::kChat:
      return codec::api::chat_events(chat_answer(output, output.head, faithfulness));
    case Api::kMessages:
      return codec::api::messages_events(
          {output.head, output.thinking, output.signature, faithfulness}
      );
    case Api::kResponses:
      break;
  }
  codec::api::ResponsesAnswer answer;
  answer.head = output.head;
  answer.thinking = output.thinking;
  answer.faithfulness = faithfulness;
  use_tools(output, answer);
  return codec::api::responses_events(std::move(answer));
}

// The head of a response: Chat's is the accumulator's own, the others' comes with the first event.
codec::api::AnswerHead response_head(const OutputCase& output, bool has_events) {
  codec::api::AnswerHead head = output.head;
  if (output.api == Api::kChat || !has_events) {
    head.id = output.response_id;
    head.model = output.response_model;
  }
  return head;
}

std::unique_ptr<codec::api::ResponseBuilder> builder_of(
    const OutputCase& output, codec::api::Faithfulness faithfulness, bool has_events
) {
  const codec::api::AnswerHead head = response_head(output, has_events);
  const bool thinking = output.thinking && has_events;
  switch (output.api) {
    case Api::kChat:
      return codec::api::chat_response(chat_answer(output, head, faithfulness));
    case Api::kMessages:
      return codec::api::messages_response({head, thinking, output.signature, faithfulness});
    case Api::kResponses:
      break;
  }
  codec::api::ResponsesAnswer answer;
  answer.head = head;
  answer.faithfulness = faithfulness;
  if (has_events) {
    answer.thinking = thinking;
    use_tools(output, answer);
  }
  return codec::api::responses_response(std::move(answer));
}

}  // namespace

Result<> push_chunk(
    codec::deepseek::OutputProcessor& processor,
    const OutputChunk& chunk,
    codec::api::OutputSink& sink
) {
  switch (chunk.kind) {
    case OutputChunk::Kind::kReady:
      return processor.ready(chunk.usage, chunk.fingerprint, sink);
    case OutputChunk::Kind::kText:
      return processor.text(chunk.text, chunk.token_count, sink);
    case OutputChunk::Kind::kFinish:
      return processor.finish(chunk.finish, sink);
    case OutputChunk::Kind::kTokens:
      break;
  }
  static constexpr codec::deepseek::IdLogprob* kNone = nullptr;
  std::span<const codec::deepseek::IdLogprob> logprobs(kNone, 0);
  const codec::deepseek::IdLogprob unused;
  if (chunk.logprobs) {
    logprobs = *chunk.logprobs;
    if (chunk.logprobs->empty()) logprobs = {&unused, 0};  // given, but of no token
  }
  return processor.tokens(chunk.ids, logprobs, sink);
}

namespace {

// All chunks and the end into `sink`; `after(i)` when the chunk was pushed.
template <typename After>
void run_chunks(
    const OutputCase& output,
    codec::deepseek::OutputProcessor processor,
    codec::api::OutputSink& sink,
    OutputRun* run,
    const After& after
) {
  const std::size_t count = output.chunks.size();
  std::size_t errors = 0;
  for (std::size_t i = 0; i <= count; ++i) {
    if (errors >= 2 && i < count) continue;  // as the record was made
    const auto pushed =
        i < count ? push_chunk(processor, output.chunks[i], sink) : processor.end(sink);
    if (!pushed) {
      ++errors;
      if (run != nullptr) run->errors.emplace_back(i, pushed.error().message);
    }
    if (run != nullptr && !run->finished_after && processor.finished()) run->finished_after = i;
    after(i);
  }
}

}  // namespace

Result<OutputCase> read_output_case(const Json& line) {
  OutputCase output;
  const auto api = codec::api::api_of(text_of(line, "api", "chat"));
  if (!api) return fail_field("api", "must be chat, messages or responses");
  output.api = *api;
  const std::int64_t created =
      line.find("created") != nullptr ? count_of(line, "created") : 1'700'000'000;
  output.head = {"id-0", "model", std::make_shared<RecordIds>(created)};
  if (const Json* const generator = find(line, "generator")) {
    output.head.id = text_of(*generator, "id", output.head.id);
    output.head.model = text_of(*generator, "model", output.head.model);
    if (text_of(*generator, "how", "direct") == "convert") TRY(use_request(*generator, output));
    output.thinking = flag_of(*generator, "thinking_mode", output.thinking);
    if (find(*generator, "signature") != nullptr) {
      output.signature = text_of(*generator, "signature", "");
    }
  }
  if (const Json* const parsing = find(line, "parsing")) TRY(read_parsing(*parsing, output));
  output.wants_tokenizer = flag_of(line, "tokenizer", true);
  if (const Json* const usage = find(line, "prompt_usage")) output.prompt = prompt_usage(*usage);
  output.response_id = output.head.id;
  output.response_model = output.head.model;
  if (const Json* const accumulator = find(line, "accumulator")) {
    output.response_id = text_of(*accumulator, "id", output.response_id);
    output.response_model = text_of(*accumulator, "model", output.response_model);
  }
  const Json* const chunks = find(line, "chunks");
  if (chunks == nullptr) return output;
  if (!chunks->is_array()) return fail_field("chunks", "must be a list");
  for (const Json& chunk : chunks->items()) output.chunks.push_back(TRY(read_chunk(chunk)));
  return output;
}

OutputRun run_output_case(
    const OutputCase& output,
    const codec::Tokenizer* tokenizer,
    codec::api::Faithfulness faithfulness
) {
  OutputRun run;
  const codec::deepseek::OutputProcessor processor(
      {output.parsing, output.specials, faithfulness}, output.wants_tokenizer ? tokenizer : nullptr
  );
  const auto generator = generator_of(output, faithfulness);
  run_chunks(output, processor, *generator, &run, [&](std::size_t chunk) {
    for (codec::api::ApiEvent& event : generator->take()) {
      run.events.push_back({chunk, std::move(event)});
    }
  });
  const auto builder = builder_of(output, faithfulness, !run.events.empty());
  if (!run.events.empty()) {
    run_chunks(output, processor, *builder, nullptr, [](std::size_t) {});
  } else if (output.api == Api::kMessages) {
    builder->start(output.prompt, std::nullopt);
  }
  run.response = builder->json();
  return run;
}

std::string run_json(const OutputCase& output, const OutputRun& run) {
  using codec::api::put_json_string;
  using codec::api::put_json_uint;
  std::string out = R"("events":[)";
  for (const OutputRun::Event& event : run.events) {
    if (out.back() == ']') out += ',';
    out += '[';
    put_json_uint(out, event.chunk);
    out += ',';
    event.event.name.empty() ? void(out += "null") : put_json_string(out, event.event.name);
    out += ',';
    out += event.event.data;
    out += ']';
  }
  out += R"(],"finished_after":)";
  run.finished_after ? put_json_uint(out, *run.finished_after) : void(out += "null");
  out += output.api == Api::kChat ? R"(,"done":"[DONE]")" : R"(,"done":null)";
  out += R"(,"response":)" + run.response + R"(,"error":)";
  if (run.errors.empty()) return out += "null";
  for (const auto& [chunk, message] : run.errors) {
    out += out.back() == ':' ? "[[" : ",[";
    put_json_uint(out, chunk);
    out += R"(,"RuntimeError",)";
    put_json_string(out, message);
    out += ']';
  }
  return out += ']';
}

}  // namespace artery::cli
