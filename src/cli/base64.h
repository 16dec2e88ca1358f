#pragma once
// Base64 of RFC 4648 section 4, for bytes in JSON. Pure functions, any thread.

#include <string>
#include <string_view>

#include "base/result.h"

namespace artery::cli {

std::string base64_encode(std::string_view bytes);
// kInvalidArgument: a character outside the alphabet, wrong padding or length.
Result<std::string> base64_decode(std::string_view text);

}  // namespace artery::cli
