#include "server/http/exchange.h"

#include <fmt/core.h>

#include <boost/asio/post.hpp>
#include <utility>

#include "server/http/connection.h"

namespace artery::server::http {
namespace {

class Writer : public ResponseWriter {
 public:
  explicit Writer(std::shared_ptr<Exchange> exchange) : exchange_(std::move(exchange)) {}
  ~Writer() override { exchange_->abandon(); }
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;

  void send(Response response) override { exchange_->send(std::move(response)); }
  void start_stream(int status, Headers headers, Heartbeat heartbeat) override {
    exchange_->start_stream(status, std::move(headers), std::move(heartbeat));
  }
  void write(std::string_view bytes) override { exchange_->write(bytes); }
  void finish() override { exchange_->finish(); }
  bool gone() const override { return exchange_->gone(); }
  bool stalled() const override { return exchange_->stalled(); }
  void on_gone(std::function<void()> callback) override { exchange_->on_gone(std::move(callback)); }
  bool writable() override { return exchange_->writable(); }
  void on_drained(std::function<void()> callback) override {
    exchange_->on_drained(std::move(callback));
  }

 private:
  std::shared_ptr<Exchange> exchange_;
};

}  // namespace

std::shared_ptr<ResponseWriter> make_writer(std::shared_ptr<Exchange> exchange) {
  return std::make_shared<Writer>(std::move(exchange));
}

Exchange::Exchange(
    std::weak_ptr<Connection> connection,
    boost::asio::any_io_executor strand,
    std::shared_ptr<ConnectionContext> context,
    const Request& request
)
    : context_(std::move(context)),
      connection_(std::move(connection)),
      strand_(std::move(strand)),
      is_head_(request.method == "HEAD"),
      is_http_1_0_(request.version < 11),
      request_id_(request.header("x-request-id")),
      keep_alive_(request.keep_alive) {
  ++context_->writing;
}

Exchange::~Exchange() { settle(); }

void Exchange::settle() {
  if (!settled_.exchange(true)) --context_->writing;
}

void Exchange::detach() {
  {
    const MutexLock lock(mu_);
    detached_ = true;
  }
  settle();
  notify_gone(false);
}

std::string Exchange::head(int status, const Headers& headers, std::string_view framing) const {
  std::string out = fmt::format("HTTP/1.1 {} {}\r\n", status, status_text(status));
  for (const auto& [name, value] : headers) {
    out += name;
    out += ": ";
    // A value with a line break would let a client write headers of its own.
    for (const char c : value) out += (c == '\r' || c == '\n' || c == '\0') ? ' ' : c;
    out += "\r\n";
  }
  out += framing;
  out += keep_alive_ ? "Connection: keep-alive\r\n\r\n" : "Connection: close\r\n\r\n";
  return out;
}

std::string Exchange::frame(std::string_view bytes) const {
  if (is_http_1_0_) return std::string(bytes);
  return fmt::format("{:x}\r\n{}\r\n", bytes.size(), bytes);
}

void Exchange::post(std::string bytes, bool last) {
  if (detached_) return;
  pending_ += bytes.size();
  // Under mu_, so that posts leave in call order; the strand keeps it.
  boost::asio::post(
      strand_,
      [connection = connection_,
       self = shared_from_this(),
       out = std::move(bytes),
       last,
       keep = keep_alive_]() mutable {
        if (auto alive = connection.lock()) alive->enqueue(self, std::move(out), last, keep);
      }
  );
}

void Exchange::send(Response response) {
  const MutexLock lock(mu_);
  if (state_ != State::kFresh) return;
  state_ = State::kFinished;
  if (response.status == 413 || response.status == 408 || context_->draining) keep_alive_ = false;
  const std::string framing = response.status == 204
                                  ? std::string()
                                  : fmt::format("Content-Length: {}\r\n", response.body.size());
  std::string bytes = head(response.status, response.headers, framing);
  if (!is_head_) bytes += response.body;
  post(std::move(bytes), true);
}

void Exchange::start_stream(int status, Headers headers, Heartbeat heartbeat) {
  const MutexLock lock(mu_);
  if (state_ != State::kFresh) return;
  state_ = State::kStreaming;
  heartbeat_ = std::move(heartbeat);
  if (is_http_1_0_ || context_->draining)
    keep_alive_ = false;  // the end of the body is the end of the connection
  post(head(status, headers, is_http_1_0_ ? "" : "Transfer-Encoding: chunked\r\n"), false);
}

void Exchange::write(std::string_view bytes) {
  const MutexLock lock(mu_);
  if (state_ != State::kStreaming || bytes.empty() || gone()) return;
  post(frame(bytes), false);
}

void Exchange::finish() {
  const MutexLock lock(mu_);
  if (state_ != State::kStreaming) return;
  state_ = State::kFinished;
  post(is_http_1_0_ ? "" : "0\r\n\r\n", true);
}

void Exchange::abandon() {
  {
    const MutexLock lock(mu_);
    if (state_ == State::kFinished) return;
    if (state_ == State::kStreaming) {
      // Without the final chunk the client can tell that the stream was cut.
      state_ = State::kFinished;
      keep_alive_ = false;
      post("", true);
      return;
    }
  }
  Request about;
  about.headers.emplace_back("x-request-id", request_id_);
  send(context_->calls.error_body(about, 500, "internal error, request id " + request_id_));
}

void Exchange::on_gone(std::function<void()> callback) {
  {
    const MutexLock lock(mu_);
    if (!gone()) {
      on_gone_ = std::move(callback);
      return;
    }
  }
  if (callback) callback();
}

void Exchange::notify_gone(bool stalled) {
  std::function<void()> callback;
  {
    const MutexLock lock(mu_);
    if (stalled) stalled_ = true;
    if (gone_.exchange(true)) return;
    callback = std::move(on_gone_);
    on_gone_ = nullptr;
  }
  if (callback) callback();
}

bool Exchange::writable() {
  if (pending_.load() < context_->config.write_bytes_high) return true;
  const MutexLock lock(mu_);
  wants_drained_ = true;
  // Read again: what was pending may have left before the wish was noted.
  return pending_.load() < context_->config.write_bytes_high;
}

void Exchange::on_drained(std::function<void()> callback) {
  const MutexLock lock(mu_);
  on_drained_ = std::move(callback);
}

void Exchange::notify_written(std::size_t count) {
  if (pending_.fetch_sub(count) - count >= context_->config.write_bytes_high / 2) return;
  std::function<void()> callback;
  {
    const MutexLock lock(mu_);
    if (!wants_drained_) return;
    wants_drained_ = false;
    callback = on_drained_;
  }
  if (callback) callback();
}

std::string Exchange::heartbeat_frame(double silent_s, double tick_s) {
  const MutexLock lock(mu_);
  // Early rather than late: the next look comes a tick from now.
  if (state_ != State::kStreaming || heartbeat_.seconds <= 0 ||
      silent_s + tick_s < heartbeat_.seconds) {
    return {};
  }
  std::string bytes = frame(heartbeat_.text);
  pending_ += bytes.size();
  return bytes;
}

}  // namespace artery::server::http
