#pragma once
// The output of gpt-oss: channels for reasoning, text and calls in one machine. Format: OpenAI's
// "harmony response format" guide.
//
//   <|channel|>analysis<|message|>...<|end|>
//   <|start|>assistant<|channel|>commentary to=functions.NAME
//   <|constrain|>json<|message|>{...}<|call|>
//   <|start|>assistant<|channel|>final<|message|>...<|return|>

#include <memory>

#include "codec/stream/call_parser.h"

namespace artery::codec {

// `with_calls`: the request may be answered by calls; without, a call's text is content.
std::unique_ptr<CallParser> make_harmony(const CallParserStart& start, bool with_calls);

}  // namespace artery::codec
