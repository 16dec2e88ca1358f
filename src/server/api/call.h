#pragma once
// One HTTP request on its way through the API: what came, how to answer, when it began. Shared by
// the steps that work on it, one after the other; answers exactly once.

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "server/api/errors.h"
#include "server/api/key_ring.h"
#include "server/http/message.h"

namespace artery::server::api {

// How often each status of 400 and above was answered.
class StatusCounts {
 public:
  void count(int status);
  std::vector<std::pair<int, std::int64_t>> all() const;

 private:
  static constexpr std::array kStatuses = {
      400, 401, 403, 404, 405, 408, 409, 413, 415, 429, 431, 500, 501, 503, 504
  };
  std::array<std::atomic<std::int64_t>, kStatuses.size()> counts_{};
};

struct Call {
  std::shared_ptr<http::Request> request;
  std::shared_ptr<http::ResponseWriter> writer;
  std::string id;         // x-request-id, as sent and cleaned, or made
  http::Headers headers;  // of every answer: x-request-id, CORS
  const Clock* clock = nullptr;
  std::int64_t begin_ns = 0;
  bool log = true;
  std::shared_ptr<StatusCounts> statuses;
  ErrorShape error_shape = ErrorShape::kOpenAi;
  std::shared_ptr<const KeyHolder> holder;  // whose key came with it; null: none is asked for
  std::shared_ptr<KeyLease> lease;          // its place among its key's requests

  double seconds() const { return static_cast<double>(clock->monotonic_ns() - begin_ns) * 1e-9; }
};

// The body, and with it its share of the room for bodies.
std::string take_body(Call& call);

// Sends and logs one line (probes and scrapes only at the debug level).
void reply(const Call& call, http::Response response);
void reply_json(const Call& call, int status, std::string json);
void reply_error(const Call& call, const ApiError& error);
void reply_error(const Call& call, const Error& error);

}  // namespace artery::server::api
