#include "server/http/connection.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <boost/asio/bind_executor.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/post.hpp>
#include <exception>
#include <utility>

#include "base/log.h"
#include "server/http/exchange.h"
#include "server/http/tls.h"

namespace artery::server::http {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;

// A body is read in large pieces; else a thousand idle connections would hold a buffer each.
constexpr std::size_t kBodyReadBytes = 64u << 10;
constexpr std::size_t kReadBytes = 4u << 10;
constexpr std::size_t kReadAheadMax = 64u << 10;
// What the kernel may hold for a client that does not read. Left alone it grows to megabytes for
// each, and they count as this process's memory in a container.
constexpr int kSendBufferBytes = 128 << 10;
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
  socket_.set_option(asio::socket_base::send_buffer_size(kSendBufferBytes), ignored);
  const auto peer = socket_.remote_endpoint(ignored);
  if (!ignored) {
    const auto address = peer.address();
    parser_.set_peer_is_loopback(
        address.is_loopback() ||
        (address.is_v6() && address.to_v6().is_v4_mapped() &&
         asio::ip::make_address_v4(asio::ip::v4_mapped, address.to_v6()).is_loopback())
    );
  }
}

Connection::~Connection() {
  hold_body(0);
  --context_->connections;
}

void Connection::start() {
  asio::post(socket_.get_executor(), [self = shared_from_this()] { self->begin(); });
}

void Connection::start_refused() {
  over_limit_ = true;
  ++context_->refused;
  start();
}

void Connection::begin() {
  tls_context_ = context_->tls();
  if (!tls_context_) {
    begin_requests();
    return;
  }
  set_phase(Phase::kHandshake);
  socket_.async_wait(Socket::wait_read, [self = shared_from_this()](const error_code& error) {
    error ? self->close_socket() : self->on_first_byte();
  });
}

void Connection::on_first_byte() {
  if (phase_ == Phase::kClosed) return;
  unsigned char first = 0;
  if (::recv(socket_.native_handle(), &first, 1, MSG_PEEK | MSG_DONTWAIT) != 1) {
    close_socket();
    return;
  }
  if (first != kTlsFirstByte) {
    ++context_->tls_failures;
    refuse(400, "this port speaks TLS: use https://");
    read();
    return;
  }
  tls_ = std::make_unique<asio::ssl::stream<Socket&>>(socket_, *tls_context_);
  tls_->async_handshake(
      asio::ssl::stream_base::server,
      [self = shared_from_this()](const error_code& error) { self->on_handshake(error); }
  );
}

void Connection::on_handshake(const error_code& error) {
  if (phase_ == Phase::kClosed) return;
  if (error) {
    ++context_->tls_failures;
    log_debug("tls handshake failed: {}", error.message());
    close_socket();
    return;
  }
  begin_requests();
}

void Connection::begin_requests() {
  if (over_limit_) {
    refuse(
        503,
        "too many connections: " + std::to_string(context_->config.connections_max) +
            " are open already (--max-connections)"
    );
  } else {
    set_phase(Phase::kHeader);
  }
  read();
}

void Connection::close() {
  asio::post(socket_.get_executor(), [self = shared_from_this()] { self->close_socket(); });
}

std::size_t Connection::read_bytes() const {
  return phase_ == Phase::kBody ? kBodyReadBytes : kReadBytes;
}

void Connection::read() {
  if (reading_ || input_ended_ || phase_ == Phase::kClosed) return;
  // While a request is in work, only little is read ahead: without a limit a client could fill the
  // memory. Beyond it on_work_tick watches for a client that leaves.
  if (phase_ == Phase::kWork && in_.size() >= kReadAheadMax) return;
  reading_ = true;
  chunk_.resize(read_bytes());
  if (phase_ != Phase::kBody) chunk_.shrink_to_fit();
  auto done = [self = shared_from_this()](const error_code& error, std::size_t count) {
    self->on_read(error, count);
  };
  if (tls_) {
    tls_->async_read_some(asio::buffer(chunk_), std::move(done));
  } else {
    socket_.async_read_some(asio::buffer(chunk_), std::move(done));
  }
}

