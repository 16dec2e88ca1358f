#pragma once
// The three conversions behind convert(). `body`: the text that came; it outlives the call only.

#include <string_view>

#include "codec/api/body.h"
#include "codec/api/convert.h"

namespace artery::codec::api {

// `body` is read (JSON and UTF-8 are fine), its shape is not checked yet.
Converted convert_chat(Body& body, const ConvertOptions& options);
Converted convert_messages(Body& body, const ConvertOptions& options);
Converted convert_responses(Body& body, const ConvertOptions& options);

}  // namespace artery::codec::api
