#include "cli/speculative_config.h"

#include <algorithm>
#include <boost/json.hpp>
#include <optional>
#include <string>

#include "cli/json_lines.h"

namespace artery::cli {
namespace {

namespace json = boost::json;

constexpr const char* kFlag = "--speculative-config";
constexpr int kMatchMax = 1024;

constexpr const char* kFields[] = {
    "method", "num_speculative_tokens", "prompt_lookup_min", "prompt_lookup_max"
};

// A whole number in [1, max], when the object has it.
Result<std::optional<int>> number(const json::object& object, const char* name, int max) {
  const json::value* value = object.if_contains(name);
  if (value == nullptr || value->is_null()) return std::optional<int>();
  const std::int64_t* whole = value->if_int64();
  if (whole == nullptr || *whole < 1 || *whole > max)
    return fail_field(
        kFlag, "{} is {}, expected a whole number from 1 to {}", name, json::serialize(*value), max
    );
  return std::optional<int>(static_cast<int>(*whole));
}

Result<> check_names(const json::object& object) {
  for (const auto& [name, value] : object) {
    bool known = false;
    for (const char* field : kFields) known = known || name == field;
    if (!known)
      return fail_field(
          kFlag,
          "unknown field {}; known: method, num_speculative_tokens, prompt_lookup_min, "
          "prompt_lookup_max",
          std::string_view(name)
      );
  }
  const json::value* method = object.if_contains("method");
  if (method == nullptr || !method->is_string() || method->get_string() != "ngram")
    return fail_field(
        kFlag,
        "method is {}, expected \"ngram\" (drafts from the text itself)",
        method == nullptr ? "missing" : json::serialize(*method)
    );
  return {};
}

Result<engine::SpeculationConfig> of_object(const json::object& object) {
  TRY(check_names(object));
  engine::SpeculationConfig config;
  config.mode = engine::SpeculationMode::kAlways;
  config.tokens = TRY(number(object, "num_speculative_tokens", engine::kDraftTokensMax))
                      .value_or(config.tokens);
  const auto min = TRY(number(object, "prompt_lookup_min", kMatchMax));
  const auto max = TRY(number(object, "prompt_lookup_max", kMatchMax));
  // Of one alone the other follows where it would contradict it.
  config.match_min = min.value_or(std::min(config.match_min, max.value_or(config.match_min)));
  config.match_max = max.value_or(std::max(config.match_max, config.match_min));
  if (config.match_min > config.match_max)
    return fail_field(
        kFlag,
        "prompt_lookup_min is {}, more than prompt_lookup_max, {}",
        config.match_min,
        config.match_max
    );
  return config;
}

}  // namespace

Result<engine::SpeculationConfig> parse_speculative_config(std::string_view text) {
  engine::SpeculationConfig config;
  config.mode = engine::SpeculationMode::kWherePays;
  if (text == "auto") return config;
  if (text == "off" || text == "none") {
    config.mode = engine::SpeculationMode::kOff;
    return config;
  }
  json::parse_options options;
  options.max_depth = 4;
  boost::system::error_code why;
  const json::value value = json::parse(text, why, {}, options);
  if (why)
    return fail_field(
        kFlag,
        "not JSON ({}); give auto, off or "
        "'{{\"method\":\"ngram\",\"num_speculative_tokens\":4}}'",
        why.message()
    );
  if (!value.is_object())
    return fail_field(kFlag, "is {}, expected an object, auto or off", kind_name(value));
  return of_object(value.get_object());
}

}  // namespace artery::cli
