#pragma once
// The listening socket and the threads that serve its connections. Owns every connection. Handlers
// run on its threads and must not block. All methods from any thread.

#include <cstdint>
#include <memory>
#include <string>

#include "base/result.h"
#include "server/http/message.h"
#include "server/http/parser.h"

namespace artery::server::http {

struct ListenerConfig {
  std::string host = "127.0.0.1";
  int port = 0;  // 0: the system picks one
  int threads = 2;
  ParserLimits limits;
  int connections_max = 1024;  // beyond: 503 and close
  double header_timeout_s = 30;
  double body_timeout_s = 120;      // plus a second for each 64 KiB that came
  double keep_alive_s = 75;         // an idle connection is closed in silence
  double stall_timeout_s = 60;      // no byte taken by the client for this long: it is given up
  double handshake_timeout_s = 10;  // TLS
  std::size_t bodies_bytes_max = 128u << 20;  // of all requests that are being read or wait
  std::size_t write_bytes_high = 256u << 10;  // pending above this: writable() is false
  std::string tls_cert_file, tls_key_file;    // PEM; both or none
};

// What happened on the listener since its start.
struct ListenerCounts {
  std::int64_t connections = 0;  // open now
  std::int64_t accepted = 0;
  std::int64_t refused_connections = 0;  // beyond connections_max
  std::int64_t stalled = 0;              // clients given up because they did not read
  std::int64_t tls_failures = 0;         // handshakes that failed
  std::int64_t body_bytes = 0;           // of requests being read or waiting, now
};

struct ListenerCalls {
  Handler handler;
  ErrorBody error_body;
  HeadCheck check_head;
};

// True for 127/8, ::1 and names that resolve only to those.
bool is_loopback_host(const std::string& host);

class Listener {
 public:
  // Binds, listens and starts the threads. Certificate or key unusable: kBadFile naming flag and
  // file. kIo when the address is taken or cannot be had: the
  // message names address, port and --port. Without SO_REUSEPORT, so a busy port is always seen.
  static Result<std::unique_ptr<Listener>> open(const ListenerConfig& config, ListenerCalls calls);
  virtual ~Listener() = default;
  virtual int port() const = 0;
  virtual ListenerCounts counts() const = 0;
  // Reads certificate and key again, for connections from now on; after an error the old ones stay.
  virtual Result<> reload_tls() = 0;
  // Every answer from now on closes its connection.
  virtual void begin_drain() = 0;
  // Waits up to `flush_s` for answers that are being written, closes all and joins the threads.
  virtual void stop(double flush_s) = 0;
};

}  // namespace artery::server::http
