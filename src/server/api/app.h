#pragma once
// The API behind the sockets: routes, keys, CORS, the state of the server (loading, serving,
// draining) and the generations in work. All methods from any thread.

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/result.h"
#include "codec/api/convert.h"
#include "server/api/backlog.h"
#include "server/api/call.h"
#include "server/api/generation.h"
#include "server/api/response_store.h"
#include "server/api/workers.h"
#include "server/metrics.h"
#include "server/server.h"

namespace artery::server::api {

// What answers, as one value: swapped in by attach().
struct Live {
  std::shared_ptr<const Serving> serving;
  std::shared_ptr<Metrics> metrics;
  std::vector<std::string> names;  // accepted as `model`, the first one is shown
  std::int64_t created = 0;
  std::int64_t max_model_len = 0;
  std::size_t prompt_bytes_max = 0;
};

class StepSink {
 public:
  void on_step(const engine::StepStats& stats) {
    const MutexLock lock(mu_);
    if (metrics_) metrics_->on_step(stats);
  }
  void set(std::shared_ptr<Metrics> metrics) {
    const MutexLock lock(mu_);
    metrics_ = std::move(metrics);
  }

 private:
  Mutex mu_;
  std::shared_ptr<Metrics> metrics_ GUARDED_BY(mu_);
};

class App {
 public:
  // `responses`: where answers of the Responses API are kept.
  App(Config config, const Clock& clock, std::shared_ptr<ResponseStore> responses);
  ~App();

  // On a connection thread; long work is handed to workers.
  void handle(std::shared_ptr<http::Request> request, std::shared_ptr<http::ResponseWriter> writer);
  // The answer HTTP itself gives to what never became a request.
  http::Response http_failure(const http::Request& request, int status, std::string_view message)
      const;
  // Refuses a request by its headers, before its body comes: key, loading, draining.
  std::optional<http::Response> check_head(const http::Request& request) const;

  // Beside the one key of the configuration.
  void set_api_keys(const std::vector<ApiKey>& keys);
  // Where /metrics finds what the listener counts.
  void set_http_counts(std::function<ServerCounts()> counts) { http_counts_ = std::move(counts); }

  void set_load_progress(double fraction) { load_progress_ = fraction; }
  void attach(Serving serving);
  // Where the engine's step counts go, before and after attach(). Holds no engine.
  std::shared_ptr<StepSink> step_sink() const { return step_sink_; }
  void begin_drain();
  // As Server::drain.
  int drain(double timeout_s);
  // Ends what is in work with an error (event).
  void abort_all();
  // Joins the workers. Nothing may call handle() any more.
  void stop();

 private:
  enum class Access { kOpen, kKey, kAdmin };
  struct Route {
    std::string_view method, path;  // a path that ends with "/*" takes anything there
    Access access;
    bool is_heavy;  // reads a body: on a worker
    void (App::*run)(Call& call);
  };
  static const std::vector<Route>& routes();

  Call make_call(
      std::shared_ptr<http::Request> request, std::shared_ptr<http::ResponseWriter> writer
  ) const;
  std::string_view path_of(const http::Request& request) const;  // without root_path
  const Route* find_route(const http::Request& request) const;
  // access.cc
  http::Headers common_headers(const http::Request& request, const std::string& id) const;
  void add_cors(const http::Request& request, http::Headers& headers) const;
  void preflight(const Call& call, std::string_view allow) const;
  std::shared_ptr<const KeyHolder> holder_of(const http::Request& request) const;
  // What stands against it; `holder` is set when a key came that is right.
  std::optional<ApiError> check_access(
      const http::Request& request, Access access, std::shared_ptr<const KeyHolder>* holder
  ) const;
  bool enter(Call& call) const;
  void dispatch(Call call, const Route& route);
  void no_route(const Call& call, std::string_view path) const;

  std::shared_ptr<const Live> live() const;
  // The serving state, or the answer why there is none (503).
  std::shared_ptr<const Live> live_or_refuse(const Call& call) const;
  ApiError loading_error() const;
  ServerCounts server_counts() const;
  Result<> check_model(const Live& live, const std::string& model) const;

  // endpoints_info.cc
  void get_root(Call& call);
  void get_live(Call& call);
  void get_health(Call& call);
  void get_ready(Call& call);
  void get_version(Call& call);
  void get_models(Call& call);
  void get_model(Call& call);
  void get_metrics(Call& call);
  void get_status(Call& call);
  // endpoints_cache.cc
  void get_cache(Call& call);
  void reset_prefix_cache(Call& call);
  // endpoints_text.cc
  void tokenize(Call& call);
  void detokenize(Call& call);
  void chat_completions(Call& call);
  void completions(Call& call);
  // endpoints_messages.cc
  void messages(Call& call);
  void count_tokens(Call& call);
  // nullopt: refused already.
  std::optional<codec::api::ConvertedRequest> convert_or_refuse(
      const Live& live, const Call& call, codec::api::Api api, std::string_view body
  ) const;
  Result<GenerationInput> input_of(const Live& live, const codec::api::ConvertedRequest& request)
      const;
  // endpoints_responses.cc
  void responses(Call& call);
  tl::expected<std::string, codec::api::ConvertError> continued(const Call& call, std::string body)
      const;
  void get_response(Call& call);
  void delete_response(Call& call);
  void count_input_tokens(Call& call);
  Result<boost::json::value> read_body(Call& call) const;
  Result<boost::json::value> parse_body(std::string_view body) const;
  Result<GenerationInput> read_chat_input_for(const Live& live, Call& call) const;
  Result<GenerationInput> read_deepseek_chat_for(const Live& live, Call& call) const;
  Result<GenerationInput> read_completion_input_for(const Live& live, Call& call) const;
  void generate(Call& call, bool is_chat);
  void begin_generation(Call& call, const std::shared_ptr<const Live>& live, GenerationInput input);
  void forget(std::uint64_t number);

  const Config config_;
  const Clock* clock_;
  std::atomic<double> load_progress_{0};
  std::atomic<bool> draining_{false};
  std::atomic<std::uint64_t> next_number_{1};

  mutable Mutex mu_;
  CondVar all_ended_cv_;  // generations_ has become empty
  std::shared_ptr<const Live> live_ GUARDED_BY(mu_);
  std::unordered_map<std::uint64_t, std::shared_ptr<Generation>> generations_ GUARDED_BY(mu_);

  Workers heavy_;                         // JSON, templates, tokenizers
  const std::shared_ptr<Workers> light_;  // events to text
  const std::shared_ptr<Backlog> backlog_ = std::make_shared<Backlog>();
  const std::shared_ptr<StatusCounts> statuses_ = std::make_shared<StatusCounts>();
  KeyRing keys_;
  const std::shared_ptr<ResponseStore> responses_;
  std::function<ServerCounts()> http_counts_;  // set before the listener's threads start
  const std::shared_ptr<StepSink> step_sink_ = std::make_shared<StepSink>();
};

}  // namespace artery::server::api
