#include "server/server.h"

#include <algorithm>
#include <utility>

#include "server/api/app.h"
#include "server/http/listener.h"

namespace artery::server {
namespace {

// Room for request bodies in all: a few of the largest, many ordinary ones.
constexpr std::size_t kBodiesAtOnce = 4, kBodiesBytesMin = 64u << 20;
constexpr double kFlushSeconds = 0.5;  // for error events and last answers when the server stops

http::ListenerConfig listener_config(const Config& config) {
  http::ListenerConfig out;
  out.host = config.host;
  out.port = config.port;
  out.threads = config.http_threads;
  out.limits.header_bytes_max = config.header_bytes_max;
  out.limits.body_bytes_max = config.body_bytes_max;
  out.connections_max = config.connections_max;
  out.header_timeout_s = config.header_timeout_s;
  out.body_timeout_s = config.body_timeout_s;
  out.keep_alive_s = config.keep_alive_s;
  out.stall_timeout_s = config.stall_timeout_s;
  out.tls_cert_file = config.tls_cert_file;
  out.tls_key_file = config.tls_key_file;
  out.bodies_bytes_max = std::max(kBodiesBytesMin, kBodiesAtOnce * config.body_bytes_max);
  return out;
}

class ServerImpl final : public Server {
 public:
  ServerImpl(
      const Config& config, const Clock& clock, std::shared_ptr<api::ResponseStore> responses
  )
      : app_(std::make_unique<api::App>(config, clock, std::move(responses))) {}
  ~ServerImpl() override { stop(); }
  ServerImpl(const ServerImpl&) = delete;
  ServerImpl& operator=(const ServerImpl&) = delete;

  Result<> listen(const http::ListenerConfig& config) {
    api::App* app = app_.get();  // the listener's threads end before app_ does
    http::ListenerCalls calls;
    calls.handler = [app](
                        std::shared_ptr<http::Request> request,
                        std::shared_ptr<http::ResponseWriter> writer
                    ) { app->handle(std::move(request), std::move(writer)); };
    calls.error_body = [app](const http::Request& request, int status, std::string_view message) {
      return app->http_failure(request, status, message);
    };
    calls.check_head = [app](const http::Request& request) { return app->check_head(request); };
    listener_ = TRY(http::Listener::open(config, std::move(calls)));
    connections_max_ = config.connections_max;
    app->set_http_counts([this] { return http_counts(); });
    return {};
  }

  int port() const override { return listener_->port(); }
  void set_load_progress(double fraction) override { app_->set_load_progress(fraction); }
  void attach(Serving serving) override { app_->attach(std::move(serving)); }
  engine::Observer observer() override {
    engine::Observer observer;
    observer.on_step = [sink = app_->step_sink()](const engine::StepStats& stats) {
      sink->on_step(stats);
    };
    return observer;
  }
  void set_api_keys(const std::vector<ApiKey>& keys) override { app_->set_api_keys(keys); }
  Result<> reload_tls() override { return listener_->reload_tls(); }
  void begin_drain() override {
    listener_->begin_drain();
    app_->begin_drain();
  }
  int drain(double timeout_s) override { return app_->drain(timeout_s); }
  void stop() override {
    if (!listener_) return;
    begin_drain();
    app_->abort_all();
    listener_->stop(kFlushSeconds);
    app_->stop();
  }

 private:
  ServerCounts http_counts() const {
    const http::ListenerCounts counts = listener_->counts();
    ServerCounts out;
    out.connections = counts.connections;
    out.connections_max = connections_max_;
    out.accepted = counts.accepted;
    out.refused_connections = counts.refused_connections;
    out.tls_failures = counts.tls_failures;
    out.stalled_streams = counts.stalled;
    out.body_bytes = counts.body_bytes;
    return out;
  }

  int connections_max_ = 0;
  std::unique_ptr<api::App> app_;
  std::unique_ptr<http::Listener> listener_;
};

}  // namespace

Result<std::unique_ptr<Server>> Server::open(Config config, const Clock& clock) {
  const bool has_key = !config.api_key.empty() || !config.api_keys.empty();
  if (!http::is_loopback_host(config.host) && !has_key && !config.insecure) {
    return fail_field(
        "--host",
        "--host {} is reachable from other machines: set --api-key or --api-keys, or --insecure to "
        "serve "
        "without a key",
        config.host
    );
  }
  const http::ListenerConfig listener = listener_config(config);
  auto responses = TRY(api::ResponseStore::open(
      {config.responses_file, config.responses_ttl_s, config.responses_bytes_max}
  ));
  auto server = std::make_unique<ServerImpl>(config, clock, std::move(responses));
  TRY(server->listen(listener));
  return std::unique_ptr<Server>(std::move(server));
}

}  // namespace artery::server
