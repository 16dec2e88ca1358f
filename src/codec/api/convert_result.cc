#include <fmt/format.h>

#include <algorithm>

#include "codec/api/convert.h"
#include "codec/api/json_out.h"
#include "codec/api/rules.h"

namespace artery::codec::api {
namespace {

constexpr std::int64_t kPlainTokens = 8192, kThinkingTokens = 65536, kMaxEffortTokens = 131072;

std::int64_t default_max_tokens(const Conversation& conversation) {
  if (!conversation.thinking) return kPlainTokens;
  return conversation.effort == Effort::kMax ? kMaxEffortTokens : kThinkingTokens;
}

}  // namespace

JsonText ConvertError::body() const {
  JsonText text = R"({"error":{"message":)";
  put_json_string(text, message);
  text += R"(,"type":)";
  put_json_string(text, type);
  text += R"(,"param":)";
  if (param)
    put_json_string(text, *param);
  else
    text += "null";
  text += R"(,"code":)";
  put_json_string(text, type);
  text += "}}";
  return text;
}

tl::expected<std::int64_t, ConvertError> ConvertedRequest::resolve_max_tokens(
    std::int64_t prompt_tokens, std::int64_t context_limit
) const {
  const std::int64_t wish = inference.max_tokens.value_or(0);
  if (prompt_tokens > context_limit - wish)
    return refused(fmt::format(
        "This model's maximum context length is {} tokens. However, you requested {} tokens ({} "
        "in the messages, {} in the completion). Please reduce the length of the messages or "
        "completion.",
        context_limit,
        prompt_tokens + wish,
        prompt_tokens,
        wish
    ));
  const std::int64_t most = inference.max_tokens.value_or(default_max_tokens(conversation));
  return std::max<std::int64_t>(std::min(most, context_limit - prompt_tokens), 1);
}

}  // namespace artery::codec::api
