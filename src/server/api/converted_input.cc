#include "server/api/converted_input.h"

#include <string>
#include <utility>

#include "codec/deepseek/encoding.h"
#include "codec/deepseek/output_reader.h"
#include "codec/stream/declared_tools.h"
#include "server/api/cache_wish.h"
#include "server/api/conversation_input.h"
#include "server/api/prompts.h"

namespace artery::server::api {
namespace {

using codec::api::Api;
using codec::api::ConvertedRequest;

// What the answer must look like can only be asked for where it is enforced.
Result<> refuse_constraint(const ConvertedRequest& request) {
  const auto refuse = [](std::string field, std::string_view why) -> Result<> {
    Error error{Code::kUnsupported, field + ": " + std::string(why), {}};
    error.field = std::move(field);
    return tl::unexpected<Error>(std::move(error));
  };
  if (request.beyond.named_tool ||
      request.conversation.tool_choice == codec::api::ToolChoice::kRequired) {
    return refuse("tool_choice", "calls cannot be forced in this version; use \"auto\"");
  }
  const bool is_free = request.conversation.format == codec::api::ResponseFormat::kText;
  if (is_free) return {};
  const std::string_view field = request.api == Api::kResponses  ? "text.format"
                                 : request.api == Api::kMessages ? "output_config.format"
                                                                 : "response_format";
  return refuse(std::string(field), "structured output is not supported by this version");
}

GenerateParams params_of(const ConvertedRequest& request) {
  GenerateParams params;
  params.model = request.model;
  params.n = request.beyond.n;
  params.max_tokens = request.inference.max_tokens.value_or(-1);
  params.stream = request.stream;
  params.stops = request.parsing.stops;
  engine::SamplingParams& sampling = params.sampling;
  sampling.temperature = request.beyond.temperature.value_or(1.0);
  sampling.top_p = request.beyond.top_p.value_or(1.0);
  sampling.top_k = request.beyond.top_k.value_or(0);
  sampling.min_tokens = request.beyond.min_tokens;
  params.ignore_eos = request.beyond.ignore_eos;
  sampling.presence_penalty = request.beyond.presence_penalty;
  sampling.frequency_penalty = request.beyond.frequency_penalty;
  if (request.inference.seed) {
    sampling.seed = static_cast<std::uint64_t>(*request.inference.seed);
    params.has_seed = true;
  }
  if (request.inference.logprobs) params.logprobs = request.inference.top_logprobs.value_or(0);
  return params;
}

Result<> take_deepseek(
    const ConvertedRequest& request,
    const Serving& serving,
    const std::string& field,
    GenerationInput& input
) {
  const codec::deepseek::Rendered prompt =
      codec::deepseek::render(request.conversation, *serving.deepseek);
  auto ids = codec::deepseek::encode(prompt, *serving.tokenizer);
  if (!ids) return fail_field(field, "{}", ids.error().message);
  input.prompts.push_back({ids.take(), prompt.text});
  codec::api::ParsingOptions parsing = request.parsing;
  parsing.stops.clear();  // looked for in what is shown, as of every model
  input.parser = codec::OutputParser(codec::deepseek::make_output_reader(parsing));
  return {};
}

}  // namespace

codec::api::ConvertOptions serving_options(const Serving& serving) {
  codec::api::ConvertOptions options;
  options.rules = codec::api::Rules::kServing;
  options.serving_version = serving.deepseek.value_or(options.serving_version);
  options.messages_web_search = codec::api::WebSearch::kDrop;
  return options;
}

ApiError to_api_error(const codec::api::ConvertError& error) {
  return {error.status, error.type, error.code, error.param.value_or(""), error.message, 0};
}

Result<> take_conversation(
    const ConvertedRequest& request,
    const Serving& serving,
    const PromptLimits& limits,
    const std::string& field,
    GenerationInput& input
) {
  TRY(refuse_constraint(request));
  // Its turns say how long it is worth keeping, whatever renders them.
  const codec::ChatInput chat = TRY(chat_input(request.conversation));
  std::size_t bytes = 0;
  for (const codec::ChatMessage& message : chat.messages) bytes += message.content.size();
  TRY(check_prompt_bytes(bytes, limits.bytes_max, limits.max_model_len, field));
  input.params.cache_seen = observed_class(chat);
  if (serving.deepseek) return take_deepseek(request, serving, field, input);
  input.prompts.push_back(TRY(chat_prompt(serving, chat, true)));
  if (chat.continue_final_message) input.continued = chat.messages.back().content;
  if (!chat.tools_json.empty()) input.tools = codec::read_declared_tools(chat.tools_json);
  return {};
}

Result<GenerationInput> generation_input(
    const ConvertedRequest& request, const Serving& serving, const PromptLimits& limits
) {
  GenerationInput input;
  input.is_chat = true;
  input.params = params_of(request);
  const std::string field = request.api == Api::kResponses ? "input" : "messages";
  TRY(take_conversation(request, serving, limits, field, input));
  input.parallel_calls = request.beyond.parallel_calls;
  if (request.beyond.cache_control_s) {
    input.params.cache_asked = kvstore::ttl_class_for(*request.beyond.cache_control_s);
  }
  return input;
}

}  // namespace artery::server::api
