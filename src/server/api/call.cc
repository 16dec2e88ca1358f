#include "server/api/call.h"

#include <algorithm>
#include <utility>

#include "base/log.h"

namespace artery::server::api {

void StatusCounts::count(int status) {
  const auto* at = std::find(kStatuses.begin(), kStatuses.end(), status);
  if (at != kStatuses.end()) ++counts_[static_cast<std::size_t>(at - kStatuses.begin())];
}

std::vector<std::pair<int, std::int64_t>> StatusCounts::all() const {
  std::vector<std::pair<int, std::int64_t>> out;
  for (std::size_t i = 0; i < kStatuses.size(); ++i) {
    if (counts_[i] > 0) out.emplace_back(kStatuses[i], counts_[i].load());
  }
  return out;
}

std::string take_body(Call& call) {
  std::string body = std::exchange(call.request->body, {});
  call.request->body_hold.reset();
  return body;
}

namespace {
// Asked every few seconds by machines, and 503 there is news for the machine only.
bool is_probe(const std::string& path) {
  return path == "/live" || path == "/ready" || path == "/health" || path == "/metrics";
}
}  // namespace

void reply(const Call& call, http::Response response) {
  const int status = response.status;
  response.headers.insert(response.headers.end(), call.headers.begin(), call.headers.end());
  if (call.statuses) call.statuses->count(status);
  if (call.lease) call.lease->release();
  call.writer->send(std::move(response));
  if (!call.log) return;
  const bool quiet =
      call.request->method != "POST" && (status < 400 || is_probe(call.request->path));
  log_at(
      quiet ? LogLevel::kDebug : LogLevel::kInfo,
      "request id={} key={} method={} path={} status={} seconds={:.4f}",
      call.id,
      call.holder ? call.holder->key.name : "-",
      call.request->method,
      call.request->path,
      status,
      call.seconds()
  );
}

void reply_json(const Call& call, int status, std::string json) {
  reply(call, {status, {{"Content-Type", "application/json"}}, std::move(json)});
}

void reply_error(const Call& call, const ApiError& error) {
  reply(call, error_response(error, call.error_shape));
}

void reply_error(const Call& call, const Error& error) {
  const ApiError shown = to_api_error(error, call.id);
  if (shown.status == 500) log_error("request id={} failed: {}", call.id, error.message);
  reply_error(call, shown);
}

}  // namespace artery::server::api
