#include "server/server.h"

#include <utility>

#include "server/api/app.h"
#include "server/http/listener.h"

namespace artery::server {
namespace {

constexpr double kFlushSeconds = 0.5;  // for error events and last answers when the server stops

http::ListenerConfig listener_config(const Config& config) {
  http::ListenerConfig out;
  out.host = config.host;
  out.port = config.port;
  out.threads = config.http_threads;
  out.limits = {config.header_bytes_max, config.body_bytes_max};
  out.connections_max = config.connections_max;
  out.header_timeout_s = config.header_timeout_s;
  out.body_timeout_s = config.body_timeout_s;
  out.keep_alive_s = config.keep_alive_s;
  return out;
}

class ServerImpl final : public Server {
 public:
  ServerImpl(const Config& config, const Clock& clock)
      : app_(std::make_unique<api::App>(config, clock)) {}
  ~ServerImpl() override { stop(); }
  ServerImpl(const ServerImpl&) = delete;
  ServerImpl& operator=(const ServerImpl&) = delete;

  Result<> listen(const http::ListenerConfig& config) {
    api::App* app = app_.get();  // the listener's threads end before app_ does
    listener_ = TRY(http::Listener::open(
        config,
        [app](
            std::shared_ptr<http::Request> request, std::shared_ptr<http::ResponseWriter> writer
        ) { app->handle(std::move(request), std::move(writer)); },
        [app](int status, std::string_view message) { return app->http_failure(status, message); }
    ));
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
  void begin_drain() override { app_->begin_drain(); }
  int drain(double timeout_s) override { return app_->drain(timeout_s); }
  void stop() override {
    if (!listener_) return;
    app_->begin_drain();
    app_->abort_all();
    listener_->stop(kFlushSeconds);
    app_->stop();
  }

 private:
  std::unique_ptr<api::App> app_;
  std::unique_ptr<http::Listener> listener_;
};

}  // namespace

Result<std::unique_ptr<Server>> Server::open(Config config, const Clock& clock) {
  if (!http::is_loopback_host(config.host) && config.api_key.empty() && !config.insecure) {
    return fail_field(
        "--host",
        "--host {} is reachable from other machines: set --api-key, or --insecure to serve "
        "without a key",
        config.host
    );
  }
  const http::ListenerConfig listener = listener_config(config);
  auto server = std::make_unique<ServerImpl>(config, clock);
  TRY(server->listen(listener));
  return std::unique_ptr<Server>(std::move(server));
}

}  // namespace artery::server
