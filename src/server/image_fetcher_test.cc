// Fetching images from real servers on this machine, admitted by a filter of the test's own, and
// what the server's filter keeps out.

#include "server/http/image_fetcher.h"

#include <gtest/gtest.h>

#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read_until.hpp>
#include <boost/asio/ssl.hpp>
#include <boost/asio/write.hpp>
#include <chrono>
#include <filesystem>
#include <functional>
#include <thread>

#include "server/certificate_testing.h"
#include "server/http/url.h"

namespace artery::server::http {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using Kind = codec::image::ImageError::Kind;

constexpr std::size_t kBytesMax = 1000;

std::string answer(
    const std::string& status, const std::string& body, const std::string& more = ""
) {
  return "HTTP/1.1 " + status + "\r\n" + more + "Content-Length: " + std::to_string(body.size()) +
         "\r\n\r\n" + body;
}

// Answers each connection's one request with what `reply` says of its path; "" keeps it waiting.
class Site {
 public:
  using Reply = std::function<std::string(const std::string& path)>;
  explicit Site(Reply reply, asio::ssl::context* tls = nullptr)
      : reply_(std::move(reply)), tls_(tls), acceptor_(io_, {asio::ip::address_v4::loopback(), 0}) {
    thread_ = std::thread([this] { serve(); });
  }
  ~Site() {
    stop_ = true;
    boost::system::error_code ignored;
    tcp::socket(io_).connect(acceptor_.local_endpoint(), ignored);
    thread_.join();
  }
  int port() const { return acceptor_.local_endpoint().port(); }
  std::string url(const std::string& path) const {
    return "http://127.0.0.1:" + std::to_string(port()) + path;
  }
  int requests() const { return requests_; }
  std::string last_request() const { return last_; }

 private:
  void serve() {
    std::vector<tcp::socket> waiting;
    while (!stop_) {
      tcp::socket socket(io_);
      boost::system::error_code error;
      acceptor_.accept(socket, error);
      if (error || stop_) continue;
      if (tls_ == nullptr) {
        if (!talk(socket)) waiting.push_back(std::move(socket));
        continue;
      }
      asio::ssl::stream<tcp::socket> stream(std::move(socket), *tls_);
      stream.handshake(asio::ssl::stream_base::server, error);
      if (error) continue;
      talk(stream);
      stream.shutdown(error);
    }
  }

  template <typename Stream>
  bool talk(Stream& stream) {
    boost::system::error_code error;
    std::string request;
    asio::read_until(stream, asio::dynamic_buffer(request), "\r\n\r\n", error);
    if (error) return true;
    ++requests_;
    last_ = request;
    const std::size_t begin = request.find(' ') + 1;
    const std::string reply = reply_(request.substr(begin, request.find(' ', begin) - begin));
    asio::write(stream, asio::buffer(reply), error);
    return !reply.empty();
  }

