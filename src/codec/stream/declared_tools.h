#pragma once
// What a request's `tools` say about their parameters, as far as parsers of model output need it.
// Immutable, any thread.

#include <memory>
#include <string>
#include <string_view>

#include "codec/stream/call_parser.h"

namespace artery::codec {

// `tools_json`: the request's array, already checked; anything else declares nothing.
std::shared_ptr<const DeclaredTools> read_declared_tools(std::string_view tools_json);

// The text as JSON: itself where it is JSON, Python's True, False and None in JSON's spelling, a
// string otherwise.
std::string json_or_text(std::string_view text);

}  // namespace artery::codec
