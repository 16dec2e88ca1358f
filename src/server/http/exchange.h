#pragma once
// The ResponseWriter of one request on one connection: turns calls from any thread into framed
// bytes, posted to the connection's strand in call order. Private to http/.

#include <atomic>
#include <boost/asio/any_io_executor.hpp>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/mutex.h"
#include "server/http/message.h"

namespace artery::server::http {

class Connection;
struct ConnectionContext;

class Exchange : public std::enable_shared_from_this<Exchange> {
 public:
  Exchange(
      std::weak_ptr<Connection> connection,
      boost::asio::any_io_executor strand,
      std::shared_ptr<ConnectionContext> context,
      const Request& request
  );
  ~Exchange();

  void send(Response response);
  void start_stream(int status, Headers headers, Heartbeat heartbeat);
  void write(std::string_view bytes);
  void finish();
  // The writer was dropped: 500, or a cut stream.
  void abandon();

  bool gone() const { return gone_.load(); }
  bool stalled() const { return stalled_.load(); }
  void on_gone(std::function<void()> callback);
  bool writable();
  void on_drained(std::function<void()> callback);

  // From the connection.
  void notify_gone(bool stalled);
  // The answer is wholly written, or never will be.
  void settle();
  void detach();
  void notify_written(std::size_t count);
  // Bytes of a comment, framed; empty when no stream is open or it is not time yet.
  std::string heartbeat_frame(double silent_s, double tick_s);

 private:
  enum class State { kFresh, kStreaming, kFinished };
  std::string head(int status, const Headers& headers, std::string_view framing) const
      REQUIRES(mu_);
  std::string frame(std::string_view bytes) const;
  void post(std::string bytes, bool last) REQUIRES(mu_);

  // Holds the io_context that strand_ belongs to, so it is declared before it.
  const std::shared_ptr<ConnectionContext> context_;
  const std::weak_ptr<Connection> connection_;
  const boost::asio::any_io_executor strand_;
  const bool is_head_;
  const bool is_http_1_0_;
  const std::string request_id_;  // echoed by the 500 of an abandoned request
  std::atomic<bool> gone_{false}, stalled_{false};
  std::atomic<bool> settled_{false};
  std::atomic<std::size_t> pending_{0};

  Mutex mu_;
  State state_ GUARDED_BY(mu_) = State::kFresh;
  bool detached_ GUARDED_BY(mu_) = false;  // the connection is closed: nothing is posted any more
  bool keep_alive_ GUARDED_BY(mu_);
  bool wants_drained_ GUARDED_BY(mu_) = false;
  Heartbeat heartbeat_ GUARDED_BY(mu_);
  std::function<void()> on_gone_ GUARDED_BY(mu_);
  std::function<void()> on_drained_ GUARDED_BY(mu_);
};

// The ResponseWriter handed to handlers; its destructor tells the exchange that nobody will answer.
std::shared_ptr<ResponseWriter> make_writer(std::shared_ptr<Exchange> exchange);

}  // namespace artery::server::http
