#pragma once
// One client's socket: reads requests in order, hands each to the handler, writes the answers in
// order, keeps reading while a request is in work so that a client that goes away is noticed.
// Private to http/: only listener.cc and connection.cc see Asio.
//
// Everything below runs on the connection's strand, except close() and what Exchange calls.

#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/mutex.h"
#include "server/http/listener.h"
#include "server/http/message.h"
#include "server/http/parser.h"

namespace artery::server::http {

class Exchange;

// What all connections of a listener share; outlives them.
struct ConnectionContext {
  using Tls = boost::asio::ssl::context;

  ListenerConfig config;
  ListenerCalls calls;
  boost::asio::io_context io;
  std::atomic<std::int64_t> connections{0}, accepted{0}, refused{0}, stalled{0}, tls_failures{0};
  std::atomic<std::int64_t> writing{0};     // exchanges whose answer is not wholly written yet
  std::atomic<std::int64_t> body_bytes{0};  // of requests being read or waiting for their handler
  std::atomic<bool> draining{false};

  // Null without TLS.
  std::shared_ptr<Tls> tls() const {
    const MutexLock lock(tls_mu_);
    return tls_;
  }
  void set_tls(std::shared_ptr<Tls> tls) {
    const MutexLock lock(tls_mu_);
    tls_ = std::move(tls);
  }

 private:
  mutable Mutex tls_mu_;
  std::shared_ptr<Tls> tls_ GUARDED_BY(tls_mu_);
};

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  using Socket = boost::asio::ip::tcp::socket;

  Connection(Socket socket, std::shared_ptr<ConnectionContext> context);
  ~Connection();

  void start();
  // Answers 503 without reading a request.
  void start_refused();
  // Any thread: closes at once.
  void close();

 private:
  friend class Exchange;
  enum class Phase { kHandshake, kIdle, kHeader, kBody, kWork, kLinger, kClosed };
  using Time = std::chrono::steady_clock::time_point;

  void begin();
  void on_first_byte();
  void on_handshake(const boost::system::error_code& error);
  void begin_requests();

  std::size_t read_bytes() const;
  void read();
  void on_read(const boost::system::error_code& error, std::size_t count);
  void on_input_end(bool reset);
  // Parses what has come; dispatches when a request is whole and none is in work.
  void advance();
  bool body_allowed();
  // Accounts for `bytes` of body held by this connection.
  void hold_body(std::size_t bytes);
  void dispatch();
  void refuse(int status, std::string_view message);
  void refuse_with(Response response);

  // From Exchange, posted: bytes to write; `last` ends the exchange.
  void enqueue(const std::shared_ptr<Exchange>& from, std::string bytes, bool last, bool keep);
  void write_next();
  void on_written(const boost::system::error_code& error, std::size_t count);
  void exchange_done(bool keep);
  void linger();
  // While lingering after TLS has ended: reads and forgets, below TLS.
  void discard_input();
  void give_up_stalled();
  void close_socket();

  void arm(double seconds);
  void on_timer(const boost::system::error_code& error);
  void on_work_tick();
  void set_phase(Phase phase);
  bool peer_closed() const;  // asks the kernel, for when input is not being read

  std::shared_ptr<ConnectionContext> context_;  // holds the io_context: outlives the socket
  Socket socket_;
  std::shared_ptr<ConnectionContext::Tls> tls_context_;     // what tls_ works with
  std::unique_ptr<boost::asio::ssl::stream<Socket&>> tls_;  // null: plain HTTP
  boost::asio::steady_timer timer_;
  RequestParser parser_;
  Phase phase_ = Phase::kHandshake;
  Time phase_begin_;
  std::size_t body_seen_ = 0;  // bytes of body read in this phase
  std::size_t body_held_ = 0;  // counted in the context's body_bytes

  std::string chunk_;  // what the current read fills
  std::string in_;     // read and not parsed yet
  bool reading_ = false;
  bool input_ended_ = false;
  std::size_t lingered_ = 0;
  std::string discarded_;
  bool discarding_ = false;

  struct Outgoing {
    std::string bytes;
    bool last = false, keep = false;
    std::shared_ptr<Exchange> exchange;
  };
  std::deque<Outgoing> out_;
  std::size_t out_written_ = 0;  // of the first of out_
  bool writing_ = false;
  bool continue_sent_ = false;
  Time last_write_;
  std::shared_ptr<Exchange> exchange_;  // the request in work
  bool over_limit_ = false;             // told 503 as soon as it can be told anything
};

}  // namespace artery::server::http
