#pragma once
// Log probabilities as the Responses API shows them (the record's R10). Pure, any thread.

#include <span>
#include <string>

#include "codec/api/output_sink.h"

namespace artery::codec::api {

// {"token":...,"logprob":...,"bytes":[...],"top_logprobs":[...]}, joined by commas. A value that is
// no number: recipe writes null, safe -9999.0 (the official API's "out of sight": typed clients
// refuse null).
void append_logprobs(
    std::string& out, std::span<const TokenLogprob> logprobs, Faithfulness faithfulness
);

}  // namespace artery::codec::api
