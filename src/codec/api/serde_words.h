#pragma once
// What serde says of a value that it did not want, as the official package's error texts repeat it.
// Pure functions, any thread.

#include <string>
#include <string_view>

namespace artery::codec::api {

class Json;

// "integer `3`", "string \"x\"", "map", "sequence", "null", "boolean `true`",
// "floating point `1.5`"
std::string unexpected(const Json& value);
// "invalid type: <the above>, expected <wanted>"
std::string invalid_type(const Json& value, std::string_view wanted);
// "invalid value: ..."
std::string invalid_value(const Json& value, std::string_view wanted);
// A string as Rust's {:?} shows it, with quotes.
std::string rust_debug(std::string_view text);

}  // namespace artery::codec::api
