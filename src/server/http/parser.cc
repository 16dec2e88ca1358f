#include "server/http/parser.h"

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <boost/beast/http/basic_parser.hpp>
#include <boost/beast/http/error.hpp>
#include <utility>

#include "base/check.h"

namespace artery::server::http {
namespace {

namespace beast = boost::beast;
using beast::string_view;

std::string lower(string_view text) {
  std::string out(text.data(), text.size());
  for (char& c : out) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return out;
}

constexpr std::string_view kLastChunk = "0\r\n\r\n";

// "http://host/path?q" to "/path?q": RFC 9112 section 3.2.2 asks servers to accept it.
std::string_view origin_form(std::string_view target) {
  const std::size_t scheme = target.find("://");
  if (target.empty() || target.front() == '/' || scheme == std::string_view::npos) return target;
  const std::size_t slash = target.find('/', scheme + 3);
  return slash == std::string_view::npos ? std::string_view("/") : target.substr(slash);
}

void split_target(Request& request) {
  std::string_view target = origin_form(request.target);
  target = target.substr(0, target.find('#'));
  const std::size_t question = target.find('?');
  request.path = std::string(target.substr(0, question));
  if (question != std::string_view::npos) request.query = std::string(target.substr(question + 1));
}

// Beast's parser with the request as plain strings.
class Sink : public beast::http::basic_parser<true> {
 public:
  Request request;
  bool expects_continue = false;
  std::size_t header_bytes_left = 0, headers_max = 0;

 private:
  using ErrorCode = beast::error_code;
  using Field = beast::http::field;

  void on_request_impl(
      beast::http::verb, string_view method, string_view target, int version, ErrorCode& error
  ) override {
    request.method = std::string(method.data(), method.size());
    request.target = std::string(target.data(), target.size());
    request.version = version;
    count_header(method.size() + target.size() + 12, error);
  }
  void on_response_impl(int, string_view, int, ErrorCode&) override {}
  void on_field_impl(Field field, string_view name, string_view value, ErrorCode& error) override {
    count_header(name.size() + value.size() + 4, error);
    // Trailers of a chunked body must not pass for headers.
    if (header_whole_) return;
    if (request.headers.size() >= headers_max) {
      error = beast::http::error::header_limit;
      return;
    }
    if (field == Field::expect && lower(value) == "100-continue") expects_continue = true;
    // RFC 9112 section 6.1: a body in a coding that is not understood has no known end, and to read
    // it by Content-Length instead is how requests are smuggled past a proxy.
    if (field == Field::transfer_encoding && lower(value) != "chunked") {
      error = beast::http::error::bad_transfer_encoding;
    }
    request.headers.emplace_back(lower(name), std::string(value.data(), value.size()));
  }
  void on_header_impl(ErrorCode&) override {
    header_whole_ = true;
    split_target(request);
  }
  void on_body_init_impl(const boost::optional<std::uint64_t>&, ErrorCode&) override {}
  std::size_t on_body_impl(string_view body, ErrorCode&) override {
    request.body.append(body.data(), body.size());
    return body.size();
  }
  void on_chunk_header_impl(std::uint64_t, string_view, ErrorCode&) override {}
  std::size_t on_chunk_body_impl(std::uint64_t, string_view body, ErrorCode&) override {
    request.body.append(body.data(), body.size());
    return body.size();
  }
  void on_finish_impl(ErrorCode&) override {}

  // Beast's own limit covers single lines; this one covers their sum.
  void count_header(std::size_t bytes, ErrorCode& error) {
    if (bytes > header_bytes_left) {
      error = beast::http::error::header_limit;
      return;
    }
    header_bytes_left -= bytes;
  }

  bool header_whole_ = false;
};

}  // namespace

struct RequestParser::Impl {
  Sink sink;
  bool started = false;
  int failure_status = 0;
  std::string failure_message;

