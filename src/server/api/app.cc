#include "server/api/app.h"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "server/api/prompts.h"
#include "server/api/text_match.h"

namespace artery::server::api {
namespace {

constexpr int kLightWorkers = 2;

bool is_json_content(std::string_view type) {
  type = trim(type.substr(0, type.find(';')));
  return type.empty() || equal_ignoring_case(type, "application/json") ||
         equal_ignoring_case(type, "text/json") ||
         (type.size() > 5 && equal_ignoring_case(type.substr(type.size() - 5), "+json"));
}

std::vector<std::string> model_names(const Serving& serving, const std::string& flag) {
  std::vector<std::string> names;
  const std::string all = serving.model_name + "," + flag;
  std::string_view rest = all;
  while (!rest.empty()) {
    const std::size_t comma = rest.find(',');
    const std::string name(trim(rest.substr(0, comma)));
    if (!name.empty() && std::find(names.begin(), names.end(), name) == names.end()) {
      names.push_back(name);
    }
    rest = comma == std::string_view::npos ? std::string_view() : rest.substr(comma + 1);
  }
  if (names.empty()) names.emplace_back("model");
  return names;
}

}  // namespace

App::App(Config config, const Clock& clock, std::shared_ptr<ResponseStore> responses)
    : config_(std::move(config)),
      clock_(&clock),
      heavy_(std::max(1, config_.worker_threads)),
      light_(std::make_shared<Workers>(kLightWorkers)),
      responses_(std::move(responses)) {
  set_api_keys(config_.api_keys);
}

App::~App() { stop(); }

const std::vector<App::Route>& App::routes() {
  static const std::vector<Route> kRoutes = {
      {"GET", "/", Access::kOpen, false, &App::get_root},
      {"GET", "/live", Access::kOpen, false, &App::get_live},
      {"GET", "/health", Access::kOpen, false, &App::get_health},
      {"GET", "/ready", Access::kOpen, false, &App::get_ready},
      {"GET", "/version", Access::kOpen, false, &App::get_version},
      {"GET", "/metrics", Access::kKey, false, &App::get_metrics},
      {"GET", "/v1/models", Access::kKey, false, &App::get_models},
      {"GET", "/v1/models/**", Access::kKey, false, &App::get_model},
      {"POST", "/v1/chat/completions", Access::kKey, true, &App::chat_completions},
      {"POST", "/v1/completions", Access::kKey, true, &App::completions},
      {"POST", "/v1/messages", Access::kKey, true, &App::messages},
      {"POST", "/v1/messages/count_tokens", Access::kKey, true, &App::count_tokens},
      {"POST", "/v1/responses", Access::kKey, true, &App::responses},
      {"POST", "/v1/responses/input_tokens", Access::kKey, true, &App::count_input_tokens},
      {"GET", "/v1/responses/*", Access::kKey, false, &App::get_response},
      {"DELETE", "/v1/responses/*", Access::kKey, false, &App::delete_response},
      {"POST", "/tokenize", Access::kKey, true, &App::tokenize},
      {"POST", "/detokenize", Access::kKey, true, &App::detokenize},
      {"POST", "/reset_prefix_cache", Access::kAdmin, false, &App::reset_prefix_cache},
      {"GET", "/artery/status", Access::kAdmin, false, &App::get_status},
      {"GET", "/artery/cache", Access::kAdmin, false, &App::get_cache},
  };
  return kRoutes;
}

namespace {
// "/*": one more part of the path; "/**": whatever follows, as names of models have slashes.
bool fits(std::string_view pattern, std::string_view path) {
  const bool is_deep = pattern.ends_with("/**");
  if (!is_deep && !pattern.ends_with("/*")) return pattern == path;
  pattern.remove_suffix(is_deep ? 2 : 1);
  if (path.size() <= pattern.size() || !path.starts_with(pattern)) return false;
  return is_deep || path.find('/', pattern.size()) == std::string_view::npos;
}
}  // namespace

std::string_view App::path_of(const http::Request& request) const {
  std::string_view path = request.path;
  if (!config_.root_path.empty() && path.starts_with(config_.root_path)) {
    path.remove_prefix(config_.root_path.size());
    if (path.empty()) path = "/";
  }
  return path;
}

const App::Route* App::find_route(const http::Request& request) const {
  const std::string_view path = path_of(request);
  std::string_view method = request.method;
  if (method == "HEAD") method = "GET";  // the connection leaves the body out
  for (const Route& route : routes()) {
    if (route.method == method && fits(route.path, path)) return &route;
  }
  return nullptr;
}

Call App::make_call(
    std::shared_ptr<http::Request> request, std::shared_ptr<http::ResponseWriter> writer
) const {
  Call call;
  call.begin_ns = clock_->monotonic_ns();
  call.clock = clock_;
  call.log = config_.log_requests;
  call.statuses = statuses_;
  call.id = clean_id(request->header("x-request-id"));
  call.headers = common_headers(*request, call.id);
  call.error_shape = error_shape_of(path_of(*request));
  // Anthropic's clients show this one.
  if (call.error_shape == ErrorShape::kAnthropic) call.headers.emplace_back("request-id", call.id);
  call.request = std::move(request);
  call.writer = std::move(writer);
  return call;
}

void App::handle(
    std::shared_ptr<http::Request> request, std::shared_ptr<http::ResponseWriter> writer
) {
  Call call = make_call(std::move(request), std::move(writer));
  if (const Route* route = find_route(*call.request)) {
    dispatch(std::move(call), *route);
    return;
  }
  const std::string_view path = path_of(*call.request);
  const std::string_view method = call.request->method;
  std::string allow;
  for (const Route& route : routes()) {
    if (!fits(route.path, path)) continue;
    allow += route.method == "GET" ? "GET, HEAD, " : std::string(route.method) + ", ";
  }
  if (!allow.empty()) allow += "OPTIONS";
  if (method == "OPTIONS" && (!allow.empty() || path == "*")) {
    preflight(call, allow);
    return;
  }
  if (allow.empty()) {
    no_route(call, path);
    return;
  }
  ApiError error = http_error(405, fmt::format("{} does not take {}", path, method));
  error.message += "; use " + allow;
  http::Response response = error_response(error, call.error_shape);
  response.headers.emplace_back("Allow", allow);
  reply(call, std::move(response));
}

void App::no_route(const Call& call, std::string_view path) const {
  const ApiError error =
      http_error(404, fmt::format("no such path: {} (the API is under /v1, see /v1/models)", path));
  reply_error(call, error);
}

void App::dispatch(Call call, const Route& route) {
  if (const auto refused = check_access(*call.request, route.access, &call.holder)) {
    reply_error(call, *refused);
    return;
  }
  if (!route.is_heavy) {
    (this->*route.run)(call);
    return;
  }
  if (!is_json_content(call.request->header("content-type"))) {
    reply_error(
        call,
        http_error(
            415,
            fmt::format(
                "Content-Type is {}; send JSON with Content-Type: application/json",
                call.request->header("content-type")
            )
        )
    );
    return;
  }
  if (!enter(call)) return;
  auto shared = std::make_shared<Call>(std::move(call));
  heavy_.post([this, shared, run = route.run] { (this->*run)(*shared); });
}

ApiError App::loading_error() const {
  return to_api_error(
      {Code::kUnavailable,
       fmt::format("the model is loading ({:.0f} %); try again soon", load_progress_ * 100),
       {}},
      {}
  );
}

ServerCounts App::server_counts() const {
  ServerCounts counts;
  if (http_counts_) counts = http_counts_();
  counts.refusals = statuses_->all();
  counts.keys = keys_.counts();
  return counts;
}

std::shared_ptr<const Live> App::live() const {
  const MutexLock lock(mu_);
  return live_;
}

std::shared_ptr<const Live> App::live_or_refuse(const Call& call) const {
  auto now = live();
  if (!now) reply_error(call, loading_error());
  return now;
}

Result<> App::check_model(const Live& live, const std::string& model) const {
  if (model.empty()) return {};
  if (std::find(live.names.begin(), live.names.end(), model) != live.names.end()) return {};
  Error error{
      Code::kNotFound,
      fmt::format(
          "the model \"{}\" does not exist; this server has \"{}\"", model, live.names.front()
      ),
      "model"
  };
  return tl::unexpected<Error>(std::move(error));
}

void App::attach(Serving serving) {
  auto next = std::make_shared<Live>();
  next->names = model_names(serving, config_.served_model_name);
  next->created = clock_->unix_ms() / 1000;
  next->max_model_len = serving.engine->status().max_model_len;
  next->prompt_bytes_max = prompt_bytes_max(*serving.tokenizer, next->max_model_len);
  next->metrics =
      make_metrics(next->names.front(), next->max_model_len, config_.metrics_compat_vllm);
  next->serving = std::make_shared<const Serving>(std::move(serving));
  step_sink_->set(next->metrics);
  const MutexLock lock(mu_);
  live_ = std::move(next);
}

void App::begin_drain() {
  draining_ = true;
  if (const auto now = live()) now->serving->engine->begin_drain();
}

int App::drain(double timeout_s) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::duration<double>(timeout_s);
  const MutexLock lock(mu_);
  while (!generations_.empty()) {
    if (all_ended_cv_.wait_until(mu_, until) == std::cv_status::timeout) break;
  }
  return static_cast<int>(generations_.size());
}

void App::abort_all() {
  std::vector<std::shared_ptr<Generation>> all;
  {
    const MutexLock lock(mu_);
    for (const auto& [number, generation] : generations_) all.push_back(generation);
  }
  for (const auto& generation : all) {
    generation->abort({Code::kUnavailable, "the server is shutting down", {}});
  }
}

void App::forget(std::uint64_t number) {
  std::shared_ptr<Generation> last;  // destroyed after the lock
  const MutexLock lock(mu_);
  const auto it = generations_.find(number);
  if (it == generations_.end()) return;
  last = std::move(it->second);
  generations_.erase(it);
  if (generations_.empty()) all_ended_cv_.notify_all();
}

void App::stop() {
  heavy_.stop();
  light_->stop();
  std::unordered_map<std::uint64_t, std::shared_ptr<Generation>> rest;
  const MutexLock lock(mu_);
  rest.swap(generations_);
}

}  // namespace artery::server::api