void Connection::on_read(const error_code& error, std::size_t count) {
  reading_ = false;
  if (phase_ == Phase::kClosed) return;
  if (error && tls_ && phase_ == Phase::kLinger) {
    discard_input();
    return;
  }
  if (error) {
    // A TLS client that closes without saying so is common, and closed all the same.
    on_input_end(error != asio::error::eof && error != asio::ssl::error::stream_truncated);
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
  if (exchange_) exchange_->notify_gone(false);
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
    if (parser_.header_done() && !body_allowed()) return;
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

bool Connection::body_allowed() {
  if (phase_ != Phase::kBody && context_->calls.check_head) {
    if (auto answer = context_->calls.check_head(parser_.partial())) {
      refuse_with(std::move(*answer));
      return false;
    }
  }
  hold_body(parser_.body_bytes());
  const auto most = static_cast<std::int64_t>(context_->config.bodies_bytes_max);
  if (context_->body_bytes.load() <= most) return true;
  refuse(503, "the server is reading as many request bodies as it has room for; try again");
  return false;
}

void Connection::hold_body(std::size_t bytes) {
  context_->body_bytes += static_cast<std::int64_t>(bytes) - static_cast<std::int64_t>(body_held_);
  body_held_ = bytes;
}

void Connection::dispatch() {
  hold_body(parser_.body_bytes());
  auto request = std::make_shared<Request>(parser_.take());
  request->body_hold = std::shared_ptr<void>(
      nullptr,
      [context = context_, bytes = static_cast<std::int64_t>(std::exchange(body_held_, 0))](void*) {
        context->body_bytes -= bytes;
      }
  );
  parser_.reset();
  continue_sent_ = false;
  exchange_ =
      std::make_shared<Exchange>(weak_from_this(), socket_.get_executor(), context_, *request);
  set_phase(Phase::kWork);
  if (input_ended_) exchange_->notify_gone(false);
  auto writer = make_writer(exchange_);
  try {
    context_->calls.handler(std::move(request), std::move(writer));
  } catch (const std::exception& error) {
    // The dropped writer answers 500.
    log_error("http handler failed: {}", error.what());
  }
}

void Connection::refuse(int status, std::string_view message) {
  refuse_with(context_->calls.error_body(parser_.partial(), status, message));
}

void Connection::refuse_with(Response response) {
  Request none;
  none.keep_alive = false;
  exchange_ = std::make_shared<Exchange>(weak_from_this(), socket_.get_executor(), context_, none);
  set_phase(Phase::kWork);
  in_.clear();
  parser_.reset();  // what came of the body is of no use
  hold_body(0);
  exchange_->send(std::move(response));
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
  // Some, not all: each part that a slow reader takes shows that it reads.
  const auto rest = asio::buffer(out_.front().bytes) + out_written_;
  auto done = [self = shared_from_this()](const error_code& error, std::size_t count) {
    self->writing_ = false;
    self->on_written(error, count);
  };
  if (tls_) {
    tls_->async_write_some(rest, std::move(done));
  } else {
    socket_.async_write_some(rest, std::move(done));
  }
}

void Connection::on_written(const error_code& error, std::size_t count) {
  if (phase_ == Phase::kClosed || out_.empty()) return;
  last_write_ = std::chrono::steady_clock::now();
  if (error) {
    close_socket();
    return;
  }
  out_written_ += count;
  if (const auto& exchange = out_.front().exchange; exchange && count > 0) {
    exchange->notify_written(count);
  }
  if (out_written_ < out_.front().bytes.size()) {
    write_next();
    return;
  }
  const Outgoing sent = std::move(out_.front());
  out_.pop_front();
  out_written_ = 0;
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
  if (tls_) {
    tls_->async_shutdown([self = shared_from_this()](const error_code& error) {
      // It fails when the client goes on sending, as with the rest of a body that is too large.
      error ? self->discard_input() : self->close_socket();
    });
  } else {
    error_code ignored;
    socket_.shutdown(Socket::shutdown_send, ignored);
  }
  read();
}

void Connection::discard_input() {
  if (phase_ != Phase::kLinger || discarding_) return;
  discarding_ = true;
  discarded_.resize(kReadBytes);
  socket_.async_read_some(
      asio::buffer(discarded_),
      [self = shared_from_this()](const error_code& error, std::size_t count) {
        self->discarding_ = false;
        self->lingered_ += count;
        if (error || self->lingered_ > kLingerBytesMax) {
          self->close_socket();
        } else {
          self->discard_input();
        }
      }
  );
}

void Connection::give_up_stalled() {
  ++context_->stalled;
  if (exchange_) exchange_->notify_gone(true);
  // A reset: the kernel need not keep what this client will never read.
  error_code ignored;
  socket_.set_option(asio::socket_base::linger(true, 0), ignored);
  close_socket();
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
    case Phase::kHandshake:
      arm(config.handshake_timeout_s);
      break;
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
    if (exchange_) exchange_->notify_gone(false);
  }
  if (writing_ && seconds_since(last_write_) > context_->config.stall_timeout_s) {
    give_up_stalled();
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
