#pragma once
// One client's socket: reads requests in order, hands each to the handler, writes the answers in
// order, keeps reading while a request is in work so that a client that goes away is noticed.
// Private to http/: only listener.cc and connection.cc see Asio.
//
// Everything below runs on the connection's strand, except close() and what Exchange calls.

#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "server/http/listener.h"
#include "server/http/message.h"
#include "server/http/parser.h"

namespace artery::server::http {

class Exchange;

// What all connections of a listener share; outlives them.
struct ConnectionContext {
  ListenerConfig config;
  Handler handler;
  ErrorBody error_body;
  boost::asio::io_context io;
  std::atomic<int> connections{0};
  std::atomic<int> writing{0};  // exchanges whose answer is not wholly written yet
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
  enum class Phase { kIdle, kHeader, kBody, kWork, kLinger, kClosed };
  using Time = std::chrono::steady_clock::time_point;

  void read();
  void on_read(const boost::system::error_code& error, std::size_t count);
  void on_input_end(bool reset);
  // Parses what has come; dispatches when a request is whole and none is in work.
  void advance();
  void dispatch();
  void refuse(int status, std::string_view message);

  // From Exchange, posted: bytes to write; `last` ends the exchange.
  void enqueue(const std::shared_ptr<Exchange>& from, std::string bytes, bool last, bool keep);
  void write_next();
  void on_written(const boost::system::error_code& error, std::size_t count);
  void exchange_done(bool keep);
  void linger();
  void close_socket();

  void arm(double seconds);
  void on_timer(const boost::system::error_code& error);
  void on_work_tick();
  void set_phase(Phase phase);
  bool peer_closed() const;  // asks the kernel, for when input is not being read

  std::shared_ptr<ConnectionContext> context_;  // holds the io_context: outlives the socket
  Socket socket_;
  boost::asio::steady_timer timer_;
  RequestParser parser_;
  Phase phase_ = Phase::kIdle;
  Time phase_begin_;
  std::size_t body_seen_ = 0;  // bytes of body read in this phase

  std::string chunk_;  // what the current read fills
  std::string in_;     // read and not parsed yet
  bool reading_ = false;
  bool input_ended_ = false;
  std::size_t lingered_ = 0;

  struct Outgoing {
    std::string bytes;
    bool last = false, keep = false;
    std::shared_ptr<Exchange> exchange;
  };
  std::deque<Outgoing> out_;
  bool writing_ = false;
  bool continue_sent_ = false;
  Time last_write_;
  std::shared_ptr<Exchange> exchange_;  // the request in work
  bool peer_is_loopback_ = false;
};

}  // namespace artery::server::http
