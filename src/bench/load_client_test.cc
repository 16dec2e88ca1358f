// The client against a small server that says exactly what a test wants, byte by byte.

#include "bench/load_client.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <mutex>
#include <thread>

#include "bench/server_calls.h"
#include "bench/sse_parser.h"
#include "bench/stream_event.h"

namespace artery::bench {
namespace {

using std::chrono::milliseconds;

void put(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t sent = send(fd, text.data(), text.size(), MSG_NOSIGNAL);
    if (sent <= 0) return;
    text.remove_prefix(static_cast<std::size_t>(sent));
  }
}

// Answers each request with what `answer(fd, request)` writes; true keeps the connection.
class TinyServer {
 public:
  using Answer = std::function<bool(int fd, const std::string& request)>;
  explicit TinyServer(Answer answer) : answer_(std::move(answer)) {
    listen_fd_ = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(bind(listen_fd_, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    EXPECT_EQ(listen(listen_fd_, 1024), 0);
    socklen_t size = sizeof address;
    getsockname(listen_fd_, reinterpret_cast<sockaddr*>(&address), &size);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] { accept_all(); });
  }
  ~TinyServer() {
    shutdown(listen_fd_, SHUT_RDWR);
    thread_.join();
    {
      const std::lock_guard lock(mutex_);
      for (const int fd : fds_) shutdown(fd, SHUT_RDWR);
    }
    for (std::thread& thread : connections_) thread.join();
    for (const int fd : fds_) close(fd);
    close(listen_fd_);
  }
  ServerAddress address() const {
    return *parse_base_url("http://127.0.0.1:" + std::to_string(port_));
  }
  int accepted() const { return accepted_; }

 private:
  void accept_all() {
    for (int fd = accept(listen_fd_, nullptr, nullptr); fd >= 0;
         fd = accept(listen_fd_, nullptr, nullptr)) {
      ++accepted_;
      const std::lock_guard lock(mutex_);
      fds_.push_back(fd);
      connections_.emplace_back([this, fd] {
        serve(fd);
        shutdown(fd, SHUT_RDWR);
      });
    }
  }
  void serve(int fd) {
    std::string buffer;
    char piece[65536];
    while (true) {
      const std::size_t end = buffer.find("\r\n\r\n");
      const std::size_t length = end == std::string::npos ? 0 : body_length(buffer);
      if (end != std::string::npos && buffer.size() >= end + 4 + length) {
        const std::string request = buffer.substr(0, end + 4 + length);
        buffer.erase(0, request.size());
        if (!answer_(fd, request)) return;
        continue;
      }
      const ssize_t got = recv(fd, piece, sizeof piece, 0);
      if (got <= 0) return;
      buffer.append(piece, static_cast<std::size_t>(got));
    }
  }
  static std::size_t body_length(const std::string& head) {
    const std::size_t at = head.find("Content-Length: ");
    return at == std::string::npos ? 0 : std::stoul(head.substr(at + 16));
  }

