#include "server/offline.h"

#include <atomic>
#include <utility>

#include "base/mutex.h"
#include "server/api/app.h"
#include "server/http/message.h"

namespace artery::server {
namespace {

// Takes an answer down and hands it over when it is whole. As the connection's writer, one that is
// dropped before that is a 500.
class Collector final : public http::ResponseWriter {
 public:
  explicit Collector(std::function<void(OfflineAnswer)> on_answer)
      : on_answer_(std::move(on_answer)) {}
  ~Collector() override {
    const api::ApiError error = api::http_error(500, "the request was dropped: it is not answered");
    hand_over({500, {}, api::error_json(error)});
  }
  Collector(const Collector&) = delete;
  Collector& operator=(const Collector&) = delete;

  void send(http::Response response) override {
    hand_over({response.status, id_in(response.headers), std::move(response.body)});
  }
  void start_stream(int status, http::Headers headers, http::Heartbeat) override {
    const MutexLock lock(mu_);
    streamed_.status = status;
    streamed_.request_id = id_in(headers);
  }
  void write(std::string_view bytes) override {
    const MutexLock lock(mu_);
    streamed_.body += bytes;
  }
  void finish() override {
    OfflineAnswer answer;
    {
      const MutexLock lock(mu_);
      answer = std::move(streamed_);
    }
    hand_over(std::move(answer));
  }

  bool gone() const override { return false; }
  bool stalled() const override { return false; }
  void on_gone(std::function<void()>) override {}
  bool writable() override { return true; }
  void on_drained(std::function<void()>) override {}

 private:
  static std::string id_in(const http::Headers& headers) {
    for (const auto& [name, value] : headers) {
      if (name == "x-request-id") return value;
    }
    return {};
  }

  void hand_over(OfflineAnswer answer) {
    if (!handed_over_.exchange(true)) on_answer_(std::move(answer));
  }

  const std::function<void(OfflineAnswer)> on_answer_;
  std::atomic<bool> handed_over_{false};
  Mutex mu_;
  OfflineAnswer streamed_ GUARDED_BY(mu_);
};

class OfflineImpl final : public OfflineApi {
 public:
  OfflineImpl(
      const Config& config, const Clock& clock, std::shared_ptr<api::ResponseStore> responses
  )
      : app_(config, clock, std::move(responses)) {}
  ~OfflineImpl() override { stop(); }
  OfflineImpl(const OfflineImpl&) = delete;
  OfflineImpl& operator=(const OfflineImpl&) = delete;

  void attach(Serving serving) override { app_.attach(std::move(serving)); }
  engine::Observer observer() override {
    engine::Observer observer;
    observer.on_step = [sink = app_.step_sink()](const engine::StepStats& stats) {
      sink->on_step(stats);
    };
    return observer;
  }
  void post(std::string path, std::string body, std::function<void(OfflineAnswer)> on_answer)
      override {
    auto request = std::make_shared<http::Request>();
    request->method = "POST";
    request->target = path;
    request->path = std::move(path);
    request->peer_is_loopback = true;
    request->headers = {{"content-type", "application/json"}};
    request->body = std::move(body);
    app_.handle(std::move(request), std::make_shared<Collector>(std::move(on_answer)));
  }
  void stop() override {
    app_.begin_drain();
    app_.abort_all();
    app_.stop();
  }

 private:
  api::App app_;
};

}  // namespace

Result<std::unique_ptr<OfflineApi>> OfflineApi::open(Config config, const Clock& clock) {
  config.api_key.clear();
  config.api_keys.clear();
  config.root_path.clear();
  auto responses = TRY(api::ResponseStore::open(
      {config.responses_file, config.responses_ttl_s, config.responses_bytes_max}
  ));
  return std::unique_ptr<OfflineApi>(
      std::make_unique<OfflineImpl>(config, clock, std::move(responses))
  );
}

}  // namespace artery::server