  explicit Impl(const ParserLimits& limits) {
    constexpr std::size_t kMost = 1u << 30;
    sink.header_limit(static_cast<std::uint32_t>(std::min(limits.header_bytes_max, kMost)));
    sink.body_limit(static_cast<std::uint64_t>(limits.body_bytes_max));
    sink.header_bytes_left = limits.header_bytes_max;
    sink.headers_max = limits.headers_max;
    sink.eager(true);
  }

  State failed(int status, std::string message) {
    failure_status = status;
    failure_message = std::move(message);
    return State::kFailed;
  }
};

RequestParser::RequestParser(ParserLimits limits)
    : limits_(limits), impl_(std::make_unique<Impl>(limits)) {}
RequestParser::~RequestParser() = default;

RequestParser::State RequestParser::feed(std::string_view bytes, std::size_t* consumed) {
  *consumed = 0;
  if (impl_->failure_status != 0) return State::kFailed;
  if (!impl_->started) {
    // RFC 9112 section 2.2: empty lines before a request line are ignored.
    while (*consumed < bytes.size() && (bytes[*consumed] == '\r' || bytes[*consumed] == '\n')) {
      ++*consumed;
    }
    if (*consumed == bytes.size()) return State::kNeedMore;
    impl_->started = true;
  }
  while (!impl_->sink.is_done()) {
    const std::string_view rest = bytes.substr(*consumed);
    if (rest.empty()) return State::kNeedMore;
    // Beast 1.81 asserts when the last chunk's "0\r\n" is given to it again with one byte more. A
    // chunked body ends with five bytes, so waiting for that many loses nothing.
    const bool in_chunks = impl_->sink.is_header_done() && impl_->sink.chunked();
    if (in_chunks && rest.size() < kLastChunk.size()) return State::kNeedMore;
    beast::error_code error;
    const std::size_t used =
        impl_->sink.put(boost::asio::const_buffer(rest.data(), rest.size()), error);
    *consumed += used;
    if (error == beast::http::error::need_more) {
      // A chunk header or trailer is held until its line is whole: it needs a limit as well.
      if (bytes.size() - *consumed > limits_.header_bytes_max) {
        return impl_->failed(431, "a header or chunk line is too long");
      }
      return State::kNeedMore;
    }
    if (error == beast::http::error::body_limit) {
      return impl_->failed(
          413,
          "the body is larger than the limit of " + std::to_string(limits_.body_bytes_max) +
              " bytes (--max-body-bytes)"
      );
    }
    if (error == beast::http::error::header_limit) {
      return impl_->failed(
          431,
          "request line and headers are larger than the limit of " +
              std::to_string(limits_.header_bytes_max) +
              " bytes (--max-header-bytes), or more than " + std::to_string(limits_.headers_max) +
              " of them"
      );
    }
    if (error) return impl_->failed(400, "malformed HTTP request: " + error.message());
  }
  return State::kDone;
}

bool RequestParser::started() const { return impl_->started; }
bool RequestParser::header_done() const { return impl_->sink.is_header_done(); }
bool RequestParser::expects_continue() const { return impl_->sink.expects_continue; }
int RequestParser::failure_status() const { return impl_->failure_status; }
const std::string& RequestParser::failure_message() const { return impl_->failure_message; }

const Request& RequestParser::partial() const { return impl_->sink.request; }
std::size_t RequestParser::body_bytes() const { return impl_->sink.request.body.size(); }

Request RequestParser::take() {
  CHECK(impl_->sink.is_done(), "take() before the request is whole");
  Request request = std::move(impl_->sink.request);
  request.keep_alive = impl_->sink.keep_alive();
  return request;
}

void RequestParser::reset() {
  impl_ = std::make_unique<Impl>(limits_);
  impl_->sink.request.peer_is_loopback = peer_is_loopback_;
}

void RequestParser::set_peer_is_loopback(bool yes) {
  peer_is_loopback_ = yes;
  impl_->sink.request.peer_is_loopback = yes;
}

}  // namespace artery::server::http