  Answer answer_;
  int listen_fd_ = -1, port_ = 0;
  std::atomic<int> accepted_{0};
  std::mutex mutex_;
  std::vector<int> fds_;
  std::vector<std::thread> connections_;
  std::thread thread_;
};

std::string chunk(const std::string& text) {
  return fmt::format("{:x}\r\n{}\r\n", text.size(), text);
}
std::string event(const std::string& data) { return chunk("data: " + data + "\n\n"); }
constexpr std::string_view kHead =
    "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
std::string token(const char* text) {
  return event(fmt::format(R"({{"choices":[{{"text":"{}","finish_reason":null}}]}})", text));
}
const std::string kEnd = event(R"({"choices":[{"text":"","finish_reason":"length"}]})") +
                         event(R"({"choices":[],"usage":{"prompt_tokens":12,"completion_tokens":3,)"
                               R"("prompt_tokens_details":{"cached_tokens":4}}})") +
                         event("[DONE]") + "0\r\n\r\n";

LoadResult run(const TinyServer& server, std::size_t requests, std::int64_t concurrency = 0) {
  LoadConfig config;
  config.server = server.address();
  config.max_concurrency = concurrency;
  config.timeout_s = 1;
  config.body = [](const WorkRequest& request) {
    return "{\"prompt\":\"" + request.prompt + "\"}";
  };
  const std::vector<WorkRequest> work(requests, {"p", 1, 3, 0});
  LoadRun load(config, work, system_clock());
  Result<LoadResult> result = load.run();
  EXPECT_TRUE(result.has_value());
  return result ? result.take() : LoadResult{};
}

TEST(LoadClient, TimesEveryTokenAndTakesUsage) {
  const TinyServer server([](int fd, const std::string& request) {
    EXPECT_TRUE(request.starts_with("POST /v1/completions HTTP/1.1\r\n"));
    EXPECT_TRUE(request.ends_with("{\"prompt\":\"p\"}"));
    put(fd, kHead);
    put(fd, chunk(": alive\n\n"));
    std::this_thread::sleep_for(milliseconds(60));
    put(fd, token("a"));
    std::this_thread::sleep_for(milliseconds(40));
    const std::string second = token("b");
    put(fd, second.substr(0, 9));  // a chunk cut in the middle of its JSON
    std::this_thread::sleep_for(milliseconds(40));
    put(fd, second.substr(9));
    put(fd, token("c") + kEnd);
    return true;
  });
  const LoadResult result = run(server, 2, 1);
  EXPECT_EQ(server.accepted(), 1);  // the connection is used again
  for (const RequestRecord& record : result.records) {
    EXPECT_EQ(record.outcome, Outcome::kOk) << record.error_kind << record.error;
    EXPECT_GE(record.ttft_s, 0.06);
    ASSERT_EQ(record.gaps_s.size(), 2u);
    // A busy machine may read the first token late, so only the whole has a firm bound.
    EXPECT_GT(record.gaps_s[0], record.gaps_s[1]);
    EXPECT_GE(record.latency_s, 0.14);
    EXPECT_NEAR(record.ttft_s + record.gaps_s[0] + record.gaps_s[1], record.latency_s, 0.05);
    EXPECT_EQ(record.input_tokens, 12);
    EXPECT_EQ(record.output_tokens, 3);
    EXPECT_EQ(record.cached_tokens, 4);
  }
  EXPECT_GE(result.records[1].start_s, result.records[0].latency_s);
}

TEST(LoadClient, NamesEveryKindOfFailure) {
  struct Case {
    const char* kind;
    std::string bytes;
  };
  const std::vector<Case> cases = {
      {"http 429",
       "HTTP/1.1 429 Too Many\r\nContent-Length: 29\r\n\r\n{\"error\":{\"message\":\"full\"}}\n"},
      {"error event",
       std::string(kHead) + token("a") + event(R"({"error":{"message":"broke"}})") + "0\r\n\r\n"},
      {"cut off", std::string(kHead) + token("a")},
      {"cut off", std::string(kHead) + token("a") + "0\r\n\r\n"},
      {"bad answer", std::string(kHead) + event("{nonsense") + kEnd},
      {"cut off", ""},
  };
  for (const Case& expected : cases) {
    const TinyServer server([&](int fd, const std::string&) {
      put(fd, expected.bytes);
      return false;
    });
    const LoadResult result = run(server, 1);
    ASSERT_EQ(result.records.size(), 1u);
    EXPECT_EQ(result.records[0].outcome, Outcome::kFailed) << expected.kind;
    EXPECT_EQ(result.records[0].error_kind, expected.kind) << result.records[0].error;
  }
}

TEST(LoadClient, CountsTimeoutsAndRefusals) {
  std::atomic<bool> ended{false};
  {
    const TinyServer silent([&](int, const std::string&) {
      while (!ended) std::this_thread::sleep_for(milliseconds(5));
      return false;
    });
    EXPECT_EQ(run(silent, 1).records[0].error_kind, "timeout");
    ended = true;
  }
  LoadConfig config;
  config.server = *parse_base_url("http://127.0.0.1:1");
  config.body = [](const WorkRequest&) { return std::string("{}"); };
  const std::vector<WorkRequest> work(50, WorkRequest{"p", 1, 1, 0});
  LoadRun load(config, work, system_clock());
  const auto result = load.run();
  ASSERT_TRUE(result.has_value());
  for (const RequestRecord& record : result->records) EXPECT_EQ(record.error_kind, "connect");
}

TEST(LoadClient, StopsWhenAskedAndKeepsWhatIsDone) {
  std::atomic<int> answered{0};
  std::atomic<bool> ended{false};
  const TinyServer server([&](int fd, const std::string&) {
    if (answered++ >= 2) {
      while (!ended) std::this_thread::sleep_for(milliseconds(5));
      return false;
    }
    put(fd, std::string(kHead) + token("a") + kEnd);
    return true;
  });
  LoadConfig config;
  config.server = server.address();
  config.max_concurrency = 1;
  config.body = [](const WorkRequest&) { return std::string("{}"); };
  const std::vector<WorkRequest> work(10, WorkRequest{"p", 1, 1, 0});
  LoadRun load(config, work, system_clock());
  std::thread stopper([&] {
    while (answered < 3) std::this_thread::sleep_for(milliseconds(5));
    load.stop();
  });
  const auto result = load.run();
  stopper.join();
  ended = true;
  ASSERT_TRUE(result.has_value());
  EXPECT_EQ(result->records[1].outcome, Outcome::kOk);
  EXPECT_EQ(result->records[2].outcome, Outcome::kUnfinished);
  EXPECT_EQ(result->records[9].outcome, Outcome::kUnfinished);
}

TEST(LoadClient, ComesBackAfterAnIdleConnectionWasClosed) {
  const TinyServer server([](int fd, const std::string&) {
    put(fd, std::string(kHead) + token("a") + kEnd);
    return false;  // closes although it spoke of keeping alive
  });
  const LoadResult result = run(server, 5, 1);
  for (const RequestRecord& record : result.records)
    EXPECT_EQ(record.outcome, Outcome::kOk) << record.error_kind << record.error;
}

TEST(ServerCalls, FindModelsAndCountTokens) {
  std::atomic<bool> tokenizes{true};
  const TinyServer server([&](int fd, const std::string& request) {
    const auto reply = [&](const char* status, const std::string& body) {
      put(fd,
          fmt::format("HTTP/1.1 {}\r\nContent-Length: {}\r\n\r\n{}", status, body.size(), body));
      return true;
    };
    if (request.starts_with("GET /v1/models ")) return reply("200 OK", R"({"data":[{"id":"m"}]})");
    EXPECT_NE(request.find("Authorization: Bearer k\r\n"), std::string::npos);
    if (!tokenizes) return reply("404 Not Found", "{}");
    EXPECT_NE(request.find("\"content\":\"a"), std::string::npos);
    return reply("200 OK", R"({"tokens":[1,2,3]})");
  });
  ServerCalls calls(server.address(), "k");
  EXPECT_EQ(*calls.first_model(), "m");
  const auto counter = calls.token_counter("m");
  ASSERT_TRUE(counter.has_value() && *counter != nullptr);
  EXPECT_EQ(*(*counter)->count("a b"), 3);
  tokenizes = false;
  EXPECT_EQ(*calls.token_counter("m"), nullptr);
  ServerCalls nobody(*parse_base_url("http://127.0.0.1:1"), "");
  EXPECT_EQ(nobody.first_model().error().code, Code::kIo);
}

TEST(BaseUrl, IsTakenApart) {
  const auto plain = parse_base_url("http://host:8000/");
  ASSERT_TRUE(plain.has_value());
  EXPECT_EQ(plain->host, "host");
  EXPECT_EQ(plain->port, "8000");
  EXPECT_EQ(plain->prefix, "");
  EXPECT_EQ(parse_base_url("host/base/")->prefix, "/base");
  EXPECT_EQ(parse_base_url("http://host:8000/v1/")->prefix, "");
  EXPECT_EQ(parse_base_url("host/base/v1")->prefix, "/base");
  EXPECT_EQ(parse_base_url("http://[::1]:9")->host, "::1");
  EXPECT_EQ(parse_base_url("https://a").error().code, Code::kUnsupported);
  for (const char* bad : {"", "http://", "ftp://a", "http://a:", "http://a:x", "http://a:70000"})
    EXPECT_FALSE(parse_base_url(bad).has_value()) << bad;
}

TEST(SseParser, JoinsWhatComesInPieces) {
  const std::string text = ": c\r\ndata: a\r\ndata: b\r\n\r\ndata:c\n\nid: 7\n\ndata: left";
  for (std::size_t step = 1; step <= text.size(); ++step) {
    SseParser parser;
    std::vector<std::string> events;
    for (std::size_t at = 0; at < text.size(); at += step)
      EXPECT_TRUE(parser.push(std::string_view(text).substr(at, step), [&](std::string_view data) {
        events.emplace_back(data);
      }));
    EXPECT_EQ(events, (std::vector<std::string>{"a\nb", "c"}));
    EXPECT_TRUE(parser.pending());
  }
}

TEST(StreamEvent, KnowsTokensFromTheRest) {
  const auto is_token = [](std::string_view data) { return read_stream_event(data).token; };
  EXPECT_TRUE(is_token(R"({"choices":[{"text":"a","finish_reason":null}]})"));
  EXPECT_TRUE(is_token(R"({"choices":[{"text":"a","finish_reason":"stop"}]})"));
  EXPECT_TRUE(is_token(R"({"choices":[{"text":"","finish_reason":null}]})"));
  EXPECT_FALSE(is_token(R"({"choices":[{"text":"","finish_reason":"stop"}]})"));
  EXPECT_TRUE(is_token(R"({"choices":[{"delta":{"content":"a"}}]})"));
  EXPECT_TRUE(is_token(R"({"choices":[{"delta":{"reasoning_content":"a"}}]})"));
  EXPECT_FALSE(is_token(R"({"choices":[{"delta":{"role":"assistant","content":""}}]})"));
  EXPECT_FALSE(is_token(R"({"choices":[{"delta":{},"finish_reason":"stop"}]})"));
  EXPECT_FALSE(is_token(R"({"choices":[],"usage":{"prompt_tokens":1}})"));
  EXPECT_FALSE(read_stream_event("[1]").valid);
  EXPECT_EQ(read_stream_event(R"({"error":"x"})").error, "x");
  EXPECT_EQ(error_text(R"({"error":{"message":"m"}})"), "m");
  EXPECT_EQ(error_text("plain"), "plain");
}

TEST(StreamEvent, LeavesOutCountsThatCannotBe) {
  const auto output = [](std::string_view count) {
    return read_stream_event(fmt::format(R"({{"usage":{{"completion_tokens":{}}}}})", count))
        .output_tokens;
  };
  EXPECT_EQ(output("7"), 7);
  EXPECT_EQ(output("7.0"), 7);
  EXPECT_EQ(output("0"), 0);
  for (const char* count :
       {"-1", "-5.0", "1000000001", "9223372036854775807", "18446744073709551615", "1e300", "\"7\""
       })
    EXPECT_FALSE(output(count)) << count;
}

}  // namespace
}  // namespace artery::bench
