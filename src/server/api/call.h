#pragma once
// One HTTP request on its way through the API: what came, how to answer, when it began. Shared by
// the steps that work on it, one after the other; answers exactly once.

#include <cstdint>
#include <memory>
#include <string>

#include "base/clock.h"
#include "base/result.h"
#include "server/api/errors.h"
#include "server/http/message.h"

namespace artery::server::api {

struct Call {
  std::shared_ptr<http::Request> request;
  std::shared_ptr<http::ResponseWriter> writer;
  std::string id;         // x-request-id, as sent and cleaned, or made
  http::Headers headers;  // of every answer: x-request-id, CORS
  const Clock* clock = nullptr;
  std::int64_t begin_ns = 0;
  bool log = true;

  double seconds() const { return static_cast<double>(clock->monotonic_ns() - begin_ns) * 1e-9; }
};

// Sends and logs one line (probes and scrapes only at the debug level).
void reply(const Call& call, http::Response response);
void reply_json(const Call& call, int status, std::string json);
void reply_error(const Call& call, const ApiError& error);
void reply_error(const Call& call, const Error& error);

}  // namespace artery::server::api
