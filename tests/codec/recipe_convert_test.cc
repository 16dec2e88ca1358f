// Requests to conversations against ../shared/golden/codec/requests.jsonl.zst, what the official
// deepseek-recipe 0.2.0 makes of them: every field of the result but the prompt, every error.

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <boost/json.hpp>
#include <cmath>
#include <map>
#include <span>
#include <string>

#include "base/hash.h"
#include "codec/api/convert.h"
#include "codec/stream/json_scan.h"
#include "golden_lines.h"
#include "recipe_options.h"

namespace artery::codec::api {
namespace {

namespace json = boost::json;

const std::string kRecord =
    std::string(ARTERY_SOURCE_DIR) + "/../shared/golden/codec/requests.jsonl.zst";

json::value or_null(const std::optional<std::string>& text) {
  return text ? json::value(*text) : json::value();
}

json::value parse(std::string_view text) {
  json::parse_options options;
  options.max_depth = 200;
  return json::parse(text, {}, options);
}

// A row whose body is JSON has it as text afterwards, byte by byte: Boost would spell some numbers
// otherwise, and it refuses the lone surrogates of three bodies.
json::value parse_row(std::string_view line) {
  constexpr std::string_view kBody = "\"body\":";
  const std::size_t begin = line.find(kBody);
  if (begin == line.npos || line.find("\"body_text\":") < begin) return parse(line);
  JsonValueScanner scanner;
  std::size_t end = begin + kBody.size();
  while (scanner.push(line[end]) == JsonValueScanner::Step::kInside) ++end;
  ++end;
  const json::string body(line.substr(begin + kBody.size(), end - begin - kBody.size()));
  return parse(
      std::string(line.substr(0, begin)) + "\"body_text\":" + json::serialize(body) +
      std::string(line.substr(end))
  );
}

json::value tools_json(const std::vector<Tool>& tools) {
  json::array array;
  for (const Tool& tool : tools) {
    json::object& object = array.emplace_back(json::object()).as_object();
    object["name"] = tool.name;
    object["description"] = or_null(tool.description);
    object["parameters"] = parse(tool.parameters);
    object["strict"] = tool.strict ? json::value(*tool.strict) : json::value();
    object["defer_loading"] = tool.defer_loading;
  }
  return array;
}

constexpr std::array kRoles = {"system", "user", "assistant", "tool", "latest_reminder"};

json::value message_json(const Message& message) {
  json::object object;
  object["role"] = kRoles[static_cast<std::size_t>(message.role)];
  object["content"] = message.content;
  if (message.role == Role::kAssistant) {
    object["reasoning_content"] = or_null(message.reasoning);
    object["prefix"] = message.is_prefix;
    json::array calls;
    for (const ToolCall& call : message.calls)
      calls.push_back(
          json::object{{"id", call.id}, {"name", call.name}, {"arguments", call.arguments}}
      );
    object["tool_calls"] = calls.empty() ? json::value() : json::value(calls);
  }
  if (message.role == Role::kTool) object["tool_call_id"] = message.call_id;
  if (!message.tools.empty()) object["tools"] = tools_json(message.tools);
  if (!message.images.empty()) object["images"] = message.images.size();
  return object;
}

constexpr std::array kChoices = {"auto", "none", "required"};
constexpr std::array kEfforts = {"low", "high", "xhigh", "max"};
constexpr std::array kFormats = {"text", "json_object", "json_schema", "regex"};

json::value conversation_json(const Conversation& conversation) {
  json::object object;
  json::array& messages = object["messages"].emplace_array();
  for (const Message& message : conversation.messages) messages.push_back(message_json(message));
  object["tools"] = tools_json(conversation.tools);
  object["tool_choice"] = kChoices[static_cast<std::size_t>(conversation.tool_choice)];
  object["thinking_mode"] = conversation.thinking;
  object["reasoning_effort"] =
      conversation.effort ? json::value(kEfforts[static_cast<std::size_t>(*conversation.effort)])
                          : json::value();
  const auto format = conversation.format;
  object["response_format"] = kFormats[static_cast<std::size_t>(format)];
  object["response_schema"] =
      format == ResponseFormat::kJsonSchema ? parse(conversation.schema) : json::value();
  object["response_regex"] =
      format == ResponseFormat::kRegex ? json::value(conversation.regex) : json::value();
  return object;
}

constexpr std::array kConstraints = {"json", "regex", "tool_call", "tool_call_required"};

json::value inference_json(const InferenceOptions& inference) {
  json::object object;
  const auto number = [](const auto& value) { return value ? json::value(*value) : json::value(); };
  object["max_tokens"] = number(inference.max_tokens);
  object["temperature"] = static_cast<double>(inference.temperature);
  object["top_p"] = static_cast<double>(inference.top_p);
  object["logprobs"] = inference.logprobs;
  object["top_logprobs"] = number(inference.top_logprobs);
  object["seed"] = number(inference.seed);
  json::value& constraint = object["output_constraint"];
  if (inference.constraint)
    constraint = json::object{
        {"kind", kConstraints[static_cast<std::size_t>(inference.constraint->kind)]},
        {"schema", inference.constraint->schema}
    };
  return object;
}

constexpr std::array kStages = {"ReasoningStart", "ReasoningContinuation", "ContentContinuation"};

json::value parsing_json(const ParsingOptions& parsing) {
  json::object object;
  object["parse_tool_calls"] = parsing.tool_calls;
  object["starts_in_tool_calls"] = parsing.starts_in_calls;
  object["parse_json_output"] = parsing.json_output;
  object["thinking_initial_stage"] =
      parsing.stage ? json::value(kStages[static_cast<std::size_t>(*parsing.stage)])
                    : json::value();
  object["stop_sequences"] = json::value_from(parsing.stops);
  return object;
}

constexpr std::array kDetails = {"low", "high", "original", "auto"};
constexpr std::array kKinds = {"data_url", "url", "bytes"};

json::value images_json(const std::vector<ImageSource>& images) {
  json::array array;
  for (const ImageSource& image : images) {
    json::object& object = array.emplace_back(json::object()).as_object();
    object["kind"] = kKinds[static_cast<std::size_t>(image.kind)];
    object["detail"] = kDetails[static_cast<std::size_t>(image.detail)];
    object["path"] = image.path;
    object["sha256"] = hex(sha256(std::as_bytes(std::span(image.data))));
    object["url"] = image.kind == ImageSource::Kind::kUrl ? json::value(image.data) : json::value();
  }
  return array;
}

json::value error_json(const ConvertError& error) {
  return json::object{{"status", error.status}, {"body", error.body()}};
}

json::value resolved_json(const ConvertedRequest& request, const json::array& asked) {
  json::array array;
  for (const json::value& one : asked) {
    const auto prompt = json::value_to<std::int64_t>(one.at(0));
    const auto limit = json::value_to<std::int64_t>(one.at(1));
    const auto tokens = request.resolve_max_tokens(prompt, limit);
    array.push_back({prompt, limit, tokens ? json::value(*tokens) : error_json(tokens.error())});
  }
  return array;
}

// Equal but for the last digits of fractions, which Boost does not read exactly.
bool equal(const json::value& a, const json::value& b) {
  if (a.is_double() && b.is_double()) {
    constexpr double kTolerance = 1e-15;
    return std::abs(a.get_double() - b.get_double()) <= kTolerance * std::abs(a.get_double());
  }
  if (a.is_array() && b.is_array()) return std::ranges::equal(a.get_array(), b.get_array(), equal);
  if (!a.is_object() || !b.is_object()) return a == b;
  return a.get_object().size() == b.get_object().size() &&
         std::ranges::all_of(a.get_object(), [&](const auto& member) {
           const json::value* const other = b.get_object().if_contains(member.key());
           return other != nullptr && equal(member.value(), *other);
         });
}

// Empty when the case is as recorded, else what is not.
std::string difference(std::string_view field, const json::value& wanted, const json::value& got) {
  if (equal(wanted, got)) return {};
  return std::string(field) + "\n  wanted " + json::serialize(wanted) + "\n  got    " +
         json::serialize(got);
}

std::string check_result(const json::object& wanted, const ConvertedRequest& request) {
  const std::map<std::string_view, json::value> fields = {
      {"model_version", request.version == ModelVersion::kV4 ? "v4" : "v4.1"},
      {"stream", request.stream},
      {"inference", inference_json(request.inference)},
      {"parsing", parsing_json(request.parsing)},
      {"conversation", conversation_json(request.conversation)},
      {"image_sources", images_json(request.images)},
      {"resolve_max_tokens", resolved_json(request, wanted.at("resolve_max_tokens").as_array())}
  };
  for (const auto& [field, got] : fields)
    if (auto found = difference(field, wanted.at(field), got); !found.empty()) return found;
  return {};
}

std::string check_case(const json::object& row) {
  const std::string body(row.at("body_text").as_string());
  const Api api = api_of(std::string_view(row.at("api").as_string())).value();
  const Converted converted = convert(api, body, recipe_options(row.at("options").as_object()));
  const json::value* const error = row.if_contains("error");
  if (error == nullptr) {
    if (!converted) return "refused: " + converted.error().message;
    return check_result(row.at("result").as_object(), *converted);
  }
  const bool is_parse = error->at("stage") == "parse";
  if (converted) return "not refused; wanted " + json::serialize(*error);
  const ConvertError& got = converted.error();
  if (is_parse != (got.stage == ConvertError::Stage::kParse)) return "wrong stage: " + got.message;
  if (is_parse) return got.status == 400 ? "" : "a status that is not 400";
  return difference(
      "error",
      json::object{{"status", error->at("status")}, {"body", error->at("body")}},
      error_json(got)
  );
}

class RecipeConvert : public testing::TestWithParam<const char*> {};

TEST_P(RecipeConvert, EveryCaseIsAsRecorded) {
  const auto lines = read_zst_lines(kRecord);
  if (lines.empty()) GTEST_SKIP() << "no " << kRecord;
  std::map<std::string, std::pair<int, int>> counts;  // category: equal, all
  int shown = 0;
  for (const std::string& line : lines) {
    const json::value row = parse_row(line);
    if (row.at("api") != GetParam()) continue;
    auto& [equal, all] = counts[std::string(row.at("category").as_string())];
    const std::string found = check_case(row.as_object());
    ++all;
    equal += found.empty();
    if (!found.empty() && ++shown <= 20)
      ADD_FAILURE() << row.at("id").as_string() << ": " << found.substr(0, 3000);
  }
  EXPECT_GT(counts.size(), 5U);
  for (const auto& [category, count] : counts) EXPECT_EQ(count.first, count.second) << category;
}

INSTANTIATE_TEST_SUITE_P(
    Api,
    RecipeConvert,
    testing::Values("chat", "messages", "responses"),
    [](const auto& made) { return std::string(made.param); }
);

}  // namespace
}  // namespace artery::codec::api