  Reply reply_;
  asio::ssl::context* tls_;
  asio::io_context io_;
  tcp::acceptor acceptor_;
  std::atomic<int> requests_{0};
  std::atomic<bool> stop_{false};
  std::string last_;
  std::thread thread_;
};

std::string pages(const std::string& path) {
  if (path == "/ok") return answer("200 OK", "pixels");
  if (path == "/chunks")
    return "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n6\r\npixels\r\n0\r\n\r\n";
  if (path == "/close") return "HTTP/1.0 200 OK\r\nContent-Length: 6\r\n\r\npixels";
  if (path == "/big") return answer("200 OK", std::string(kBytesMax + 1, 'x'));
  if (path == "/says-big") return "HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n";
  if (path == "/big-chunks")
    return "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n800\r\n" +
           std::string(0x800, 'x') + "\r\n0\r\n\r\n";
  if (path == "/short") return "HTTP/1.1 200 OK\r\nContent-Length: 9";
  if (path == "/slow") return "";
  if (path == "/loop") return answer("302 Found", "", "Location: /loop\r\n");
  if (path == "/a/b") return answer("307 Temporary Redirect", "", "Location: ../ok\r\n");
  if (path == "/to-ok") return answer("301 Moved Permanently", "", "Location: /ok\r\n");
  if (path == "/to-file") return answer("302 Found", "", "Location: file:///etc/passwd\r\n");
  if (path == "/to-inside") return answer("302 Found", "", "Location: http://127.0.0.2:1/ok\r\n");
  if (path == "/no-http") return "pixels\r\n\r\n";
  if (path.starts_with("/status/")) return answer(path.substr(8) + " No", "");
  return answer("404 Not Found", "");
}

ImageFetcherConfig local(double timeout_s = 20) {
  ImageFetcherConfig config;
  config.admits = [](const std::string&, const std::string& address) {
    return address == "127.0.0.1";
  };
  config.timeout_s = timeout_s;
  return config;
}

TEST(ImageFetcher, GetsWhatIsThere) {
  const Site site(pages);
  HttpImageFetcher fetcher(local());
  for (const char* const path : {"/ok", "/chunks", "/close", "/to-ok", "/ok#part"}) {
    const auto got = fetcher.fetch(site.url(path), kBytesMax);
    ASSERT_TRUE(got) << path << ": " << got.error().reason;
    EXPECT_EQ(*got, "pixels") << path;
  }
  const auto got = fetcher.fetch(
      "http://name:secret@localhost:" + std::to_string(site.port()) + "/ok", kBytesMax
  );
  ASSERT_TRUE(got) << got.error().reason;
  EXPECT_EQ(site.last_request().find("secret"), std::string::npos);
  EXPECT_EQ(site.last_request().find("uthorization"), std::string::npos);
}

TEST(ImageFetcher, SaysWhatIsWrong) {
  const Site site(pages);
  HttpImageFetcher fetcher(local());
  struct Case {
    std::string path;
    Kind kind;
    bool is_retryable;
  };
  for (const Case& one : {
           Case{"/status/404", Kind::kFetchStatus, false},
           Case{"/status/500", Kind::kFetchStatus, true},
           Case{"/status/302", Kind::kFetchStatus, false},
           Case{"/big", Kind::kImageTooLarge, false},
           Case{"/says-big", Kind::kImageTooLarge, false},
           Case{"/big-chunks", Kind::kImageTooLarge, false},
           Case{"/loop", Kind::kFetch, true},
           Case{"/to-file", Kind::kFetch, true},
           Case{"/no-http", Kind::kFetch, true},
           Case{"/to-inside", Kind::kDestinationRejected, false},
       }) {
    const auto got = fetcher.fetch(site.url(one.path), kBytesMax);
    ASSERT_FALSE(got) << one.path;
    EXPECT_EQ(got.error().kind, one.kind) << one.path << ": " << got.error().reason;
    EXPECT_EQ(got.error().is_retryable, one.is_retryable) << one.path;
  }
}

TEST(ImageFetcher, FollowsOnlySoManyRedirects) {
  const Site site(pages);
  HttpImageFetcher fetcher(local());
  EXPECT_FALSE(fetcher.fetch(site.url("/loop"), kBytesMax));
  EXPECT_EQ(site.requests(), 6);
}

TEST(ImageFetcher, GivesUpInTime) {
  const Site site(pages);
  HttpImageFetcher fetcher(local(0.3));
  const auto begin = std::chrono::steady_clock::now();
  const auto got = fetcher.fetch(site.url("/slow"), kBytesMax);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));
  ASSERT_FALSE(got);
  EXPECT_EQ(got.error().kind, Kind::kFetch);
  EXPECT_TRUE(got.error().is_retryable);
}

// The server's own filter: nothing of this machine is asked, whatever spelling names it.
TEST(ImageFetcher, KeepsOutOfPrivateNetworks) {
  const Site site(pages);
  HttpImageFetcher fetcher;
  const std::string port = ':' + std::to_string(site.port());
  for (const char* const host :
       {"127.0.0.1",
        "localhost",
        "2130706433",
        "0x7f.1",
        "0177.0.0.1",
        "127.1",
        "[::1]",
        "[::ffff:127.0.0.1]",
        "0.0.0.0",
        "169.254.169.254",
        "[fd00:ec2::254]",
        "10.0.0.1"}) {
    const auto got = fetcher.fetch("http://" + std::string(host) + port + "/ok", kBytesMax);
    ASSERT_FALSE(got) << host;
    EXPECT_EQ(got.error().kind, Kind::kDestinationRejected) << host << ": " << got.error().reason;
    EXPECT_FALSE(got.error().is_retryable);
  }
  EXPECT_EQ(site.requests(), 0);
}

// What a public page redirects to is filtered as the page itself was.
TEST(ImageFetcher, ARedirectInwardsIsNotFollowed) {
  const Site inside(pages);
  const Site outside([&](const std::string&) {
    return answer(
        "302 Found", "", "Location: http://localhost:" + std::to_string(inside.port()) + "/ok\r\n"
    );
  });
  ImageFetcherConfig config;
  config.admits = [](const std::string& host, const std::string&) { return host == "127.0.0.1"; };
  const auto got = HttpImageFetcher(config).fetch(outside.url("/"), kBytesMax);
  ASSERT_FALSE(got);
  EXPECT_EQ(got.error().kind, Kind::kDestinationRejected);
  EXPECT_EQ(outside.requests(), 1);
  EXPECT_EQ(inside.requests(), 0);
}

