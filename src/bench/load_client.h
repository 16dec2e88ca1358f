#pragma once
// The load generator's client: HTTP/1.1 to one OpenAI-compatible server, all streams on one thread
// (the caller of run()), each piece of an answer stamped as it is read. load_client.cc is the one
// file of this room that sees Asio and Beast, with server_calls.cc.

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "bench/workload.h"

namespace artery::bench {

struct ServerAddress {
  std::string host;
  std::string port = "80";
  std::string prefix;  // of every path: "" or "/base"
  std::string shown;   // as given
};
// "http://host[:port][/prefix]". kInvalidArgument; kUnsupported for https.
Result<ServerAddress> parse_base_url(std::string_view url);

// The header lines of a request with a JSON body (none for GET), ready to send.
std::string http_request(
    const ServerAddress& server,
    std::string_view method,
    std::string_view path,
    std::string_view api_key,
    std::string_view body
);

enum class Outcome { kOk, kFailed, kUnfinished };  // unfinished: the run was stopped

struct RequestRecord {
  Outcome outcome = Outcome::kUnfinished;
  std::string error_kind;  // "connect", "http 429", "cut off", "timeout", "error event", ...
  std::string error;
  double due_s = 0;                // when it should have been sent, from the start of the run
  double start_s = 0;              // when it was: later under --max-concurrency
  double ttft_s = 0;               // start to the first token
  double latency_s = 0;            // start to the last token
  std::vector<float> gaps_s;       // between the chunks that carry tokens
  std::int64_t input_tokens = 0;   // from usage, else as the data set counted
  std::int64_t output_tokens = 0;  // from usage, else chunks
  std::int64_t asked_tokens = 0;
  std::int64_t cached_tokens = -1;  // -1: the server does not tell
  bool usage = false;               // the server told its token counts
};

struct LoadConfig {
  ServerAddress server;
  std::string path = "/v1/completions";
  std::string api_key;
  std::int64_t max_concurrency = 0;  // 0: no limit
  double timeout_s = 3600;           // of one request
  // Body of a request, JSON.
  std::function<std::string(const WorkRequest&)> body;
};

struct LoadProgress {
  std::int64_t done = 0, failed = 0, running = 0, chunks = 0;
};

struct LoadResult {
  std::vector<RequestRecord> records;  // in the order of the requests
  double duration_s = 0;               // start to the last end
  double client_cpu = 0;               // share of one core this thread used
  double client_lag_ms = 0;            // latest that a timer of this thread fired
};

class LoadRun {
 public:
  // `requests` outlives this.
  LoadRun(LoadConfig config, const std::vector<WorkRequest>& requests, const Clock& clock);
  ~LoadRun();
  // Sends everything and returns when all is answered or stop() was called. kIo when the host has
  // no address.
  Result<LoadResult> run();
  // Any thread, at any time, again and again.
  void stop();
  LoadProgress progress() const;  // any thread

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace artery::bench
