#include "cli/serving_flags.h"

#include "cli/kv_flags.h"
#include "cli/speculative_config.h"

namespace artery::cli {

std::vector<Flag> engine_flags() {
  using K = FlagKind;
  return {
      max_model_len_flag(),
      max_num_seqs_flag(),
      max_num_batched_tokens_flag(),
      {.name = "max-queued-requests",
       .kind = K::kInteger,
       .fallback = "256",
       .help = "requests that may wait; more get 429",
       .value_name = "N",
       .min = 1,
       .max = 1e6},
      {.name = "enable-prefix-caching",
       .kind = K::kSwitch,
       .fallback = "true",
       .help = "reuse the KV of prompt prefixes computed before",
       .negatable = true},
      {.name = "speculative-config",
       .kind = K::kText,
       .fallback = "auto",
       .help =
           "drafts from the text itself, with unchanged output; auto: where the measured cost of "
           "a step says they pay; off; or vLLM's JSON: "
           "{\"method\":\"ngram\",\"num_speculative_tokens\":4}",
       .value_name = "JSON"},
      {.name = "seed",
       .kind = K::kInteger,
       .fallback = "-1",
       .help = "seed of requests that name none; -1: a new one for each",
       .value_name = "N",
       .min = -1},
      kv_cache_dtype_flag(),
      kv_cache_memory_bytes_flag(),
      chat_template_flag(),
      threads_flag(),
      isa_flag(),
      numerics_flag(),
      gpu_layers_flag(),
  };
}

std::vector<Flag> parser_flags() {
  return {
      {.name = "tool-call-parser",
       .fallback = "auto",
       .help =
           "how the model writes tool calls: hermes, llama3_json, mistral, openai, deepseek_v3, "
           "qwen3_coder and others of vLLM's names, none, or auto: by the chat template",
       .value_name = "NAME"},
      {.name = "reasoning-parser",
       .fallback = "auto",
       .help = "how the model marks its reasoning: qwen3, deepseek_r1, deepseek_v3, mistral, "
               "openai_gptoss, none, or auto: by the chat template",
       .value_name = "NAME"},
      {.name = "enable-auto-tool-choice",
       .kind = FlagKind::kSwitch,
       .fallback = "true",
       .help = "changes nothing: taken as vLLM's users type it; tool calls are read when there is "
               "a parser",
       .negatable = true},
  };
}

std::vector<Flag> responses_flags() {
  using K = FlagKind;
  return {
      {.name = "responses-db",
       .help =
           "SQLite file that keeps answers of /v1/responses over restarts (previous_response_id, "
           "GET by id); without it they are kept in memory",
       .value_name = "FILE"},
      {.name = "responses-ttl",
       .kind = K::kInteger,
       .fallback = "2592000",
       .help = "how long they are kept",
       .value_name = "S",
       .min = 1,
       .max = 1e9},
      {.name = "responses-max-bytes",
       .kind = K::kBytes,
       .fallback = "256M",
       .help = "how many bytes of them are kept; over it the tenant with most loses its oldest",
       .value_name = "BYTES",
       .min = 1}
  };
}

Flag log_level_flag(std::string_view fallback) {
  return {
      .name = "log-level",
      .kind = FlagKind::kChoice,
      .fallback = fallback,
      .help = "least level logged",
      .choices = "debug|info|warn|error"
  };
}

Result<ServingWish> serving_wish(const Options& options, const std::string& model_path) {
  ServingWish wish;
  wish.model_path = model_path;
  wish.chat_template = options.text("chat-template");
  wish.compute = compute_wish(options, true);
  wish.max_model_len = options.integer("max-model-len");
  wish.kv_pool_bytes = options.integer("kv-cache-memory-bytes");
  wish.engine.max_num_seqs = static_cast<int>(options.integer("max-num-seqs"));
  wish.engine.max_num_batched_tokens = static_cast<int>(options.integer("max-num-batched-tokens"));
  wish.engine.enable_prefix_caching = options.on("enable-prefix-caching");
  wish.engine.speculation = TRY(parse_speculative_config(options.text("speculative-config")));
  wish.kv = TRY(kv_wish(options));
  return wish;
}

codec::ParserChoice parser_choice(const Options& options) {
  return {options.text("tool-call-parser"), options.text("reasoning-parser")};
}

void set_answers(const Options& options, server::Config& config) {
  config.responses_file = options.text("responses-db");
  config.responses_ttl_s = options.integer("responses-ttl");
  config.responses_bytes_max = options.integer("responses-max-bytes");
  const std::int64_t seed = options.integer("seed");
  if (seed >= 0) config.seed = static_cast<std::uint64_t>(seed);
}

LogLevel log_level_of(const Options& options) {
  const std::string& text = options.text("log-level");
  if (text == "debug") return LogLevel::kDebug;
  if (text == "warn") return LogLevel::kWarn;
  return text == "error" ? LogLevel::kError : LogLevel::kInfo;
}

}  // namespace artery::cli
