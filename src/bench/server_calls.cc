#include "bench/server_calls.h"

#include <boost/asio/connect.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>
#include <boost/json.hpp>
#include <charconv>
#include <chrono>
#include <optional>

#include "bench/stream_event.h"

namespace artery::bench {
namespace asio = boost::asio;
namespace http = boost::beast::http;
namespace json = boost::json;
using asio::ip::tcp;
using boost::system::error_code;

Result<ServerAddress> parse_base_url(std::string_view url) {
  ServerAddress server;
  server.shown = url;
  if (url.starts_with("https://"))
    return fail(Code::kUnsupported, "--base-url {}: https is not supported; use http", url);
  if (url.starts_with("http://"))
    url.remove_prefix(7);
  else if (url.find("://") != std::string_view::npos)
    return fail_field("--base-url", "{}: wants http://host:port", url);
  const std::size_t slash = std::min(url.find('/'), url.size());
  server.prefix = url.substr(slash);
  while (server.prefix.ends_with('/')) server.prefix.pop_back();
  // Clients of the API are given the address with /v1; the paths asked for here have it themselves.
  if (server.prefix.ends_with("/v1")) server.prefix.erase(server.prefix.size() - 3);
  std::string_view host = url.substr(0, slash);
  const bool bracket = host.starts_with('[');
  const std::size_t colon = bracket ? host.find(':', host.find(']')) : host.rfind(':');
  if (colon != std::string_view::npos) {
    server.port = host.substr(colon + 1);
    host = host.substr(0, colon);
  }
  if (bracket && host.size() >= 2) host = host.substr(1, host.size() - 2);
  server.host = host;
  int port = 0;
  const char* end = server.port.data() + server.port.size();
  const auto [last, error] = std::from_chars(server.port.data(), end, port);
  if (server.host.empty() || error != std::errc() || last != end || port < 1 || port > 65535)
    return fail_field("--base-url", "{}: wants http://host:port", server.shown);
  return server;
}

std::string http_request(
    const ServerAddress& server,
    std::string_view method,
    std::string_view path,
    std::string_view api_key,
    std::string_view body
) {
  std::string text = fmt::format(
      "{} {}{} HTTP/1.1\r\nHost: {}:{}\r\nUser-Agent: artery-bench\r\nAccept: */*\r\n",
      method,
      server.prefix,
      path,
      server.host,
      server.port
  );
  if (!api_key.empty()) text += fmt::format("Authorization: Bearer {}\r\n", api_key);
  if (method != "GET")
    text += fmt::format("Content-Type: application/json\r\nContent-Length: {}\r\n", body.size());
  text += "\r\n";
  text += body;
  return text;
}

struct ServerCalls::State {
  ServerAddress server;
  std::string api_key;
  asio::io_context io{1};
  std::optional<tcp::socket> socket;
  boost::beast::flat_buffer buffer;

  // Runs what was started; kDeadlineExceeded closes the connection.
  Result<> wait(const bool& finished) {
    constexpr auto kTimeout = std::chrono::seconds(60);
    io.restart();
    io.run_for(kTimeout);
    if (finished) return {};
    socket.reset();
    io.restart();
    io.run_for(std::chrono::seconds(1));
    return fail(Code::kDeadlineExceeded, "{}: no answer within 60 s", server.shown);
  }

  Result<> connect() {
    error_code error;
    tcp::resolver resolver(io);
    const auto found = resolver.resolve(server.host, server.port, error);
    if (error) return fail(Code::kIo, "{}: no such host ({})", server.shown, error.message());
    socket.emplace(io);
    buffer.clear();
    bool finished = false;
    asio::async_connect(*socket, found, [&](const error_code& why, const tcp::endpoint&) {
      error = why;
      finished = true;
    });
    TRY(wait(finished));
    if (!error) return {};
    socket.reset();
    return fail(Code::kIo, "{}: cannot connect ({})", server.shown, error.message());
  }

