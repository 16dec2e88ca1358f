#pragma once
// Converted requests of the Messages and Responses APIs to what a generation takes. Pure functions
// but for the tokenizer's time, any thread; never on a connection thread.

#include "base/result.h"
#include "codec/api/convert.h"
#include "server/api/errors.h"
#include "server/api/generation.h"
#include "server/server.h"

namespace artery::server::api {

// How a server of this model converts.
codec::api::ConvertOptions serving_options(const Serving& serving);

ApiError to_api_error(const codec::api::ConvertError& error);

struct PromptLimits {
  std::size_t bytes_max = 0;  // 0: no limit
  std::int64_t max_model_len = 0;
};

// Prompt and parameters; the answer's writer is the caller's. kInvalidArgument or kUnsupported
// naming the field that this server cannot honour; kContextLength for a text that cannot fit,
// before it is tokenized.
Result<GenerationInput> generation_input(
    const codec::api::ConvertedRequest& request, const Serving& serving, const PromptLimits& limits
);

// The same of a conversation alone: prompt, how the output is read, and how long it is worth
// keeping. `field`: of the conversation, for errors.
Result<> take_conversation(
    const codec::api::ConvertedRequest& request,
    const Serving& serving,
    const PromptLimits& limits,
    const std::string& field,
    GenerationInput& input
);

}  // namespace artery::server::api
