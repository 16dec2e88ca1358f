#pragma once
// What submit() refuses before anything is queued. Pure, any thread.

#include "base/result.h"
#include "engine/engine.h"

namespace artery::engine {

// kInvalidArgument with the field's API name; kContextLength with both numbers when the prompt
// leaves no room for a token.
Result<void> check_request(
    const Request& request, std::int64_t vocab_size, std::int64_t max_model_len
);

}  // namespace artery::engine
