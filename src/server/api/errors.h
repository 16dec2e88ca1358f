#pragma once
// The one table from Error codes to HTTP: status, OpenAI's error object, Retry-After. Pure
// functions, any thread.

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"
#include "server/http/message.h"

namespace artery::server::api {

struct ApiError {
  int status = 500;
  std::string type;   // "invalid_request_error", ...
  std::string code;   // "context_length_exceeded", ...; empty: null
  std::string param;  // the field at fault; empty: null
  std::string message;
  int retry_after_s = 0;  // 0: no Retry-After
};

// kInternal and the like show `request_id` only, never the message: that goes to the log.
ApiError to_api_error(const Error& error, std::string_view request_id);

enum class ErrorShape : std::uint8_t {
  kOpenAi,    // {"error":{"message","type","param","code"}}
  kAnthropic  // {"type":"error","error":{"type","message"}}
};

std::string error_json(const ApiError& error, ErrorShape shape = ErrorShape::kOpenAi);
http::Response error_response(const ApiError& error, ErrorShape shape = ErrorShape::kOpenAi);
// Of answers on that path (without root_path).
ErrorShape error_shape_of(std::string_view path);

// The server is on its way out.
Error draining_error();

// The error for answers that HTTP itself gives: 400, 403, 405, 408, 413, 415, 431, 503.
ApiError http_error(int status, std::string message);

}  // namespace artery::server::api
