#include <charconv>
#include <limits>
#include <utility>

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include "server/api/cache_wish.h"
#include "server/api/requests.h"

namespace artery::server::api {
namespace {

namespace json = boost::json;

constexpr std::int64_t kIntMax = std::numeric_limits<std::int64_t>::max();

bool is_text(const json::value& value, std::string_view text) {
  return value.is_string() &&
         std::string_view(value.get_string().data(), value.get_string().size()) == text;
}

// Asks for nothing: null, false, "", [], {}.
bool is_neutral(const json::value& value) {
  switch (value.kind()) {
    case json::kind::null:
      return true;
    case json::kind::bool_:
      return !value.get_bool();
    case json::kind::string:
      return value.get_string().empty();
    case json::kind::array:
      return value.get_array().empty();
    case json::kind::object:
      return value.get_object().empty();
    default:
      return false;
  }
}

struct RefusedField {
  const char* name;
  const char* reason;
};

// Known fields of OpenAI and vLLM that change the answer and that this server does not do.
constexpr RefusedField kRefusedFields[] = {
    {"prompt_logprobs", "use echo with logprobs on /v1/completions"},
    {"prompt_embeds", "only text and token ids are taken as a prompt"},
    {"use_beam_search", "beam search is not supported"},
    {"truncate_prompt_tokens", "prompts are never cut; shorten it before sending"},
    {"allowed_token_ids", "not supported; use logit_bias"},
    {"bad_words", "not supported; use logit_bias"},
    {"logits_processors", "not supported"},
    {"chat_template", "the model's template is used; set another one with --chat-template"},
    {"return_tokens_as_token_ids", "not supported"},
    {"mm_processor_kwargs", "this model takes text only"},
    {"audio", "this model gives text only"},
    {"web_search_options", "not supported"},
    {"functions", "use tools"},
    {"kv_transfer_params", "not supported"},
};

constexpr const char* kStructuredFields[] = {
    "structured_outputs",
    "guided_json",
    "guided_regex",
    "guided_choice",
    "guided_grammar",
    "structural_tag"
};

tl::unexpected<Error> unsupported(std::string field, std::string_view why) {
  Error error{Code::kUnsupported, field + ": " + std::string(why), {}};
  error.field = std::move(field);
  return tl::unexpected<Error>(std::move(error));
}

Result<> refuse_structured(const Fields& body) {
  for (const char* name : kStructuredFields) {
    const json::value* value = body.find(name);
    if (value != nullptr && !is_neutral(*value)) {
      return unsupported(name, "structured output is not supported by this version");
    }
  }
  const json::object* format = TRY(body.object("response_format"));
  if (format != nullptr) {
    const json::value* type = format->if_contains("type");
    if (type == nullptr || !type->is_string()) {
      return fail_field("response_format.type", "response_format.type must be a string");
    }
    if (!is_text(*type, "text")) {
      return unsupported(
          "response_format", "only {\"type\":\"text\"} is supported by this version"
      );
    }
  }
  const json::value* choice = body.find("tool_choice");
  if (choice != nullptr && !is_text(*choice, "none") && !is_text(*choice, "auto")) {
    if (!choice->is_string() && !choice->is_object()) {
      return fail_field(
          "tool_choice", "tool_choice must be a string or an object, not {}", type_name(*choice)
      );
    }
    return unsupported("tool_choice", "only \"none\" and \"auto\" are supported by this version");
  }
  return {};
}

Result<> refuse_known(const Fields& body) {
  for (const RefusedField& refused : kRefusedFields) {
    const json::value* value = body.find(refused.name);
    if (value != nullptr && !is_neutral(*value)) {
      return fail_field(refused.name, "{}: {}", refused.name, refused.reason);
    }
  }
  const auto length_penalty = TRY(body.number("length_penalty", -1e9, 1e9));
  if (length_penalty && *length_penalty != 1.0) {
    return fail_field("length_penalty", "length_penalty: beam search is not supported");
  }
  const json::array* modalities = TRY(body.array("modalities"));
  if (modalities != nullptr) {
    for (const json::value& modality : *modalities) {
      if (!is_text(modality, "text")) {
        return fail_field("modalities", "modalities: this model gives text only");
      }
    }
  }
  return refuse_structured(body);
}

// Fields that change nothing here but must have the right type, so that a typo is seen.
Result<> check_ignored(const Fields& body) {
  TRY(body.text("user"));
  TRY(body.object("metadata"));
  TRY(body.flag("parallel_tool_calls", true));
  return {};
}

Result<> read_stops(const Fields& body, GenerateParams& params) {
  const json::value* value = body.find("stop");
  if (value == nullptr) return {};
  if (!value->is_string() && !value->is_array()) {
    return fail_field(
        "stop", "stop must be a string or an array of strings, not {}", type_name(*value)
    );
  }
  const json::array one{*value};
  const json::array& stops = value->is_array() ? value->get_array() : one;
  if (stops.size() > static_cast<std::size_t>(kStopStringsMax)) {
    return fail_field("stop", "stop has {} strings; at most {}", stops.size(), kStopStringsMax);
  }
  for (const json::value& stop : stops) {
    if (!stop.is_string()) {
      return fail_field("stop", "stop must hold strings only, not {}", type_name(stop));
    }
    if (stop.get_string().empty()) {
      return fail_field("stop", "stop must not hold an empty string");
    }
    params.stops.emplace_back(stop.get_string().data(), stop.get_string().size());
  }
  return {};
}

Result<> read_logit_bias(const Fields& body, std::int64_t vocab_size, GenerateParams& params) {
  const json::object* biases = TRY(body.object("logit_bias"));
  if (biases == nullptr) return {};
  for (const auto& [name, value] : *biases) {
    TokenId id = -1;
    const char* end = name.data() + name.size();
    const auto parsed = std::from_chars(name.data(), end, id);
    if (parsed.ec != std::errc() || parsed.ptr != end || id < 0 || id >= vocab_size) {
      return fail_field(
          "logit_bias",
          "logit_bias: \"{}\" is not a token id in 0..{}",
          std::string_view(name.data(), name.size()),
          vocab_size - 1
      );
    }
    const double bias = value.is_number() ? value.to_number<double>() : 1e9;
    if (!(bias >= -100 && bias <= 100)) {
      return fail_field("logit_bias", "logit_bias of token {} must be from -100 to 100", id);
    }
    params.sampling.logit_bias.emplace_back(id, static_cast<float>(bias));
  }
  return {};
}

Result<> read_seed(const Fields& body, GenerateParams& params) {
  const json::value* value = body.find("seed");
  if (value == nullptr) return {};
  if (value->is_uint64()) {
    params.sampling.seed = value->get_uint64();
  } else {
    const auto seed = TRY(body.integer("seed", std::numeric_limits<std::int64_t>::min(), kIntMax));
    params.sampling.seed = static_cast<std::uint64_t>(*seed);
  }
  params.has_seed = true;
  return {};
}

Result<> read_sampling(const Fields& body, GenerateParams& params) {
  engine::SamplingParams& s = params.sampling;
  s.temperature = TRY(body.number("temperature", 0, 2)).value_or(1.0);
  s.top_p = TRY(body.number("top_p", 0, 1)).value_or(1.0);
  if (s.top_p <= 0) return fail_field("top_p", "top_p must be above 0 and at most 1, not 0");
  s.top_k = static_cast<int>(TRY(body.integer("top_k", -1, 1 << 30)).value_or(0));
  s.min_p = TRY(body.number("min_p", 0, 1)).value_or(0.0);
  s.presence_penalty = TRY(body.number("presence_penalty", -2, 2)).value_or(0.0);
  s.frequency_penalty = TRY(body.number("frequency_penalty", -2, 2)).value_or(0.0);
  s.repetition_penalty = TRY(body.number("repetition_penalty", 0, 100)).value_or(1.0);
  if (s.repetition_penalty <= 0) {
    return fail_field("repetition_penalty", "repetition_penalty must be above 0");
  }
  s.min_tokens = static_cast<int>(TRY(body.integer("min_tokens", 0, 1 << 30)).value_or(0));
  return {};
}

Result<> read_stream(const Fields& body, GenerateParams& params) {
  params.stream = TRY(body.flag("stream", false));
  const json::value* options = body.find("stream_options");
  if (options == nullptr) return {};
  const Fields fields = TRY(Fields::of(*options, "stream_options"));
  params.include_usage = TRY(fields.flag("include_usage", false));
  params.continuous_usage = TRY(fields.flag("continuous_usage_stats", false));
  if (!params.stream) {
    return fail_field("stream_options", "stream_options needs \"stream\": true");
  }
  return {};
}

}  // namespace

Result<std::vector<TokenId>> read_token_ids(
    const json::array& values, const std::string& path, std::int64_t vocab_size
) {
  std::vector<TokenId> ids;
  ids.reserve(values.size());
  for (const json::value& value : values) {
    const std::optional<std::int64_t> id = as_integer(value);
    if (!id || *id < 0 || *id >= vocab_size) {
      return fail_field(
          path,
          "{}[{}] must be a token id in 0..{}, not {}",
          path,
          ids.size(),
          vocab_size - 1,
          value.is_number() ? to_json(value) : std::string(type_name(value))
      );
    }
    ids.push_back(static_cast<TokenId>(*id));
  }
  return ids;
}

Result<GenerateParams> read_params(const Fields& body, std::int64_t vocab_size) {
  GenerateParams params;
  TRY(refuse_known(body));
  TRY(check_ignored(body));
  params.model = TRY(body.text("model")).value_or("");
  params.n = static_cast<int>(TRY(body.integer("n", 1, kChoicesMax)).value_or(1));
  const auto best_of = TRY(body.integer("best_of", 1, kIntMax));
  if (best_of && *best_of != params.n) {
    return fail_field("best_of", "best_of is not supported unless it equals n ({})", params.n);
  }
  TRY(read_sampling(body, params));
  TRY(read_seed(body, params));
  TRY(read_stops(body, params));
  TRY(read_logit_bias(body, vocab_size, params));
  TRY(read_stream(body, params));
  const json::array* stop_ids = TRY(body.array("stop_token_ids"));
  if (stop_ids != nullptr) {
    params.stop_token_ids = TRY(read_token_ids(*stop_ids, "stop_token_ids", vocab_size));
  }
  params.include_stop = TRY(body.flag("include_stop_str_in_output", false));
  params.ignore_eos = TRY(body.flag("ignore_eos", false));
  params.skip_special = TRY(body.flag("skip_special_tokens", true));
  params.timings = TRY(body.flag("timings", false));
  const auto salt = TRY(body.text("cache_salt"));
  if (salt && salt->empty()) return fail_field("cache_salt", "cache_salt must not be empty");
  params.cache_salt = salt.value_or("");
  params.cache_asked = TRY(read_cache_wish(body));
  const auto priority =
      TRY(body.integer("priority", std::numeric_limits<int>::min(), std::numeric_limits<int>::max())
      );
  params.has_priority = priority.has_value();
  params.priority = static_cast<int>(priority.value_or(0));
  return params;
}

}  // namespace artery::server::api
