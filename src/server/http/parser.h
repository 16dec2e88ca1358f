#pragma once
// Bytes to one HTTP/1.x request, within limits. Wraps Boost.Beast's incremental parser; knows no
// socket, so that the fuzzer can feed it. One thread at a time.

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "server/http/message.h"

namespace artery::server::http {

struct ParserLimits {
  std::size_t header_bytes_max = 64u << 10;  // request line and headers together
  std::size_t headers_max = 256;             // each takes far more memory than its fewest bytes
  std::size_t body_bytes_max = 32u << 20;
};

class RequestParser {
 public:
  enum class State {
    kNeedMore,  // call feed() again with the rest of the bytes and more
    kDone,      // take() has the request; what was not consumed belongs to the next one
    kFailed     // answer failure_status() and close: the byte stream cannot be followed further
  };

  explicit RequestParser(ParserLimits limits);
  ~RequestParser();
  RequestParser(const RequestParser&) = delete;
  RequestParser& operator=(const RequestParser&) = delete;

  // Of this request and all later ones; partial() shows it too, to who judges a head alone.
  void set_peer_is_loopback(bool yes);

  // `bytes` starts where the last call stopped consuming. Sets `consumed`.
  State feed(std::string_view bytes, std::size_t* consumed);

  bool started() const;      // at least one byte of this request came
  bool header_done() const;  // the body, if any, comes next
  // The client waits for "100 Continue" before it sends the body.
  bool expects_continue() const;

  int failure_status() const;  // 400, 413 or 431
  const std::string& failure_message() const;

  // What has come of the request in work: no body after a failure, no path before header_done().
  const Request& partial() const;
  std::size_t body_bytes() const;  // of it, so far

  Request take();  // only after kDone
  void reset();    // ready for the next request

 private:
  struct Impl;
  ParserLimits limits_;
  bool peer_is_loopback_ = false;
  std::unique_ptr<Impl> impl_;
};

}  // namespace artery::server::http
