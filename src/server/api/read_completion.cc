#include <algorithm>
#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <utility>

#include "server/api/requests.h"

namespace artery::server::api {
namespace {

namespace json = boost::json;

PromptInput text_prompt(const json::value& value) {
  PromptInput prompt;
  prompt.text.assign(value.get_string().data(), value.get_string().size());
  return prompt;
}

Result<PromptInput> ids_prompt(
    const json::array& values, const std::string& path, std::int64_t vocab_size
) {
  PromptInput prompt;
  prompt.is_text = false;
  prompt.ids = TRY(read_token_ids(values, path, vocab_size));
  if (prompt.ids.empty()) return fail_field(path, "{} must not be an empty array", path);
  return prompt;
}

// A string, an array of strings, of token ids, or of arrays of token ids.
Result<std::vector<PromptInput>> read_prompts(const Fields& body, std::int64_t vocab_size) {
  const json::value* value = body.find("prompt");
  if (value == nullptr) return fail_field("prompt", "prompt is missing");
  std::vector<PromptInput> prompts;
  if (value->is_string()) {
    prompts.push_back(text_prompt(*value));
    return prompts;
  }
  if (!value->is_array()) {
    return fail_field("prompt", "prompt must be a string or an array, not {}", type_name(*value));
  }
  const json::array& array = value->get_array();
  if (array.empty() || array.front().is_number()) {
    prompts.push_back(TRY(ids_prompt(array, "prompt", vocab_size)));
    return prompts;
  }
  if (array.size() > static_cast<std::size_t>(kPromptsMax)) {
    return fail_field("prompt", "prompt has {} entries; at most {}", array.size(), kPromptsMax);
  }
  for (const json::value& entry : array) {
    const std::string path = "prompt[" + std::to_string(prompts.size()) + "]";
    if (entry.kind() != array.front().kind()) {
      return fail_field("prompt", "prompt must not mix strings and arrays of token ids");
    }
    if (entry.is_string()) {
      prompts.push_back(text_prompt(entry));
    } else if (entry.is_array()) {
      prompts.push_back(TRY(ids_prompt(entry.get_array(), path, vocab_size)));
    } else {
      return fail_field(
          "prompt", "{} must be a string or an array of token ids, not {}", path, type_name(entry)
      );
    }
  }
  return prompts;
}

// "" is OpenAI's spelling of none.
Result<std::string> read_suffix(const Fields& body, const CompletionRequest& request) {
  std::string suffix = TRY(body.text("suffix")).value_or("");
  if (suffix.empty()) return suffix;
  if (request.params.echo) return fail_field("suffix", "suffix and echo do not go together");
  const bool is_text = std::ranges::all_of(request.prompts, &PromptInput::is_text);
  if (!is_text) return fail_field("suffix", "suffix needs a prompt of text, not of token ids");
  return suffix;
}

}  // namespace

Result<CompletionRequest> read_completion(const json::value& value, std::int64_t vocab_size) {
  const Fields body = TRY(Fields::of(value, ""));
  CompletionRequest request;
  request.prompts = TRY(read_prompts(body, vocab_size));
  request.params = TRY(read_params(body, vocab_size));
  request.params.echo = TRY(body.flag("echo", false));
  request.suffix = TRY(read_suffix(body, request));
  request.params.logprobs =
      static_cast<int>(TRY(body.integer("logprobs", 0, kLogprobsMax)).value_or(-1));
  request.params.max_tokens =
      TRY(body.integer("max_tokens", 0, std::int64_t{1} << 62)).value_or(kCompletionTokensDefault);
  if (request.params.max_tokens == 0 && !request.params.echo) {
    return fail_field("max_tokens", "max_tokens must be at least 1 (0 is allowed with echo)");
  }
  return request;
}

Result<TokenizeRequest> read_tokenize(const json::value& value) {
  const Fields body = TRY(Fields::of(value, ""));
  TokenizeRequest request;
  request.model = TRY(body.text("model")).value_or("");
  request.is_chat = body.has("messages");
  if (request.is_chat && body.has("prompt")) {
    return fail_field("prompt", "send prompt or messages, not both");
  }
  if (request.is_chat) {
    request.input = TRY(read_chat_input(body));
  } else {
    const auto prompt = TRY(body.text("prompt"));
    if (!prompt) return fail_field("prompt", "prompt (or messages) is missing");
    request.prompt = *prompt;
  }
  // A template writes its own BOS; only a vocabulary that asks for one gets more (see prompts.h).
  request.add_special = TRY(body.flag("add_special_tokens", true));
  request.return_token_strs = TRY(body.flag("return_token_strs", false));
  return request;
}

Result<DetokenizeRequest> read_detokenize(const json::value& value, std::int64_t vocab_size) {
  const Fields body = TRY(Fields::of(value, ""));
  DetokenizeRequest request;
  request.model = TRY(body.text("model")).value_or("");
  const json::array* tokens = TRY(body.array("tokens"));
  if (tokens == nullptr) return fail_field("tokens", "tokens is missing");
  request.tokens = TRY(read_token_ids(*tokens, "tokens", vocab_size));
  if (body.has("skip_special_tokens")) {
    request.skip_special = TRY(body.flag("skip_special_tokens", false));
  }
  return request;
}

}  // namespace artery::server::api
