#include "cli/request_case.h"

#include <array>

#include "codec/api/json_style.h"

namespace artery::cli {
namespace {

using codec::api::Json;
using codec::api::JsonMember;
using codec::api::ModelVersion;
using codec::deepseek::SpecialTexts;

struct NamedSpecial {
  std::string_view name;
  std::string SpecialTexts::* text;
};
constexpr std::array<NamedSpecial, 18> kSpecials = {
    NamedSpecial{"bos", &SpecialTexts::bos},
    NamedSpecial{"eos", &SpecialTexts::eos},
    NamedSpecial{"thinking_start", &SpecialTexts::think_begin},
    NamedSpecial{"thinking_end", &SpecialTexts::think_end},
    NamedSpecial{"system", &SpecialTexts::system},
    NamedSpecial{"user", &SpecialTexts::user},
    NamedSpecial{"assistant", &SpecialTexts::assistant},
    NamedSpecial{"latest_reminder", &SpecialTexts::latest_reminder},
    NamedSpecial{"dsml", &SpecialTexts::dsml},
    NamedSpecial{"image", &SpecialTexts::image},
    NamedSpecial{"ref", &SpecialTexts::ref},
    NamedSpecial{"ref_end", &SpecialTexts::ref_end},
    NamedSpecial{"box", &SpecialTexts::box},
    NamedSpecial{"box_end", &SpecialTexts::box_end},
    NamedSpecial{"point", &SpecialTexts::point},
    NamedSpecial{"point_end", &SpecialTexts::point_end},
    NamedSpecial{"polygon", &SpecialTexts::polygon},
    NamedSpecial{"polygon_end", &SpecialTexts::polygon_end}
};

Result<> read_specials(const Json& fields, SpecialTexts& specials) {
  for (const JsonMember& member : fields.members()) {
    const NamedSpecial* found = nullptr;
    for (const NamedSpecial& special : kSpecials) {
      if (special.name == member.key) found = &special;
    }
    if (found == nullptr || !member.value.is_string()) {
      return fail(
          Code::kInvalidArgument,
          "options.special_tokens: '{}' is not the name of a special token with a text (bos, eos, "
          "thinking_start, user, assistant, dsml, ...)",
          member.key
      );
    }
    specials.*found->text = std::string(member.value.text());
  }
  return {};
}

Result<> read_versions(const JsonMember& option, codec::api::ConvertOptions& options) {
  if (option.key == "model_versions_by_name") options.versions.clear();
  for (const JsonMember& member : option.value.members()) {
    const auto version = member.value.is_string() ? model_version_of(member.value.text())
                                                  : std::optional<ModelVersion>();
    if (!version) {
      return fail(
          Code::kInvalidArgument,
          "options.{}: the version of '{}' must be \"v4\" or \"v4.1\"",
          option.key,
          member.key
      );
    }
    options.versions[std::string(member.key)] = *version;
  }
  return {};
}

// One option that is no table. False: unknown, or its value is of a wrong kind.
bool read_simple(const JsonMember& option, codec::api::ConvertOptions& options) {
  using codec::api::MissingReasoning;
  using codec::api::WebSearch;
  const Json& value = option.value;
  const auto choose = [&](auto& place, std::string_view first, auto one, auto other) {
    place = value.is_text(first) ? one : other;
    return value.is_string();
  };
  const auto whole = [&](std::int64_t& place) {
    if (value.kind() != Json::Kind::kWhole || value.whole() > INT64_MAX) return false;
    place = static_cast<std::int64_t>(value.whole());
    return true;
  };
  if (option.key == "default_thinking_mode") {
    if (value.is_bool()) options.default_thinking = value.boolean();
    return value.is_bool();
  }
  if (option.key == "reasoning_content_behavior") {
    return choose(
        options.missing_reasoning, "Reject", MissingReasoning::kReject, MissingReasoning::kFillEmpty
    );
  }
  if (option.key == "responses_web_search")
    return choose(options.responses_web_search, "Drop", WebSearch::kDrop, WebSearch::kReject);
  if (option.key == "messages_web_search")
    return choose(options.messages_web_search, "Drop", WebSearch::kDrop, WebSearch::kReject);
  if (option.key == "thinking_max_tokens_upper_bound") return whole(options.thinking_max_tokens);
  if (option.key == "non_thinking_max_tokens_upper_bound") return whole(options.plain_max_tokens);
  return false;
}

Result<> read_resolve(const Json& pairs, RequestCase& request) {
  for (const Json& pair : pairs.items()) {
    const auto items = pair.items();
    const bool fits = pair.is_array() && items.size() >= 2 &&
                      items[0].kind() == Json::Kind::kWhole &&
                      items[1].kind() == Json::Kind::kWhole;
    if (!fits) {
      return fail(
          Code::kInvalidArgument, "resolve: must be a list of [prompt_tokens, context_limit]"
      );
    }
    request.resolve.emplace_back(
        static_cast<std::int64_t>(items[0].whole()), static_cast<std::int64_t>(items[1].whole())
    );
  }
  return {};
}

// The body as it would come over the wire.
Result<std::string> read_body(const Json& line) {
  const Json *text = line.find("body_text"), *body = line.find("body");
  if (text != nullptr && text->is_string()) return std::string(text->text());
  if (body != nullptr && text == nullptr) return codec::api::to_json(*body);
  return fail(
      Code::kInvalidArgument, "needs the request: \"body\" (JSON) or \"body_text\" (its exact text)"
  );
}

void apply_defaults(RequestCase& request, const RequestDefaults& defaults) {
  if (defaults.serving) request.options.rules = codec::api::Rules::kServing;
  if (!defaults.encoding) return;
  request.options.serving_version = *defaults.encoding;
  const auto tree = codec::api::JsonTree::parse(request.body);
  const Json* model = tree ? tree->root().find("model") : nullptr;
  if (model != nullptr && model->is_string())
    request.options.versions[std::string(model->text())] = *defaults.encoding;
}

}  // namespace

std::optional<ModelVersion> model_version_of(std::string_view name) {
  if (name == "v4" || name == "deepseek-v4") return ModelVersion::kV4;
  if (name == "v4.1" || name == "deepseek-v4.1") return ModelVersion::kV41;
  return std::nullopt;
}

Result<> read_convert_options(
    const Json& fields, codec::api::ConvertOptions& options, SpecialTexts& specials
) {
  for (const JsonMember& option : fields.members()) {
    if (option.key == "special_tokens") {
      TRY(read_specials(option.value, specials));
    } else if (option.key == "model_versions_by_name" || option.key == "model_aliases") {
      TRY(read_versions(option, options));
    } else if (!read_simple(option, options)) {
      return fail(
          Code::kInvalidArgument,
          "options.{}: unknown, or not the right kind of value; known are default_thinking_mode, "
          "reasoning_content_behavior, responses_web_search, messages_web_search, "
          "thinking_max_tokens_upper_bound, non_thinking_max_tokens_upper_bound, model_aliases, "
          "model_versions_by_name, special_tokens",
          option.key
      );
    }
  }
  options.image_token = specials.image;
  return {};
}

Result<RequestCase> read_request_case(const Json& line, const RequestDefaults& defaults) {
  RequestCase request;
  const Json* api = line.find("api");
  auto found = api != nullptr && api->is_string() ? codec::api::api_of(api->text()) : defaults.api;
  if (!found) {
    return fail(
        Code::kInvalidArgument,
        "api: must be \"chat\", \"messages\" or \"responses\", here or by --api"
    );
  }
  request.api = *found;
  if (const Json* options = line.find("options"); options != nullptr)
    TRY(read_convert_options(*options, request.options, request.specials));
  request.body = TRY(read_body(line));
  if (const Json* pairs = line.find("resolve"); pairs != nullptr)
    TRY(read_resolve(*pairs, request));
  apply_defaults(request, defaults);
  return request;
}

RequestCase request_of_body(
    codec::api::Api api, std::string body, const RequestDefaults& defaults
) {
  RequestCase request;
  request.api = api;
  request.body = std::move(body);
  apply_defaults(request, defaults);
  return request;
}

}  // namespace artery::cli
