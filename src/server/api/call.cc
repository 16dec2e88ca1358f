#include "server/api/call.h"

#include <utility>

#include "base/log.h"

namespace artery::server::api {

void reply(const Call& call, http::Response response) {
  const int status = response.status;
  response.headers.insert(response.headers.end(), call.headers.begin(), call.headers.end());
  call.writer->send(std::move(response));
  if (!call.log) return;
  const bool quiet = call.request->method != "POST" && status < 400;
  log_at(
      quiet ? LogLevel::kDebug : LogLevel::kInfo,
      "request id={} method={} path={} status={} seconds={:.4f}",
      call.id,
      call.request->method,
      call.request->path,
      status,
      call.seconds()
  );
}

void reply_json(const Call& call, int status, std::string json) {
  reply(call, {status, {{"Content-Type", "application/json"}}, std::move(json)});
}

void reply_error(const Call& call, const ApiError& error) { reply(call, error_response(error)); }

void reply_error(const Call& call, const Error& error) {
  const ApiError shown = to_api_error(error, call.id);
  if (shown.status == 500) log_error("request id={} failed: {}", call.id, error.message);
  reply_error(call, shown);
}

}  // namespace artery::server::api
