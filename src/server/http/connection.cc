#include "server/http/connection.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <boost/asio/bind_executor.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/write.hpp>
#include <exception>
#include <utility>

#include "base/log.h"
#include "server/http/exchange.h"

namespace artery::server::http {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;

constexpr std::size_t kReadBytes = 64u << 10;
constexpr std::size_t kLingerBytesMax = 64u << 20;
constexpr double kLingerSeconds = 2;
constexpr double kWorkTickSeconds = 0.2;
constexpr std::size_t kSlowBodyBytesPerSecond = 64u << 10;

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace

Connection::Connection(Socket socket, std::shared_ptr<ConnectionContext> context)
    : context_(std::move(context)),
      socket_(std::move(socket)),
      timer_(socket_.get_executor()),
      parser_(context_->config.limits) {
  ++context_->connections;
  error_code ignored;
  socket_.set_option(asio::ip::tcp::no_delay(true), ignored);
  const auto peer = socket_.remote_endpoint(ignored);
  if (!ignored) {
    const auto address = peer.address();
    peer_is_loopback_ =
        address.is_loopback() ||
        (address.is_v6() && address.to_v6().is_v4_mapped() &&
         asio::ip::make_address_v4(asio::ip::v4_mapped, address.to_v6()).is_loopback());
  }
}

Connection::~Connection() { --context_->connections; }

void Connection::start() {
  asio::post(socket_.get_executor(), [self = shared_from_this()] {
    self->set_phase(Phase::kHeader);
    self->read();
  });
}

void Connection::start_refused() {
  asio::post(socket_.get_executor(), [self = shared_from_this()] {
    self->refuse(
        503,
        "too many connections: " + std::to_string(self->context_->config.connections_max) +
            " are open already"
    );
    self->read();
  });
}

void Connection::close() {
  asio::post(socket_.get_executor(), [self = shared_from_this()] { self->close_socket(); });
}

void Connection::read() {
  if (reading_ || input_ended_ || phase_ == Phase::kClosed) return;
  // While a request is in work, at most one more is read ahead: without a limit a client could fill
  // the memory. Beyond it on_work_tick watches for a client that leaves.
  const ParserLimits& limits = context_->config.limits;
  if (phase_ == Phase::kWork && in_.size() >= limits.header_bytes_max + limits.body_bytes_max) {
    return;
  }
  reading_ = true;
  chunk_.resize(kReadBytes);
  socket_.async_read_some(
      asio::buffer(chunk_),
      [self = shared_from_this()](const error_code& error, std::size_t count) {
        self->on_read(error, count);
      }
  );
}

void Connection::on_read(const error_code& error, std::size_t count) {
  reading_ = false;
  if (phase_ == Phase::kClosed) return;
  if (error) {
    on_input_end(error != asio::error::eof);
    return;
  }
  if (phase_ == Phase::kLinger) {
    lingered_ += count;
    if (lingered_ > kLingerBytesMax) {
      close_socket();
      return;
    }
  } else {
    if (phase_ == Phase::kIdle) set_phase(Phase::kHeader);
    if (phase_ == Phase::kBody) body_seen_ += count;
    in_.append(chunk_, 0, count);
    if (phase_ != Phase::kWork) advance();
  }
  read();
}

void Connection::on_input_end(bool reset) {
  input_ended_ = true;
  if (exchange_) exchange_->notify_gone();
  // After a half-close the answer of a request that needs no generation can still be delivered.
  if (reset || phase_ != Phase::kWork) close_socket();
}

void Connection::advance() {
  while (phase_ != Phase::kWork && phase_ != Phase::kLinger && phase_ != Phase::kClosed) {
    if (in_.empty()) break;
    std::size_t consumed = 0;
    const RequestParser::State state = parser_.feed(in_, &consumed);
    in_.erase(0, consumed);
    if (state == RequestParser::State::kFailed) {
      refuse(parser_.failure_status(), parser_.failure_message());
      return;
    }
    if (state == RequestParser::State::kDone) {
      dispatch();
      continue;
    }
    if (parser_.header_done() && phase_ != Phase::kBody) {
      set_phase(Phase::kBody);
      if (parser_.expects_continue() && !continue_sent_) {
        continue_sent_ = true;
        out_.push_back({"HTTP/1.1 100 Continue\r\n\r\n", false, false, nullptr});
        write_next();
      }
    } else if (phase_ == Phase::kIdle && parser_.started()) {
      set_phase(Phase::kHeader);
    }
    break;
  }
  if (input_ended_ && phase_ != Phase::kWork) close_socket();
}

void Connection::dispatch() {
  auto request = std::make_shared<Request>(parser_.take());
  parser_.reset();
  continue_sent_ = false;
  request->peer_is_loopback = peer_is_loopback_;
  exchange_ =
      std::make_shared<Exchange>(weak_from_this(), socket_.get_executor(), context_, *request);
  set_phase(Phase::kWork);
  if (input_ended_) exchange_->notify_gone();
  auto writer = make_writer(exchange_);
  try {
    context_->handler(std::move(request), std::move(writer));
  } catch (const std::exception& error) {
    // The dropped writer answers 500.
    log_error("http handler failed: {}", error.what());
  }
}

void Connection::refuse(int status, std::string_view message) {
  Request none;
  none.keep_alive = false;
  exchange_ = std::make_shared<Exchange>(weak_from_this(), socket_.get_executor(), context_, none);
  set_phase(Phase::kWork);
  in_.clear();
  exchange_->send(context_->error_body(status, message));
}

void Connection::enqueue(
    const std::shared_ptr<Exchange>& from, std::string bytes, bool last, bool keep
) {
  if (phase_ == Phase::kClosed || from != exchange_) return;
  out_.push_back({std::move(bytes), last, keep, from});
  write_next();
}

void Connection::write_next() {
  if (writing_ || out_.empty() || phase_ == Phase::kClosed) return;
  if (out_.front().bytes.empty()) {
    on_written({}, 0);
    return;
  }
  writing_ = true;
  last_write_ = std::chrono::steady_clock::now();
  asio::async_write(
      socket_,
      asio::buffer(out_.front().bytes),
      [self = shared_from_this()](const error_code& error, std::size_t count) {
        self->writing_ = false;
        self->on_written(error, count);
      }
  );
}

void Connection::on_written(const error_code& error, std::size_t count) {
  if (phase_ == Phase::kClosed || out_.empty()) return;
  const Outgoing sent = std::move(out_.front());
  out_.pop_front();
  last_write_ = std::chrono::steady_clock::now();
  if (error) {
    close_socket();
    return;
  }
  if (sent.exchange && count > 0) sent.exchange->notify_written(count);
  if (sent.last) {
    exchange_done(sent.keep);
    return;
  }
  write_next();
}

void Connection::exchange_done(bool keep) {
  exchange_->settle();
  exchange_.reset();
  if (!keep) {
    linger();
    return;
  }
  set_phase(Phase::kIdle);
  if (!in_.empty()) set_phase(Phase::kHeader);
  advance();
  read();
}

void Connection::linger() {
  if (input_ended_) {
    close_socket();
    return;
  }
  // Closing with unread input sends a reset, which can destroy the answer on its way: say that
  // nothing more comes, and read on for a moment.
  set_phase(Phase::kLinger);
  in_.clear();
  error_code ignored;
  socket_.shutdown(Socket::shutdown_send, ignored);
  read();
}

void Connection::close_socket() {
  if (phase_ == Phase::kClosed) return;
  phase_ = Phase::kClosed;
  timer_.cancel();
  error_code ignored;
  socket_.close(ignored);
  out_.clear();
  if (auto exchange = std::move(exchange_)) exchange->detach();
}

void Connection::set_phase(Phase phase) {
  phase_ = phase;
  phase_begin_ = std::chrono::steady_clock::now();
  last_write_ = phase_begin_;
  body_seen_ = 0;
  const ListenerConfig& config = context_->config;
  switch (phase) {
    case Phase::kIdle:
      arm(config.keep_alive_s);
      break;
    case Phase::kHeader:
      arm(config.header_timeout_s);
      break;
    case Phase::kBody:
      arm(config.body_timeout_s);
      break;
    case Phase::kWork:
      arm(kWorkTickSeconds);
      break;
    case Phase::kLinger:
      arm(kLingerSeconds);
      break;
    case Phase::kClosed:
      break;
  }
}

void Connection::arm(double seconds) {
  timer_.expires_after(std::chrono::microseconds(static_cast<std::int64_t>(seconds * 1e6)));
  // The wait keeps the connection alive until close_socket(), whatever else is pending.
  timer_.async_wait([self = shared_from_this()](const error_code& error) { self->on_timer(error); }
  );
}

void Connection::on_timer(const error_code& error) {
  // A new deadline may have been set after this wait was already queued.
  if (error || phase_ == Phase::kClosed || timer_.expiry() > std::chrono::steady_clock::now()) {
    return;
  }
  switch (phase_) {
    case Phase::kWork:
      on_work_tick();
      return;
    case Phase::kBody: {
      const double allowed = context_->config.body_timeout_s +
                             static_cast<double>(body_seen_ / kSlowBodyBytesPerSecond);
      const double left = allowed - seconds_since(phase_begin_);
      if (left > 0) {
        arm(left);
        return;
      }
      refuse(408, "the request body did not arrive in time");
      return;
    }
    case Phase::kHeader:
      if (parser_.started() || !in_.empty()) {
        refuse(408, "the request headers did not arrive in time");
        return;
      }
      [[fallthrough]];
    default:
      close_socket();
  }
}

void Connection::on_work_tick() {
  if (!input_ended_ && !reading_ && peer_closed()) {
    if (exchange_) exchange_->notify_gone();
  }
  if (writing_ && seconds_since(last_write_) > context_->config.write_timeout_s) {
    close_socket();
    return;
  }
  if (exchange_ && !writing_ && out_.empty()) {
    std::string bytes = exchange_->heartbeat_frame(seconds_since(last_write_), kWorkTickSeconds);
    if (!bytes.empty()) enqueue(exchange_, std::move(bytes), false, true);
  }
  arm(kWorkTickSeconds);
}

bool Connection::peer_closed() const {
  tcp_info info{};
  socklen_t size = sizeof(info);
  auto& socket = const_cast<Socket&>(socket_);
  if (::getsockopt(socket.native_handle(), IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return true;
  return info.tcpi_state == TCP_CLOSE_WAIT || info.tcpi_state == TCP_CLOSE;
}

}  // namespace artery::server::http
