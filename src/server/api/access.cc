// Who may ask: request ids, CORS, keys, and refusals that need no body.

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "base/random.h"
#include "server/api/app.h"
#include "server/api/text_match.h"

namespace artery::server::api {
namespace {

constexpr std::size_t kRequestIdMax = 128;

std::string new_id() {
  return fmt::format("{:016x}{:08x}", system_random().next(), system_random().next() >> 32);
}

}  // namespace

std::string clean_id(std::string_view sent) {
  std::string out;
  for (const char c : sent.substr(0, kRequestIdMax)) {
    const bool fine = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                      std::string_view("-_.:/+=@").find(c) != std::string_view::npos;
    if (fine) out += c;
  }
  return out.empty() ? new_id() : out;
}

http::Headers App::common_headers(const http::Request& request, const std::string& id) const {
  http::Headers headers = {{"x-request-id", id}};
  add_cors(request, headers);
  return headers;
}

// Keys travel in headers and never in cookies, so Access-Control-Allow-Credentials is never sent,
// and "*" beside it cannot happen.
void App::add_cors(const http::Request& request, http::Headers& headers) const {
  const std::string_view origin = request.header("origin");
  if (origin.empty() || config_.allowed_origins.empty()) return;
  const auto& allowed = config_.allowed_origins;
  const bool any = std::find(allowed.begin(), allowed.end(), "*") != allowed.end();
  const bool named = std::find(allowed.begin(), allowed.end(), origin) != allowed.end();
  // What a cache keeps for one origin must not answer another, refused ones included.
  if (!any) headers.emplace_back("Vary", "Origin");
  if (!any && !named) return;
  headers.emplace_back("Access-Control-Allow-Origin", any ? "*" : std::string(origin));
  headers.emplace_back("Access-Control-Expose-Headers", "x-request-id, request-id, Retry-After");
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

std::shared_ptr<const KeyHolder> App::holder_of(const http::Request& request) const {
  const std::string_view sent = request.header("authorization");
  constexpr std::string_view kBearer = "bearer ";
  if (sent.size() > kBearer.size() &&
      equal_ignoring_case(sent.substr(0, kBearer.size()), kBearer)) {
    if (auto holder = keys_.find(trim(sent.substr(kBearer.size())))) return holder;
  }
  const std::string_view header = request.header("x-api-key");
  return header.empty() ? nullptr : keys_.find(header);
}

std::optional<ApiError> App::check_access(
    const http::Request& request, Access access, std::shared_ptr<const KeyHolder>* holder
) const {
  if (access == Access::kOpen) return std::nullopt;
  *holder = holder_of(request);
  if (*holder && (access == Access::kKey || (*holder)->key.admin)) return std::nullopt;
  if (access == Access::kAdmin) {
    // A proxy on this machine makes everybody look local, but says whom it speaks for.
    const bool proxied = request.has_header("x-forwarded-for") || request.has_header("forwarded");
    if (request.peer_is_loopback && !proxied) return std::nullopt;
  } else if (keys_.empty()) {
    return std::nullopt;
  }
  if (*holder) {
    return http_error(
        403,
        fmt::format(
            "the key \"{}\" may not use this path; use a key with admin = true, or ask from the "
            "server's own machine",
            (*holder)->key.name
        )
    );
  }
  ApiError error{401, "authentication_error", "invalid_api_key", {}, {}, 0};
  error.message = fmt::format(
      "{}; send it as \"Authorization: Bearer KEY\" or \"x-api-key: KEY\"",
      access == Access::kAdmin ? "this path needs the API key unless asked from this machine"
                               : "the API key is missing or wrong"
  );
  return error;
}

// Takes the request's place among those of its key, or answers 429.
bool App::enter(Call& call) const {
  if (!call.holder) return true;
  if (auto refused = call.holder->usage->enter(call.holder->key, clock_->monotonic_ns())) {
    reply_error(call, *refused);
    return false;
  }
  call.lease = std::make_shared<KeyLease>(call.holder, *clock_);
  return true;
}

void App::set_api_keys(const std::vector<ApiKey>& keys) {
  std::vector<ApiKey> all;
  if (!config_.api_key.empty()) {
    ApiKey one;
    one.digest = key_digest(config_.api_key);
    one.name = "default";
    one.admin = true;
    all.push_back(std::move(one));
  }
  all.insert(all.end(), keys.begin(), keys.end());
  keys_.set(all);
}

http::Response App::http_failure(const http::Request& request, int status, std::string_view message)
    const {
  const std::string id = clean_id(request.header("x-request-id"));
  if (config_.log_requests) {
    log_info("request refused id={} status={} reason={}", id, status, message);
  }
  statuses_->count(status);
  http::Response response =
      error_response(http_error(status, std::string(message)), error_shape_of(path_of(request)));
  const http::Headers headers = common_headers(request, id);
  response.headers.insert(response.headers.end(), headers.begin(), headers.end());
  return response;
}

std::optional<http::Response> App::check_head(const http::Request& request) const {
  const Route* route = find_route(request);
  if (route == nullptr) return std::nullopt;  // 404 and 405 read what comes, up to the limit
  std::shared_ptr<const KeyHolder> holder;
  std::optional<ApiError> error = check_access(request, route->access, &holder);
  if (!error && route->is_heavy) {
    if (draining_) {
      error = to_api_error(draining_error(), {});
    } else if (!live()) {
      error = loading_error();
    }
  }
  if (!error) return std::nullopt;
  const std::string id = clean_id(request.header("x-request-id"));
  if (config_.log_requests) {
    log_info(
        "request id={} key={} method={} path={} status={} before its body",
        id,
        holder ? holder->key.name : "-",
        request.method,
        request.path,
        error->status
    );
  }
  statuses_->count(error->status);
  http::Response response = error_response(*error, error_shape_of(path_of(request)));
  const http::Headers headers = common_headers(request, id);
  response.headers.insert(response.headers.end(), headers.begin(), headers.end());
  return response;
}

}  // namespace artery::server::api
