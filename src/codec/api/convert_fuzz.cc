// Any bytes as a request of each API, by both sets of rules: refused or converted, never a crash.
// What comes out holds together: errors have a JSON body, schemas are JSON, images have places, and
// the prompt renders.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "codec/api/convert.h"
#include "codec/api/json_tree.h"
#include "codec/deepseek/encoding.h"

namespace {

using namespace artery::codec;
using namespace artery::codec::api;

void require(bool condition) {
  if (!condition) std::abort();
}

void check_error(const ConvertError& error) {
  require(error.status == 400 && !error.message.empty());
  require(JsonTree::parse(error.body()).has_value());
}

void check_tools(const std::vector<Tool>& tools) {
  for (const Tool& tool : tools) require(JsonTree::parse(tool.parameters).has_value());
}

void check_message(const Message& message, std::string_view image_token) {
  require(message.image_places.size() == message.images.size());
  for (const std::size_t place : message.image_places)
    require(message.content.substr(place).starts_with(image_token));
  check_tools(message.tools);
}

void check_request(const ConvertedRequest& request, const ConvertOptions& options) {
  for (const Message& message : request.conversation.messages)
    check_message(message, options.image_token);
  check_tools(request.conversation.tools);
  if (request.conversation.format == ResponseFormat::kJsonSchema)
    require(JsonTree::parse(request.conversation.schema).has_value());
  for (const std::int64_t prompt : {0, 1000, 200000}) {
    const auto tokens = request.resolve_max_tokens(prompt, 100000);
    if (tokens)
      require(*tokens >= 1 && *tokens <= 100000);
    else
      check_error(tokens.error());
  }
  const deepseek::Rendered prompt = deepseek::render(request.conversation, request.version);
  std::size_t end = 0;
  for (const auto& special : prompt.specials) {
    require(special.begin >= end && special.end > special.begin);
    end = special.end;
  }
  require(end <= prompt.text.size());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  ConvertOptions options;
  const std::uint8_t choice = data[0];
  options.rules = (choice & 1) != 0 ? Rules::kServing : Rules::kRecipe;
  options.default_thinking = (choice & 2) == 0;
  if ((choice & 4) != 0) options.missing_reasoning = MissingReasoning::kReject;
  if ((choice & 8) != 0) options.messages_web_search = WebSearch::kDrop;
  if ((choice & 16) != 0) options.serving_version = ModelVersion::kV4;
  const std::string_view body(reinterpret_cast<const char*>(data) + 1, size - 1);
  for (const Api api : {Api::kChat, Api::kMessages, Api::kResponses}) {
    const Converted converted = convert(api, body, options);
    if (converted)
      check_request(*converted, options);
    else
      check_error(converted.error());
  }
  return 0;
}
