#include <boost/json/value.hpp>
#include <utility>

#include "base/random.h"
#include "codec/infill.h"
#include "codec/stream/declared_tools.h"
#include "server/api/app.h"
#include "server/api/converted_input.h"
#include "server/api/json_reader.h"
#include "server/api/json_writer.h"
#include "server/api/prompts.h"
#include "server/api/requests.h"

namespace artery::server::api {

namespace {
// Memory of a body's values, by the largest body: long texts and token ids as they come in prompts
// fit; a body of nothing but the smallest values takes twelve times its size and does not.
constexpr std::size_t kJsonMemoryFactor = 2, kJsonMemoryMin = 4u << 20;

// vLLM's switch, by both of its names; `thinking` and `reasoning_effort` of the request win.
Result<codec::api::ConvertOptions> chat_options(
    const boost::json::value& value, const Serving& serving
) {
  codec::api::ConvertOptions options = serving_options(serving);
  const Fields body = TRY(Fields::of(value, ""));
  const boost::json::value* found = body.find("chat_template_kwargs");
  if (found == nullptr || found->is_null()) return options;
  const Fields kwargs = TRY(Fields::of(*found, "chat_template_kwargs"));
  for (const char* name : {"thinking", "enable_thinking"})
    options.default_thinking = TRY(kwargs.flag(name, options.default_thinking));
  return options;
}

Result<> take_deepseek_chat(
    const Live& live, std::string_view text, const boost::json::value& body, GenerationInput& input
) {
  const auto options = TRY(chat_options(body, *live.serving));
  const auto converted = codec::api::convert(codec::api::Api::kChat, text, options);
  if (!converted) {
    const codec::api::ConvertError& error = converted.error();
    return tl::unexpected<Error>(
        Error{Code::kInvalidArgument, error.message, error.param.value_or("messages")}
    );
  }
  const PromptLimits limits{live.prompt_bytes_max, live.max_model_len};
  return take_conversation(*converted, *live.serving, limits, "messages", input);
}
}  // namespace

Result<boost::json::value> App::read_body(Call& call) const {
  // The text is not needed beside its value.
  const std::string body = std::exchange(call.request->body, {});
  const auto hold = std::move(call.request->body_hold);
  return parse_body(body);
}

Result<boost::json::value> App::parse_body(std::string_view body) const {
  const std::size_t memory_max = kJsonMemoryMin + kJsonMemoryFactor * config_.body_bytes_max;
  return parse_json(body, config_.json_depth_max, memory_max);
}

void App::tokenize(Call& call) {
  const auto now = live_or_refuse(call);
  if (!now) return;
  const auto work = [&]() -> Result<std::string> {
    const std::string text = take_body(call);
    const boost::json::value body = TRY(parse_body(text));
    const TokenizeRequest request = TRY(read_tokenize(body));
    TRY(check_model(*now, request.model));
    std::vector<TokenId> ids;
    if (request.is_chat && now->serving->deepseek) {
      GenerationInput input;
      TRY(take_deepseek_chat(*now, text, body, input));
      ids = std::move(input.prompts.front().ids);
    } else if (request.is_chat) {
      ids = TRY(chat_prompt(*now->serving, request.input, request.add_special)).ids;
    } else if (auto prompt =
                   text_prompt(*now->serving, request.prompt, request.add_special, "prompt")) {
      ids = std::move(prompt->ids);  // an empty text has no tokens; that is an answer here
    }
    JsonWriter out;
    out.begin_object().field("count", static_cast<std::int64_t>(ids.size()));
    out.field("max_model_len", now->max_model_len).key("tokens").begin_array();
    for (const TokenId id : ids) out.integer(id);
    out.end_array().key("token_strs");
    if (request.return_token_strs) {
      out.begin_array();
      for (const TokenId id : ids) out.string(token_text(*now->serving->tokenizer, id));
      out.end_array();
    } else {
      out.null();
    }
    out.end_object();
    return out.take();
  };
  auto json = work();
  json ? reply_json(call, 200, json.take()) : reply_error(call, json.error());
}

void App::detokenize(Call& call) {
  const auto now = live_or_refuse(call);
  if (!now) return;
  const auto work = [&]() -> Result<std::string> {
    const boost::json::value body = TRY(read_body(call));
    const codec::Tokenizer& tokenizer = *now->serving->tokenizer;
    const codec::VocabData& vocab = tokenizer.vocab();
    DetokenizeRequest request =
        TRY(read_detokenize(body, static_cast<std::int64_t>(vocab.tokens.size())));
    TRY(check_model(*now, request.model));
    std::vector<TokenId>& ids = request.tokens;
    if (!request.skip_special) {
      // The inverse of /tokenize: what add_special_tokens put around the text is not text.
      if (vocab.add_bos && !ids.empty() && ids.front() == vocab.bos) ids.erase(ids.begin());
      if (vocab.add_eos && !ids.empty() && ids.back() == vocab.eos) ids.pop_back();
    }
    JsonWriter out;
    out.begin_object();
    out.field("prompt", tokenizer.decode(ids, request.skip_special.value_or(false)));
    out.end_object();
    return out.take();
  };
  auto json = work();
  json ? reply_json(call, 200, json.take()) : reply_error(call, json.error());
}

void App::chat_completions(Call& call) { generate(call, true); }
void App::completions(Call& call) { generate(call, false); }

// The codec's reader takes the conversation, ours what the engine needs beside it.
Result<GenerationInput> App::read_deepseek_chat_for(const Live& live, Call& call) const {
  const std::string text = take_body(call);
  const boost::json::value body = TRY(parse_body(text));
  ChatRequest request =
      TRY(read_chat_settings(body, live.serving->engine->model_info().vocab_size));
  TRY(check_model(live, request.params.model));
  GenerationInput input;
  input.is_chat = true;
  input.params = std::move(request.params);
  TRY(take_deepseek_chat(live, text, body, input));
  input.parallel_calls = request.parallel_calls;
  input.include_reasoning = request.include_reasoning;
  return input;
}

Result<GenerationInput> App::read_chat_input_for(const Live& live, Call& call) const {
  if (live.serving->deepseek) return read_deepseek_chat_for(live, call);
  const boost::json::value body = TRY(read_body(call));
  ChatRequest request = TRY(read_chat(body, live.serving->engine->model_info().vocab_size));
  TRY(check_model(live, request.params.model));
  std::size_t bytes = 0;
  for (const codec::ChatMessage& message : request.input.messages) bytes += message.content.size();
  TRY(check_prompt_bytes(bytes, live.prompt_bytes_max, live.max_model_len, "messages"));
  GenerationInput input;
  input.is_chat = true;
  input.prompts.push_back(TRY(chat_prompt(*live.serving, request.input, true)));
  if (request.input.continue_final_message) {
    input.continued = request.input.messages.back().content;
  }
  input.params = std::move(request.params);
  if (!request.input.tools_json.empty()) {
    input.tools = codec::read_declared_tools(request.input.tools_json);
  }
  input.parallel_calls = request.parallel_calls;
  input.include_reasoning = request.include_reasoning;
  return input;
}

Result<GenerationInput> App::read_completion_input_for(const Live& live, Call& call) const {
  const boost::json::value body = TRY(read_body(call));
  CompletionRequest request =
      TRY(read_completion(body, live.serving->engine->model_info().vocab_size));
  TRY(check_model(live, request.params.model));
  GenerationInput input;
  for (std::size_t i = 0; i < request.prompts.size(); ++i) {
    PromptInput& prompt = request.prompts[i];
    const std::string field =
        request.prompts.size() == 1 ? "prompt" : "prompt[" + std::to_string(i) + "]";
    if (prompt.is_text) {
      const std::size_t bytes = prompt.text.size() + request.suffix.size();
      TRY(check_prompt_bytes(bytes, live.prompt_bytes_max, live.max_model_len, field));
    }
    if (!request.suffix.empty()) {
      input.prompts.push_back(TRY(gap_prompt(*live.serving, prompt.text, request.suffix)));
    } else if (prompt.is_text) {
      input.prompts.push_back(TRY(text_prompt(*live.serving, prompt.text, true, field)));
    } else {
      input.prompts.push_back(
          TRY(ids_prompt(*live.serving, std::move(prompt.ids), request.params.skip_special))
      );
    }
  }
  if (!request.suffix.empty()) {
    input.end_ids = codec::infill_ends(live.serving->tokenizer->vocab());
  }
  input.params = std::move(request.params);
  return input;
}

void App::generate(Call& call, bool is_chat) {
  const auto now = live_or_refuse(call);
  if (!now) return;
  if (draining_) {
    reply_error(call, draining_error());
    return;
  }
  auto input = is_chat ? read_chat_input_for(*now, call) : read_completion_input_for(*now, call);
  if (!input) {
    reply_error(call, input.error());
    return;
  }
  begin_generation(call, now, input.take());
}

void App::begin_generation(
    Call& call, const std::shared_ptr<const Live>& live, GenerationInput input
) {
  if (input.params.model.empty()) input.params.model = live->names.front();
  // Drawn here, so that it travels with the request wherever it runs or starts again.
  if (!input.params.has_seed) {
    input.params.sampling.seed = config_.seed ? *config_.seed : system_random().next();
  }
  const GenerationContext context{
      live->serving,
      live->metrics,
      light_,
      backlog_,
      static_cast<double>(config_.sse_comment_s),
      config_.cache_ttl
  };
  auto generation = std::make_shared<Generation>(call, context, std::move(input));
  const std::uint64_t number = next_number_++;
  {
    const MutexLock lock(mu_);
    generations_.emplace(number, generation);
  }
  if (!generation->start([this, number] { forget(number); })) forget(number);
}

}  // namespace artery::server::api
