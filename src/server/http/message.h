#pragma once
// What a handler sees of HTTP: plain structs and one writer interface. No Beast, no Asio and no
// JSON here. A Request belongs to its handler; a ResponseWriter may be used from any thread.

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace artery::server::http {

using Headers = std::vector<std::pair<std::string, std::string>>;

struct Request {
  std::string method;  // as sent: "GET"
  std::string target;  // as sent: "/tokenize?x=1"
  std::string path;    // without the query and, for absolute forms, without scheme and host
  std::string query;   // without '?'
  int version = 11;    // 10 or 11
  bool keep_alive = true;
  bool peer_is_loopback = false;
  Headers headers;  // names in lower case, in the order they came
  std::string body;
  // Counts the body against the listener's limit for all of them; let go when the body is.
  std::shared_ptr<void> body_hold;

  // The first header of that (lower-case) name; empty when there is none.
  std::string_view header(std::string_view name) const;
  bool has_header(std::string_view name) const;
};

struct Response {
  int status = 200;
  Headers headers;  // without Content-Length, Connection and Date: the connection adds them
  std::string body;
};

// The connection writes `text` into an open stream whenever it stayed silent for `seconds`.
struct Heartbeat {
  std::string text;
  double seconds = 0;  // 0: none
};

// The way back to one client for one request. Exactly one of send() or start_stream() ... finish();
// a writer that is dropped before that answers 500 (or cuts the stream). Calls after the client
// went away do nothing.
class ResponseWriter {
 public:
  virtual ~ResponseWriter() = default;

  virtual void send(Response response) = 0;
  // Status line and headers leave at once; the body follows in write() calls, chunked on HTTP/1.1.
  virtual void start_stream(int status, Headers headers, Heartbeat heartbeat) = 0;
  virtual void write(std::string_view bytes) = 0;
  virtual void finish() = 0;

  // True once the client closed, reset or half-closed its side, or was given up as stalled.
  virtual bool gone() const = 0;
  // Gone because it took no byte for longer than the listener waits.
  virtual bool stalled() const = 0;
  // Called once, from a connection thread (or at once, when already gone). Must not block.
  virtual void on_gone(std::function<void()> callback) = 0;
  // False while the client reads too slowly; then the on_drained callback comes when it caught up.
  virtual bool writable() = 0;
  virtual void on_drained(std::function<void()> callback) = 0;
};

// Called on a connection thread: it must not block, heavy work goes to a worker.
using Handler = std::function<void(std::shared_ptr<Request>, std::shared_ptr<ResponseWriter>)>;

// Makes an answer that the connection gives by itself (400, 408, 413, 431, 500, 503). `request` is
// what came of the request: its headers may be missing, its body is.
using ErrorBody =
    std::function<Response(const Request& request, int status, std::string_view message)>;

// Looks at a request whose body is still to come; an answer here spares both sides the body. Must
// not block.
using HeadCheck = std::function<std::optional<Response>(const Request& request)>;

std::string_view status_text(int status);

}  // namespace artery::server::http