  Result<ServerReply> exchange(const std::string& text) {
    http::response_parser<http::string_body> parser;
    parser.body_limit(boost::none);
    error_code error;
    bool finished = false;
    asio::async_write(*socket, asio::buffer(text), [&](const error_code& sent, std::size_t) {
      error = sent;
      finished = true;
      if (sent) return;
      finished = false;
      http::async_read(*socket, buffer, parser, [&](const error_code& read, std::size_t) {
        error = read;
        finished = true;
      });
    });
    TRY(wait(finished));
    if (error) {
      socket.reset();
      return fail(Code::kIo, "{}: {}", server.shown, error.message());
    }
    if (!parser.keep_alive()) socket.reset();
    return ServerReply{static_cast<int>(parser.get().result_int()), std::move(parser.get().body())};
  }
};

ServerCalls::ServerCalls(ServerAddress server, std::string api_key)
    : state_(std::make_unique<State>()) {
  state_->server = std::move(server);
  state_->api_key = std::move(api_key);
}

ServerCalls::~ServerCalls() = default;

Result<ServerReply> ServerCalls::call(
    std::string_view method, std::string_view path, std::string_view body
) {
  const std::string text = http_request(state_->server, method, path, state_->api_key, body);
  const bool reused = state_->socket.has_value();
  if (!reused) TRY(state_->connect());
  Result<ServerReply> reply = state_->exchange(text);
  if (reply || !reused || reply.error().code != Code::kIo) return reply;
  TRY(state_->connect());  // the server had closed an idle connection
  return state_->exchange(text);
}

Result<std::string> ServerCalls::first_model() {
  const ServerReply reply = TRY(call("GET", "/v1/models", ""));
  json::error_code error;
  const json::value value = json::parse(reply.body, error);
  const json::value* id = nullptr;
  if (reply.status == 200 && !error) {
    json::error_code missing;
    id = value.find_pointer("/data/0/id", missing);
  }
  if (id == nullptr || !id->is_string())
    return fail(
        Code::kIo,
        "{}/v1/models: status {}, {}; name the model with --model",
        state_->server.shown,
        reply.status,
        error_text(reply.body)
    );
  return std::string(id->get_string());
}

namespace {

class TokenizeCounter final : public TokenCounter {
 public:
  TokenizeCounter(ServerCalls& calls, std::string model)
      : calls_(calls), model_(std::move(model)) {}

  Result<std::int64_t> count(std::string_view text) override {
    const json::string_view content(text.data(), text.size());
    const json::object body = {
        {"model", model_},
        {"prompt", content},
        {"add_special_tokens", true},
        {"content", content},
        {"add_special", true},
    };
    const ServerReply reply = TRY(calls_.call("POST", "/tokenize", json::serialize(body)));
    if (reply.status != 200)
      return fail(Code::kIo, "/tokenize: status {}, {}", reply.status, error_text(reply.body));
    json::error_code error;
    const json::value value = json::parse(reply.body, error);
    if (!error && value.is_object()) {
      const json::object& object = value.get_object();
      const json::value* count = object.if_contains("count");
      if (count != nullptr && count->is_int64()) return count->get_int64();
      const json::value* tokens = object.if_contains("tokens");
      if (tokens != nullptr && tokens->is_array())
        return static_cast<std::int64_t>(tokens->get_array().size());
    }
    return fail(Code::kIo, "/tokenize: an answer without count and tokens");
  }

 private:
  ServerCalls& calls_;
  std::string model_;
};

}  // namespace

Result<std::unique_ptr<TokenCounter>> ServerCalls::token_counter(const std::string& model) {
  auto counter = std::make_unique<TokenizeCounter>(*this, model);
  const ServerReply reply = TRY(call("POST", "/tokenize", R"({"prompt":"a","content":"a"})"));
  if (reply.status == 404 || reply.status == 405 || reply.status == 501)
    return std::unique_ptr<TokenCounter>();
  if (!counter->count("a")) return std::unique_ptr<TokenCounter>();
  return std::unique_ptr<TokenCounter>(std::move(counter));
}

}  // namespace artery::bench
