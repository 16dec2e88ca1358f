#include "engine/check_request.h"

#include <cmath>

namespace artery::engine {
namespace {

constexpr int kChoicesMax = 128;
constexpr double kTemperatureMax = 100;

Result<void> in_range(const char* field, double value, double low, double high) {
  if (value >= low && value <= high) return {};  // false for NaN
  return fail_field(field, "{} is {}, allowed is {} to {}", field, value, low, high);
}

Result<void> check_tokens(
    const char* field, const std::vector<TokenId>& tokens, std::int64_t vocab_size
) {
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] >= 0 && tokens[i] < vocab_size) continue;
    return fail_field(
        field,
        "{}[{}] is token {}, the vocabulary has ids 0 to {}",
        field,
        i,
        tokens[i],
        vocab_size - 1
    );
  }
  return {};
}

Result<void> check_sampling(const SamplingParams& params, std::int64_t vocab_size) {
  TRY(in_range("temperature", params.temperature, 0, kTemperatureMax));
  TRY(in_range("top_p", params.top_p, 0, 1));
  if (params.top_p == 0) return fail_field("top_p", "top_p is 0, it must be above 0");
  TRY(in_range("min_p", params.min_p, 0, 1));
  TRY(in_range("top_k", params.top_k, -1, 1e9));
  TRY(in_range("presence_penalty", params.presence_penalty, -1e3, 1e3));
  TRY(in_range("frequency_penalty", params.frequency_penalty, -1e3, 1e3));
  TRY(in_range("repetition_penalty", params.repetition_penalty, 1e-3, 1e3));
  TRY(in_range("logprobs", params.logprobs, -1, static_cast<double>(vocab_size)));
  TRY(in_range("min_tokens", params.min_tokens, 0, 1e9));
  TRY(check_tokens("stop_token_ids", params.stop_ids, vocab_size));
  for (const auto& [token, bias] : params.logit_bias) {
    TRY(check_tokens("logit_bias", {token}, vocab_size));
    TRY(in_range("logit_bias", bias, -1e6, 1e6));
  }
  return {};
}

}  // namespace

Result<void> check_request(
    const Request& request, std::int64_t vocab_size, std::int64_t max_model_len
) {
  if (request.prompt.empty()) return fail_field("prompt", "the prompt has no tokens");
  TRY(check_tokens("prompt", request.prompt, vocab_size));
  TRY(check_tokens("resume_tokens", request.resume_tokens, vocab_size));
  TRY(in_range("n", request.n, 1, kChoicesMax));
  TRY(in_range("prompt_logprobs", request.prompt_logprobs, -1, static_cast<double>(vocab_size)));
  TRY(check_sampling(request.sampling, vocab_size));
  const bool only_prompt = request.max_tokens == 0;
  if (request.max_tokens < -1) {
    return fail_field("max_tokens", "max_tokens is {}, it must be at least 1", request.max_tokens);
  }
  if (request.max_tokens >= 0 && request.sampling.min_tokens > request.max_tokens) {
    return fail_field(
        "min_tokens",
        "min_tokens is {}, more than max_tokens {}",
        request.sampling.min_tokens,
        request.max_tokens
    );
  }
  if (only_prompt && (request.prompt_logprobs < 0 || !request.resume_tokens.empty())) {
    return fail_field("max_tokens", "max_tokens 0 is allowed only with echo or prompt logprobs");
  }
  if (!request.resume_tokens.empty() && (request.n != 1 || request.prompt_logprobs >= 0)) {
    return fail_field("resume_tokens", "resume_tokens go with one choice and no prompt logprobs");
  }
  const auto tokens =
      static_cast<std::int64_t>(request.prompt.size() + request.resume_tokens.size());
  if (tokens + (only_prompt ? 0 : 1) > max_model_len) {
    return fail(
        Code::kContextLength,
        "the prompt has {} tokens and this model's context is {} tokens{}; shorten the prompt",
        tokens,
        max_model_len,
        tokens == max_model_len ? ", which leaves no room for an answer" : ""
    );
  }
  return {};
}

}  // namespace artery::engine