TEST(ImageFetcher, TrustsOnlyKnownCertificates) {
  const auto folder = std::filesystem::path(::testing::TempDir()) / "image_fetcher_test";
  std::filesystem::create_directories(folder);
  const auto cert = folder / "cert.pem", key = folder / "key.pem";
  make_certificate("localhost", cert, key);
  asio::ssl::context tls(asio::ssl::context::tls_server);
  tls.use_certificate_chain_file(cert.string());
  tls.use_private_key_file(key.string(), asio::ssl::context::pem);
  const Site site(pages, &tls);
  ImageFetcherConfig config = local();
  const std::string end = ':' + std::to_string(site.port()) + "/ok";
  EXPECT_FALSE(HttpImageFetcher(config).fetch("https://localhost" + end, kBytesMax));
  config.ca_file = cert.string();
  const auto got = HttpImageFetcher(config).fetch("https://localhost" + end, kBytesMax);
  ASSERT_TRUE(got) << got.error().reason;
  EXPECT_EQ(*got, "pixels");
  // The certificate is another name's.
  EXPECT_FALSE(HttpImageFetcher(config).fetch("https://127.0.0.1" + end, kBytesMax));
  std::filesystem::remove_all(folder);
}

TEST(AddressFilter, KnowsWhatIsPublic) {
  for (const char* const address :
       {"8.8.8.8",
        "1.1.1.1",
        "172.15.0.1",
        "172.32.0.1",
        "100.63.255.255",
        "100.128.0.0",
        "169.253.1.1",
        "192.167.0.1",
        "223.255.255.255",
        "168.63.129.15",
        "2606:4700::1111",
        "2a00:1450::1"})
    EXPECT_TRUE(is_public_address(address)) << address;
  for (const char* const address :
       {"0.0.0.0",
        "10.1.2.3",
        "100.64.0.1",
        "100.100.100.200",
        "127.0.0.1",
        "127.255.255.255",
        "168.63.129.16",
        "169.254.169.254",
        "172.16.0.1",
        "172.31.255.255",
        "192.0.0.192",
        "192.168.1.1",
        "198.18.0.1",
        "224.0.0.1",
        "239.1.1.1",
        "240.0.0.1",
        "255.255.255.255",
        "::",
        "::1",
        "::ffff:8.8.8.8",
        "::ffff:10.0.0.1",
        "64:ff9b::a00:1",
        "2002:a00:1::",
        "2001::1",
        "2001:db8::1",
        "fc00::1",
        "fd00:ec2::254",
        "fe80::1",
        "fe80::1%lo",
        "ff02::1",
        "",
        "example.com",
        "8.8.8"})
    EXPECT_FALSE(is_public_address(address)) << address;
}

TEST(Url, AreReadAsClientsNeedThem) {
  const auto url = parse_url("HTTPS://User:p%40@Example.COM:8443/a/b?c=d#e");
  ASSERT_TRUE(url);
  EXPECT_TRUE(url->is_https);
  EXPECT_EQ(url->host, "example.com");
  EXPECT_EQ(url->authority(), "example.com:8443");
  EXPECT_EQ(url->target, "/a/b?c=d");
  EXPECT_EQ(parse_url("http://[::1]?q")->target, "/?q");
  EXPECT_EQ(parse_url("http://[::1]")->host, "::1");
  for (const char* const bad :
       {"",
        "http://",
        "http:///x",
        "ftp://a/b",
        "http://a:99999/",
        "http://a:0/",
        "http://a:x/",
        "http://[::1",
        "http://a b/",
        "http://a\r\nHost: b/",
        "http://a\\b/",
        "//a/b",
        "file:///x"})
    EXPECT_FALSE(parse_url(bad)) << bad;
  const auto target = [&](std::string_view location) {
    const auto next = parse_location(*url, location);
    return next ? next->authority() + next->target : "";
  };
  EXPECT_EQ(target("/x"), "example.com:8443/x");
  EXPECT_EQ(target("x"), "example.com:8443/a/x");
  EXPECT_EQ(target("?y"), "example.com:8443/a/b?y");
  EXPECT_EQ(target("//other/z"), "other/z");
  EXPECT_EQ(target("http://other/z"), "other/z");
  EXPECT_EQ(target("javascript:x"), "");
  EXPECT_EQ(target("/x\r\nSet-Cookie: a"), "");
}

}  // namespace
}  // namespace artery::server::http
