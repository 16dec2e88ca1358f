#include "server/api/app.h"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/log.h"
#include "base/random.h"

namespace artery::server::api {
namespace {

constexpr std::size_t kRequestIdMax = 128;
constexpr int kLightWorkers = 2;

std::string new_id() {
  return fmt::format("{:016x}{:08x}", system_random().next(), system_random().next() >> 32);
}

// The client's id as far as it is harmless in headers, JSON and logs.
std::string clean_id(std::string_view sent) {
  std::string out;
  for (const char c : sent.substr(0, kRequestIdMax)) {
    const bool fine = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                      std::string_view("-_.:/+=@").find(c) != std::string_view::npos;
    if (fine) out += c;
  }
  return out.empty() ? new_id() : out;
}

// Time depends on the lengths only, never on where the first difference is.
bool equal_in_constant_time(std::string_view a, std::string_view b) {
  unsigned difference = a.size() == b.size() ? 0U : 1U;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const char other = b.empty() ? '\0' : b[i % b.size()];
    difference |= static_cast<unsigned>(static_cast<unsigned char>(a[i] ^ other));
  }
  return difference == 0;
}

std::string_view trim(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

bool equal_ignoring_case(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](char x, char y) {
    return (x | 0x20) == (y | 0x20);
  });
}

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

App::App(Config config, const Clock& clock)
    : config_(std::move(config)),
      clock_(&clock),
      heavy_(std::max(1, config_.worker_threads)),
      light_(std::make_shared<Workers>(kLightWorkers)) {}

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
      {"POST", "/v1/chat/completions", Access::kKey, true, &App::chat_completions},
      {"POST", "/v1/completions", Access::kKey, true, &App::completions},
      {"POST", "/tokenize", Access::kKey, true, &App::tokenize},
      {"POST", "/detokenize", Access::kKey, true, &App::detokenize},
      {"POST", "/reset_prefix_cache", Access::kAdmin, false, &App::reset_prefix_cache},
      {"GET", "/artery/status", Access::kAdmin, false, &App::get_status},
      {"GET", "/artery/cache", Access::kAdmin, false, &App::get_cache},
  };
  return kRoutes;
}

Call App::make_call(
    std::shared_ptr<http::Request> request, std::shared_ptr<http::ResponseWriter> writer
) const {
  Call call;
  call.begin_ns = clock_->monotonic_ns();
  call.clock = clock_;
  call.log = config_.log_requests;
  call.id = clean_id(request->header("x-request-id"));
  call.headers.emplace_back("x-request-id", call.id);
  call.request = std::move(request);
  call.writer = std::move(writer);
  return call;
}

void App::handle(
    std::shared_ptr<http::Request> request, std::shared_ptr<http::ResponseWriter> writer
) {
  Call call = make_call(std::move(request), std::move(writer));
  add_cors(call);
  std::string_view path = call.request->path;
  if (!config_.root_path.empty() && path.starts_with(config_.root_path)) {
    path.remove_prefix(config_.root_path.size());
    if (path.empty()) path = "/";
  }
  std::string_view method = call.request->method;
  if (method == "HEAD") method = "GET";  // the connection leaves the body out
  std::string allow;
  for (const Route& route : routes()) {
    if (route.path != path) continue;
    if (route.method == method) {
      dispatch(std::move(call), route);
      return;
    }
    allow += route.method == "GET" ? "GET, HEAD, OPTIONS" : std::string(route.method) + ", OPTIONS";
  }
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
  http::Response response = error_response(error);
  response.headers.emplace_back("Allow", allow);
  reply(call, std::move(response));
}

void App::no_route(const Call& call, std::string_view path) const {
  const ApiError error =
      http_error(404, fmt::format("no such path: {} (the API is under /v1, see /v1/models)", path));
  reply_error(call, error);
}

void App::add_cors(Call& call) const {
  const std::string_view origin = call.request->header("origin");
  if (origin.empty() || config_.allowed_origins.empty()) return;
  const bool any = std::find(config_.allowed_origins.begin(), config_.allowed_origins.end(), "*") !=
                   config_.allowed_origins.end();
  const bool named = std::any_of(
      config_.allowed_origins.begin(),
      config_.allowed_origins.end(),
      [&](const std::string& allowed) { return allowed == origin; }
  );
  if (!any && !named) return;
  call.headers.emplace_back("Access-Control-Allow-Origin", any ? "*" : std::string(origin));
  call.headers.emplace_back("Access-Control-Expose-Headers", "x-request-id, Retry-After");
  if (!any) call.headers.emplace_back("Vary", "Origin");
}

void App::preflight(const Call& call, std::string_view allow) const {
  http::Response response{204, {{"Allow", std::string(allow)}}, {}};
  const bool allowed =
      std::any_of(call.headers.begin(), call.headers.end(), [](const auto& header) {
        return header.first == "Access-Control-Allow-Origin";
      });
  if (allowed) {
    const std::string_view asked = call.request->header("access-control-request-headers");
    response.headers.emplace_back("Access-Control-Allow-Methods", std::string(allow));
    response.headers.emplace_back(
        "Access-Control-Allow-Headers",
        asked.empty() ? "authorization, content-type, x-api-key, x-request-id" : std::string(asked)
    );
    response.headers.emplace_back("Access-Control-Max-Age", "600");
  }
  reply(call, std::move(response));
}

bool App::key_is_right(const http::Request& request) const {
  std::string_view sent = request.header("authorization");
  constexpr std::string_view kBearer = "bearer ";
  if (sent.size() > kBearer.size() &&
      equal_ignoring_case(sent.substr(0, kBearer.size()), kBearer)) {
    if (equal_in_constant_time(trim(sent.substr(kBearer.size())), config_.api_key)) return true;
  }
  const std::string_view header = request.header("x-api-key");
  return !header.empty() && equal_in_constant_time(header, config_.api_key);
}

Result<> App::check_access(const Call& call, Access access) const {
  if (access == Access::kOpen) return {};
  const http::Request& request = *call.request;
  if (!config_.api_key.empty() && key_is_right(request)) return {};
  if (access == Access::kAdmin) {
    // A proxy on this machine makes everybody look local, but says whom it speaks for.
    const bool proxied = request.has_header("x-forwarded-for") || request.has_header("forwarded");
    if (request.peer_is_loopback && !proxied) return {};
  } else if (config_.api_key.empty()) {
    return {};
  }
  return fail(
      Code::kUnauthorized,
      "{}; send it as \"Authorization: Bearer KEY\" or \"x-api-key: KEY\"",
      access == Access::kAdmin ? "this path needs the API key unless asked from this machine"
                               : "the API key is missing or wrong"
  );
}

void App::dispatch(Call call, const Route& route) {
  const auto access = check_access(call, route.access);
  if (!access) {
    reply_error(call, access.error());
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
  auto shared = std::make_shared<Call>(std::move(call));
  heavy_.post([this, shared, run = route.run] { (this->*run)(*shared); });
}

http::Response App::http_failure(int status, std::string_view message) const {
  if (config_.log_requests) log_info("request refused status={} reason={}", status, message);
  return error_response(http_error(status, std::string(message)));
}

std::shared_ptr<const Live> App::live() const {
  const MutexLock lock(mu_);
  return live_;
}

std::shared_ptr<const Live> App::live_or_refuse(const Call& call) const {
  auto now = live();
  if (!now) {
    reply_error(
        call,
        Error{
            Code::kUnavailable,
            fmt::format("the model is loading ({:.0f} %); try again soon", load_progress_ * 100),
            {}
        }
    );
  }
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
