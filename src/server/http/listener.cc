#include "server/http/listener.h"

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/strand.hpp>
#include <chrono>
#include <exception>
#include <thread>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/mutex.h"
#include "server/http/connection.h"
#include "server/http/tls.h"

namespace artery::server::http {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

constexpr int kRefusedMax = 64;  // connections being told 503 at once; beyond, just closed

std::string shown(const std::string& host, int port) {
  const bool v6 = host.find(':') != std::string::npos;
  return (v6 ? "[" + host + "]" : host) + ":" + std::to_string(port);
}

Result<std::vector<tcp::endpoint>> resolve(const std::string& host, int port) {
  if (port < 0 || port > 65535) return fail_field("--port", "port {} is not in 0..65535", port);
  asio::io_context context;
  tcp::resolver resolver(context);
  error_code error;
  const auto found = resolver.resolve(
      host, std::to_string(port), tcp::resolver::passive | tcp::resolver::numeric_service, error
  );
  if (error || found.empty()) {
    return fail(
        Code::kInvalidArgument,
        "--host {}: not an address of this machine ({})",
        host,
        error.message()
    );
  }
  std::vector<tcp::endpoint> out;
  for (const auto& entry : found) out.push_back(entry.endpoint());
  return out;
}

class AsioListener final : public Listener {
 public:
  explicit AsioListener(std::shared_ptr<ConnectionContext> context)
      : context_(std::move(context)),
        io_(context_->io),
        acceptor_(asio::make_strand(io_)),
        retry_(acceptor_.get_executor()),
        work_(io_.get_executor()) {}
  ~AsioListener() override { stop(0); }
  AsioListener(const AsioListener&) = delete;
  AsioListener& operator=(const AsioListener&) = delete;

  Result<> listen() {
    const ListenerConfig& config = context_->config;
    TRY(reload_tls());  // before anyone can connect
    const tcp::endpoint endpoint = TRY(resolve(config.host, config.port)).front();
    error_code error;
    acceptor_.open(endpoint.protocol(), error);
    // On Linux this only skips the TIME_WAIT of an earlier server: a port that somebody listens on
    // stays refused, for the wildcard addresses too.
    if (!error) acceptor_.set_option(tcp::acceptor::reuse_address(true), error);
    if (!error) acceptor_.bind(endpoint, error);
    if (!error) acceptor_.listen(asio::socket_base::max_listen_connections, error);
    if (error == asio::error::address_in_use) {
      return fail(
          Code::kIo,
          "cannot listen on {}: the port is taken by another process; stop it or choose another "
          "one with --port (--port 0 picks a free one)",
          shown(config.host, config.port)
      );
    }
    if (error) {
      return fail(
          Code::kIo,
          "cannot listen on {}: {}; see --host and --port",
          shown(config.host, config.port),
          error.message()
      );
    }
    port_ = acceptor_.local_endpoint(error).port();
    accept();
    for (int i = 0; i < config.threads; ++i) threads_.emplace_back([this] { run(); });
    return {};
  }

  int port() const override { return port_; }
  ListenerCounts counts() const override {
    return {
        context_->connections,
        context_->accepted,
        context_->refused,
        context_->stalled,
        context_->tls_failures,
        context_->body_bytes
    };
  }
  Result<> reload_tls() override {
    const ListenerConfig& config = context_->config;
    if (config.tls_cert_file.empty() && config.tls_key_file.empty()) return {};
    context_->set_tls(TRY(load_tls(config.tls_cert_file, config.tls_key_file)));
    return {};
  }
  void begin_drain() override { context_->draining = true; }

  void stop(double flush_s) override {
    if (stopped_.exchange(true)) return;
    asio::post(acceptor_.get_executor(), [this] {
      error_code ignored;
      acceptor_.close(ignored);
      retry_.cancel();
    });
    const auto until = std::chrono::steady_clock::now() +
                       std::chrono::milliseconds(static_cast<std::int64_t>(flush_s * 1e3));
    while (context_->writing.load() > 0 && std::chrono::steady_clock::now() < until) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    close_all();
    work_.reset();
    // Closed sockets let run() return by itself, with nothing left in its queues.
    for (std::thread& thread : threads_) {
      if (thread.joinable()) thread.join();
    }
  }

 private:
  void run() {
    for (;;) {
      try {
        io_.run();
        return;
      } catch (const std::exception& error) {
        // A library's exception ends one handler, not the server.
        log_error("http thread: {}", error.what());
      }
    }
  }

  void accept() {
    if (!acceptor_.is_open()) return;
    acceptor_.async_accept(
        asio::make_strand(io_),
        [this](const error_code& error, tcp::socket socket) { on_accept(error, std::move(socket)); }
    );
  }

  void on_accept(const error_code& error, tcp::socket socket) {
    if (error == asio::error::operation_aborted || !acceptor_.is_open()) return;
    if (error) {
      // Out of descriptors, mostly: accepting again at once would spin.
      retry_.expires_after(std::chrono::milliseconds(50));
      retry_.async_wait([this](const error_code& stopped) {
        if (!stopped) accept();
      });
      return;
    }
    const std::int64_t open = context_->connections.load();
    ++context_->accepted;
    if (open < context_->config.connections_max + kRefusedMax) {
      auto connection = std::make_shared<Connection>(std::move(socket), context_);
      open < context_->config.connections_max ? connection->start() : connection->start_refused();
      remember(connection);
    }
    accept();
  }

  void remember(const std::shared_ptr<Connection>& connection) {
    const MutexLock lock(mu_);
    if (all_.size() > 2 * static_cast<std::size_t>(context_->connections.load()) + 64) {
      std::erase_if(all_, [](const auto& weak) { return weak.expired(); });
    }
    all_.push_back(connection);
    if (closing_) connection->close();
  }

  void close_all() {
    const MutexLock lock(mu_);
    closing_ = true;
    for (const auto& weak : all_) {
      if (auto connection = weak.lock()) connection->close();
    }
  }

  std::shared_ptr<ConnectionContext> context_;
  asio::io_context& io_;
  tcp::acceptor acceptor_;
  asio::steady_timer retry_;
  asio::executor_work_guard<asio::io_context::executor_type> work_;
  int port_ = 0;
  std::atomic<bool> stopped_{false};
  std::vector<std::thread> threads_;
  Mutex mu_;
  bool closing_ GUARDED_BY(mu_) = false;
  std::vector<std::weak_ptr<Connection>> all_ GUARDED_BY(mu_);
};

}  // namespace

bool is_loopback_host(const std::string& host) {
  const auto endpoints = resolve(host, 0);
  if (!endpoints) return false;
  for (const auto& endpoint : *endpoints) {
    if (!endpoint.address().is_loopback()) return false;
  }
  return true;
}

Result<std::unique_ptr<Listener>> Listener::open(
    const ListenerConfig& config, ListenerCalls calls
) {
  auto context = std::make_shared<ConnectionContext>();
  context->config = config;
  context->calls = std::move(calls);
  auto listener = std::make_unique<AsioListener>(std::move(context));
  TRY(listener->listen());
  return std::unique_ptr<Listener>(std::move(listener));
}

}  // namespace artery::server::http
