#include "server/http/image_fetcher.h"

#include <openssl/ssl.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/host_name_verification.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http/empty_body.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>
#include <boost/beast/http/write.hpp>
#include <boost/beast/ssl/ssl_stream.hpp>
#include <chrono>
#include <optional>
#include <utility>
#include <vector>

#include "server/http/url.h"

namespace artery::server::http {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace ssl = asio::ssl;
using asio::ip::tcp;
using boost::system::error_code;
using codec::image::ImageError;
using Failure = codec::image::ImageFetcher::Failure;
using Kind = ImageError::Kind;
using Time = std::chrono::steady_clock::time_point;

constexpr std::uint32_t kHeaderBytesMax = 64u << 10;

tl::unexpected<Failure> failed(std::string reason, Kind kind = Kind::kFetch, bool again = true) {
  return tl::unexpected(Failure{kind, again, std::move(reason)});
}

struct Answer {
  int status = 0;
  std::string location, body;
};

// One request to one host: resolve, filter, connect, ask, read. Everything asynchronous on a
// context of its own, so that one deadline ends whatever is going on.
class Hop {
 public:
  Hop(const ImageFetcherConfig& config, const Url& url, Time until, std::size_t bytes_max)
      : config_(config), url_(url), until_(until), bytes_max_(bytes_max), resolver_(io_) {}

  tl::expected<Answer, Failure> run() {
    auto addresses = resolve();
    if (!addresses) return tl::unexpected(std::move(addresses.error()));
    if (!url_.is_https) {
      beast::tcp_stream stream(io_);
      if (auto error = connect(stream, *addresses)) return failed(std::move(*error));
      return ask(stream, stream);
    }
    ssl::context context(ssl::context::tls_client);
    error_code error;
    context.set_default_verify_paths(error);
    if (!config_.ca_file.empty()) context.load_verify_file(config_.ca_file, error);
    if (error) return failed("certificate authorities: " + error.message());
    context.set_verify_mode(ssl::verify_peer, error);
    beast::ssl_stream<beast::tcp_stream> stream(io_, context);
    stream.set_verify_callback(ssl::host_name_verification(url_.host), error);
    if (SSL_set_tlsext_host_name(stream.native_handle(), url_.host.c_str()) != 1)
      return failed(url_.host + ": no name for TLS");
    auto& plain = beast::get_lowest_layer(stream);
    if (auto wrong = connect(plain, *addresses)) return failed(std::move(*wrong));
    plain.expires_at(until_);
    wait([&](auto done) { stream.async_handshake(ssl::stream_base::client, done); }, error);
    if (error) return failed(url_.host + ": TLS: " + error.message());
    return ask(stream, plain);
  }

 private:
  // Starts an operation and runs it to its end.
  template <typename Start>
  void wait(const Start& start, error_code& error) {
    error = asio::error::timed_out;
    start([&error](const error_code& result, auto&&...) { error = result; });
    io_.restart();
    io_.run();
  }

  tl::expected<std::vector<tcp::endpoint>, Failure> resolve() {
    std::vector<tcp::endpoint> admitted;
    std::size_t seen = 0;
    error_code error = asio::error::timed_out;
    asio::steady_timer timer(io_, until_);
    timer.async_wait([this](const error_code& stopped) {
      if (!stopped) resolver_.cancel();
    });
    resolver_.async_resolve(
        url_.host,
        std::to_string(url_.port),
        tcp::resolver::numeric_service,
        [&](const error_code& result, const tcp::resolver::results_type& found) {
          error = result;
          timer.cancel();
          for (const auto& entry : found) {
            ++seen;
            if (config_.admits(url_.host, entry.endpoint().address().to_string()))
              admitted.push_back(entry.endpoint());
          }
        }
    );
    io_.restart();
    io_.run();
    if (error) return failed(url_.host + ": " + error.message());
    if (admitted.empty()) {
      return failed(
          url_.host + ": none of its " + std::to_string(seen) + " addresses is admitted",
          Kind::kDestinationRejected,
          false
      );
    }
    return admitted;
  }

  std::optional<std::string> connect(
      beast::tcp_stream& stream, const std::vector<tcp::endpoint>& addresses
  ) {
    error_code error;
    for (const tcp::endpoint& address : addresses) {
      stream.expires_at(until_);
      wait([&](auto done) { stream.async_connect(address, done); }, error);
      if (!error) return std::nullopt;
      stream.close();
    }
    return url_.authority() + ": " + error.message();
  }

  template <typename Stream>
  tl::expected<Answer, Failure> ask(Stream& stream, beast::tcp_stream& plain) {
    namespace http = beast::http;
    http::request<http::empty_body> request(http::verb::get, url_.target, 11);
    request.set(http::field::host, url_.authority());
    request.set(http::field::accept, "image/webp,image/png,image/jpeg,image/gif");
    request.set(http::field::accept_encoding, "identity");
    request.set(http::field::user_agent, "artery");
    request.set(http::field::connection, "close");
    error_code error;
    plain.expires_at(until_);
    wait([&](auto done) { http::async_write(stream, request, done); }, error);
    if (error) return failed(url_.authority() + ": " + error.message());
    http::response_parser<http::string_body> parser;
    parser.header_limit(kHeaderBytesMax);
    parser.body_limit(bytes_max_);
    beast::flat_buffer buffer;
    wait([&](auto done) { http::async_read(stream, buffer, parser, done); }, error);
    plain.close();
    if (error == http::error::body_limit)
      return failed(url_.authority() + ": the body is too large", Kind::kImageTooLarge, false);
    if (error) return failed(url_.authority() + ": " + error.message());
    auto& message = parser.get();
    return Answer{
        static_cast<int>(message.result_int()),
        std::string(message[http::field::location]),
        std::move(message.body())
    };
  }

  const ImageFetcherConfig& config_;
  const Url& url_;
  const Time until_;
  const std::size_t bytes_max_;
  asio::io_context io_{1};
  tcp::resolver resolver_;
};

bool is_redirect(const Answer& answer) {
  const int status = answer.status;
  return (status == 301 || status == 302 || status == 303 || status == 307 || status == 308) &&
         !answer.location.empty();
}

}  // namespace

tl::expected<std::string, Failure> HttpImageFetcher::fetch(
    const std::string& url, std::size_t bytes_max
) {
  const Time until = std::chrono::steady_clock::now() +
                     std::chrono::milliseconds(static_cast<std::int64_t>(config_.timeout_s * 1e3));
  std::optional<Url> at = parse_url(url);
  if (!at) return failed("no URL to ask");
  for (int hop = 0; hop <= config_.redirects_max; ++hop) {
    auto answer = Hop(config_, *at, until, bytes_max).run();
    if (!answer) return tl::unexpected(std::move(answer.error()));
    if (answer->status >= 200 && answer->status < 300) return std::move(answer->body);
    if (!is_redirect(*answer)) {
      return failed(
          at->authority() + ": status " + std::to_string(answer->status),
          Kind::kFetchStatus,
          answer->status >= 500
      );
    }
    const auto next = parse_location(*at, answer->location);
    if (!next) return failed(at->authority() + ": a redirect to no http(s) URL");
    at = next;
  }
  return failed("more than " + std::to_string(config_.redirects_max) + " redirects");
}

}  // namespace artery::server::http
