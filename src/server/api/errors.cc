#include "server/api/errors.h"

#include <fmt/core.h>

#include "server/api/json_writer.h"

namespace artery::server::api {
namespace {

constexpr int kRetryAfterSeconds = 2;

ApiError internal(int status, std::string_view request_id) {
  return {
      status,
      "server_error",
      "internal_error",
      {},
      fmt::format("internal error; the server's log names it under request id {}", request_id),
      0
  };
}

}  // namespace

ApiError to_api_error(const Error& error, std::string_view request_id) {
  const auto make = [&](int status, const char* type, const char* code, int retry = 0) {
    return ApiError{status, type, code, error.field, error.message, retry};
  };
  switch (error.code) {
    case Code::kInvalidArgument:
      return make(400, "invalid_request_error", "invalid_value");
    case Code::kUnsupported:
      return make(501, "invalid_request_error", "unsupported");
    case Code::kContextLength:
      return make(400, "invalid_request_error", "context_length_exceeded");
    case Code::kUnauthorized:
      return make(401, "authentication_error", "invalid_api_key");
    case Code::kNotFound:
      return make(404, "not_found_error", error.field == "model" ? "model_not_found" : "not_found");
    case Code::kTooLarge:
      return make(413, "invalid_request_error", "request_too_large");
    case Code::kOverloaded:
      return make(429, "rate_limit_error", "overloaded", kRetryAfterSeconds);
    case Code::kUnavailable:
      return make(503, "service_unavailable", "unavailable", kRetryAfterSeconds);
    case Code::kCancelled:
      return make(503, "service_unavailable", "cancelled", kRetryAfterSeconds);
    case Code::kDeadlineExceeded:
      return make(504, "server_error", "deadline_exceeded");
    case Code::kBadFile:
    case Code::kOutOfMemory:
    case Code::kIo:
    case Code::kInternal:
      break;
  }
  return internal(500, request_id);
}

Error draining_error() {
  return {Code::kUnavailable, "the server is shutting down; send it elsewhere", {}};
}

ErrorShape error_shape_of(std::string_view path) {
  return path == "/v1/messages" || path.starts_with("/v1/messages/") ? ErrorShape::kAnthropic
                                                                     : ErrorShape::kOpenAi;
}

namespace {

// Anthropic's names (its API's page on errors); its clients choose their exception by status.
std::string_view anthropic_type(const ApiError& error) {
  switch (error.status) {
    case 401:
      return "authentication_error";
    case 403:
      return "permission_error";
    case 404:
      return "not_found_error";
    case 413:
      return "request_too_large";
    case 429:
      return "rate_limit_error";
    case 503:
      return "overloaded_error";
    case 504:
      return "timeout_error";
    default:
      return error.status < 500 || error.status == 501 ? "invalid_request_error" : "api_error";
  }
}

std::string anthropic_json(const ApiError& error) {
  JsonWriter out;
  out.begin_object().field("type", "error").key("error").begin_object();
  out.field("type", anthropic_type(error)).field("message", error.message);
  if (error.code == "thread_unsupported_request") {
    out.key("details").begin_object().field("error_code", error.code);
    out.key("unsupported").begin_array().string(error.param).end_array().end_object();
  }
  out.end_object().end_object();
  return out.take();
}

}  // namespace

std::string error_json(const ApiError& error, ErrorShape shape) {
  if (shape == ErrorShape::kAnthropic) return anthropic_json(error);
  JsonWriter out;
  out.begin_object().key("error").begin_object();
  out.field("message", error.message).field("type", error.type);
  error.param.empty() ? out.key("param").null() : out.field("param", error.param);
  error.code.empty() ? out.key("code").null() : out.field("code", error.code);
  out.end_object().end_object();
  return out.take();
}

http::Response error_response(const ApiError& error, ErrorShape shape) {
  http::Response response;
  response.status = error.status;
  response.headers.emplace_back("Content-Type", "application/json");
  if (error.retry_after_s > 0) {
    response.headers.emplace_back("Retry-After", std::to_string(error.retry_after_s));
  }
  // The official clients repeat a request on any 5xx; asking again will not help here.
  if (error.status == 501) response.headers.emplace_back("x-should-retry", "false");
  if (error.status == 401) response.headers.emplace_back("WWW-Authenticate", "Bearer");
  response.body = error_json(error, shape);
  return response;
}

ApiError http_error(int status, std::string message) {
  ApiError error{status, "invalid_request_error", {}, {}, std::move(message), 0};
  switch (status) {
    case 403:
      error.type = "permission_error";
      error.code = "forbidden";
      break;
    case 404:
      error.type = "not_found_error";
      error.code = "not_found";
      break;
    case 405:
      error.code = "method_not_allowed";
      break;
    case 408:
      error.code = "request_timeout";
      break;
    case 413:
    case 431:
      error.code = "request_too_large";
      break;
    case 415:
      error.code = "unsupported_media_type";
      break;
    case 503:
      error.type = "service_unavailable";
      error.code = "unavailable";
      error.retry_after_s = kRetryAfterSeconds;
      break;
    case 500:
      error.type = "server_error";
      error.code = "internal_error";
      break;
    default:
      error.code = "bad_request";
  }
  return error;
}

}  // namespace artery::server::api
