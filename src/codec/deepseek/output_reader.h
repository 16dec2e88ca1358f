#pragma once
// DeepSeek's output machine as a server reads every model's output: in safe mode, into the events
// of codec/stream. Any thread.

#include <memory>

#include "codec/api/convert.h"
#include "codec/stream/output_reader.h"

namespace artery::codec::deepseek {

// `parsing`: of the request (ConvertedRequest::parsing). Its stop sequences end the answer here;
// leave them out where the caller looks for them itself.
std::unique_ptr<OutputReader> make_output_reader(const api::ParsingOptions& parsing);

}  // namespace artery::codec::deepseek
