#include "recipe_options.h"

#include <boost/json.hpp>

namespace artery::codec::api {
namespace {

namespace json = boost::json;

ModelVersion version_named(const json::value& name) {
  return name == "v4" ? ModelVersion::kV4 : ModelVersion::kV41;
}

WebSearch web_search(const json::value& name) {
  return name == "Drop" ? WebSearch::kDrop : WebSearch::kReject;
}

}  // namespace

ConvertOptions recipe_options(const json::object& options) {
  ConvertOptions read;
  for (const auto& [name, value] : options) {
    if (name == "default_thinking_mode") read.default_thinking = value.as_bool();
    if (name == "reasoning_content_behavior" && value == "Reject")
      read.missing_reasoning = MissingReasoning::kReject;
    if (name == "responses_web_search") read.responses_web_search = web_search(value);
    if (name == "messages_web_search") read.messages_web_search = web_search(value);
    if (name == "thinking_max_tokens_upper_bound")
      read.thinking_max_tokens = value.to_number<std::int64_t>();
    if (name == "non_thinking_max_tokens_upper_bound")
      read.plain_max_tokens = value.to_number<std::int64_t>();
    if (name == "model_versions_by_name") read.versions.clear();
  }
  for (const char* const name : {"model_versions_by_name", "model_aliases"}) {
    const json::value* const names = options.if_contains(name);
    if (names == nullptr) continue;
    for (const auto& [model, version] : names->as_object())
      read.versions[std::string(model)] = version_named(version);
  }
  const json::value* const specials = options.if_contains("special_tokens");
  const json::value* const image =
      specials == nullptr ? nullptr : specials->as_object().if_contains("image");
  if (image != nullptr) read.image_token = std::string(image->as_string());
  return read;
}

}  // namespace artery::codec::api
