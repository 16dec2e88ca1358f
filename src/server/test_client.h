#pragma once
// A raw-socket HTTP client and a server over the FakeEngine, for the server's tests only. One
// thread per client.

#include <arpa/inet.h>
#include <fmt/core.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <boost/json/value.hpp>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "base/log.h"
#include "codec/infill.h"
#include "server/fake_engine_test.h"
#include "server/server.h"

namespace artery::server {

struct TestResponse {
  int status = 0;
  std::vector<std::pair<std::string, std::string>> headers;  // names in lower case
  std::string body;                                          // chunks joined
  bool whole = false;  // the body came as long as the headers said

  std::string header(std::string_view name) const {
    for (const auto& [key, value] : headers) {
      if (key == name) return value;
    }
    return {};
  }
  boost::json::value json() const {
    boost::json::error_code error;
    auto value = boost::json::parse(body, error);
    EXPECT_FALSE(error) << error.message() << ": " << body;
    return value;
  }
  // error.param and error.code as text, "" for null.
  std::string error(std::string_view field) const {
    boost::json::error_code code;
    const auto value = boost::json::parse(body, code);
    if (code || !value.is_object() || !value.get_object().contains("error"))
      return "no error: " + body;
    const auto& found = value.at("error").at(boost::json::string_view(field.data(), field.size()));
    return found.is_string() ? std::string(found.get_string().c_str()) : std::string();
  }
};

class TestClient {
 public:
  // `receive_bytes`: size of the socket's receive buffer, 0: the system's.
  explicit TestClient(int port, int receive_bytes = 0) {
    socket_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (receive_bytes > 0) {
      ::setsockopt(socket_, SOL_SOCKET, SO_RCVBUF, &receive_bytes, sizeof(receive_bytes));
    }
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connected_ =
        ::connect(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
  }
  ~TestClient() { close(); }
  TestClient(const TestClient&) = delete;
  TestClient& operator=(const TestClient&) = delete;

  bool connected() const { return connected_; }
  void close() {
    if (socket_ >= 0) ::close(socket_);
    socket_ = -1;
  }
  void reset() {
    const linger now{1, 0};
    ::setsockopt(socket_, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
    close();
  }
  void half_close() { ::shutdown(socket_, SHUT_WR); }

  // False when the server closed while sending.
  bool send(std::string_view bytes) {
    while (!bytes.empty()) {
      const auto count = ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (count <= 0) return false;
      bytes.remove_prefix(static_cast<std::size_t>(count));
    }
    return true;
  }

  // More bytes into the buffer; false at the end of the stream or after `timeout_ms`.
  bool fill(int timeout_ms) {
    pollfd poll{socket_, POLLIN, 0};
    if (::poll(&poll, 1, timeout_ms) <= 0) return false;
    char bytes[65536];
    const auto count = ::recv(socket_, bytes, sizeof(bytes), 0);
    if (count <= 0) {
      ended_ = true;
      return false;
    }
    in_.append(bytes, static_cast<std::size_t>(count));
    return true;
  }
  // Until `text` came; everything up to its end, or "" when it did not come.
  std::string read_until(std::string_view text, int timeout_ms = 10000) {
    for (;;) {
      const std::size_t at = in_.find(text);
      if (at != std::string::npos) return take(at + text.size());
      if (!fill(timeout_ms)) return {};
    }
  }
  bool at_end(int timeout_ms = 5000) {
    while (!ended_ && fill(timeout_ms)) {
    }
    return ended_;
  }
  const std::string& unread() const { return in_; }

  TestResponse read_response(bool is_head = false, int timeout_ms = 20000) {
    TestResponse response;
    std::string head = read_until("\r\n\r\n", timeout_ms);
    if (head.empty()) return response;
    response.status = std::atoi(head.c_str() + std::min<std::size_t>(9, head.size()));
    std::size_t at = head.find("\r\n") + 2;
    while (at < head.size() - 2) {
      const std::size_t end = head.find("\r\n", at);
      const std::size_t colon = head.find(':', at);
      std::string name = head.substr(at, colon - at);
      std::transform(name.begin(), name.end(), name.begin(), [](char c) {
        return static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
      });
      response.headers.emplace_back(std::move(name), head.substr(colon + 2, end - colon - 2));
      at = end + 2;
    }
    if (response.status == 100) return read_response(is_head, timeout_ms);
    if (is_head || response.status == 204) {
      response.whole = true;
    } else if (response.header("transfer-encoding") == "chunked") {
      read_chunks(response, timeout_ms);
    } else {
      const auto size =
          static_cast<std::size_t>(std::atoll(response.header("content-length").c_str()));
      while (in_.size() < size && fill(timeout_ms)) {
      }
      response.whole = in_.size() >= size;
      response.body = take(std::min(size, in_.size()));
    }
    return response;
  }

 private:
  void read_chunks(TestResponse& response, int timeout_ms) {
    for (;;) {
      const std::string line = read_until("\r\n", timeout_ms);
      if (line.empty()) return;
      const auto size = static_cast<std::size_t>(std::strtoull(line.c_str(), nullptr, 16));
      while (in_.size() < size + 2) {
        if (!fill(timeout_ms)) return;
      }
      response.body += take(size);
      EXPECT_EQ(take(2), "\r\n");
      if (size == 0) {
        response.whole = true;
        return;
      }
    }
  }
  std::string take(std::size_t count) {
    std::string out = in_.substr(0, count);
    in_.erase(0, count);
    return out;
  }

  int socket_ = -1;
  bool connected_ = false, ended_ = false;
  std::string in_;
};

// GPT-2's visible form of a byte (the "bytes_to_unicode" table of its published vocabulary).
inline std::string visible_form(int byte) {
  const auto is_plain = [](int b) {
    return (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || (b >= 174 && b <= 255);
  };
  int code = byte;
  if (!is_plain(byte)) {
    code = 256;
    for (int b = 0; b < byte; ++b) code += is_plain(b) ? 0 : 1;
  }
  if (code < 0x80) return std::string(1, static_cast<char>(code));
  return {static_cast<char>(0xC0 | (code >> 6)), static_cast<char>(0x80 | (code & 0x3F))};
}

constexpr TokenId kEndToken = 256, kStartToken = 257;

constexpr TokenId kMoreControlTokens = 259;

// Token i is byte i; <|end|> 256 and <|start|> 257 are control tokens; 258 is "he"; then `more`
// control tokens.
inline codec::VocabData byte_vocab(bool add_bos, const std::vector<std::string>& more = {}) {
  codec::VocabData data;
  data.pre = "gpt-2";
  for (int byte = 0; byte < 256; ++byte) {
    data.tokens.push_back(visible_form(byte));
    data.kinds.push_back(codec::TokenKind::kNormal);
  }
  for (const char* text : {"<|end|>", "<|start|>"}) {
    data.tokens.emplace_back(text);
    data.kinds.push_back(codec::TokenKind::kControl);
  }
  data.tokens.emplace_back("he");
  data.kinds.push_back(codec::TokenKind::kNormal);
  data.merges = {"h e"};
  for (const std::string& text : more) {
    data.tokens.push_back(text);
    data.kinds.push_back(codec::TokenKind::kControl);
  }
  codec::find_infill_tokens(data);
  data.eos = kEndToken;
  data.bos = kStartToken;
  data.end_of_generation = {kEndToken};
  data.add_bos = add_bos;
  return data;
}

// "<|start|>ROLE\nCONTENT<|end|>\n" for each message; refuses the role "refused". `tail`: what the
// assistant's turn begins with. `strict`: refuses a system message that is not the first, and two
// users in a row.
class TestTemplate final : public codec::ChatTemplate {
 public:
  explicit TestTemplate(std::string tail = {}, bool strict = false)
      : tail_(std::move(tail)), strict_(strict) {}
  Result<codec::RenderedPrompt> render(const codec::ChatInput& input) const override {
    codec::RenderedPrompt out;
    for (const codec::ChatMessage& message : input.messages) {
      if (message.role == "refused") {
        return fail(Code::kInvalidArgument, "the template does not know this role");
      }
      const bool is_first = &message == &input.messages.front();
      if (strict_ && !is_first && message.role == "system") {
        return fail(Code::kInvalidArgument, "the system message must be the first");
      }
      if (strict_ && !is_first && message.role == "user" && (&message)[-1].role == "user") {
        return fail(Code::kInvalidArgument, "roles must alternate");
      }
      out.text += "<|start|>" + message.role + "\n";
      out.literal.push_back({out.text.size(), out.text.size() + message.content.size()});
      out.text += message.content;
      const bool open = input.continue_final_message && &message == &input.messages.back();
      if (!open) out.text += "<|end|>\n";
    }
    out.text += input.tools_json + input.kwargs_json;
    if (input.add_generation_prompt) out.text += "<|start|>assistant\n" + tail_;
    return out;
  }
  std::string_view source() const override { return "test"; }

 private:
  const std::string tail_;
  const bool strict_;
};

inline std::vector<TokenId> byte_ids(std::string_view text) {
  std::vector<TokenId> ids;
  for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
  return ids;
}

class ServerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    set_log_level(LogLevel::kOff);
    config.port = 0;
    config.version = "1.2.3";
  }
  void TearDown() override {
    if (server) server->stop();
  }

  void open() {
    auto opened = Server::open(config);
    ASSERT_TRUE(opened) << opened.error().message;
    server = opened.take();
  }
  void attach() {
    const auto size = static_cast<std::int64_t>(more_control.size()) + kMoreControlTokens;
    engine = std::make_shared<FakeEngine>(size, context);
    Serving serving;
    serving.engine = engine;
    auto tokenizer = codec::Tokenizer::make(byte_vocab(add_bos, more_control));
    ASSERT_TRUE(tokenizer) << tokenizer.error().message;
    serving.tokenizer = tokenizer.take();
    if (with_template) {
      serving.chat_template = std::make_shared<TestTemplate>(template_tail, strict_template);
    }
    auto format = codec::OutputFormat::make(parsers, "", [this](std::string_view text) {
      return std::find(more_control.begin(), more_control.end(), text) != more_control.end();
    });
    ASSERT_TRUE(format) << format.error().message;
    serving.output_format = format.take();
    serving.chat_template_error = "the file has none";
    serving.deepseek = deepseek;
    serving.model_name = "tiny";
    serving.system_fingerprint = "fp_test";
    server->attach(std::move(serving));
    say("Hello");
  }
  void start() {
    open();
    if (server) attach();
  }
  // Every choice of every request says `text` and then the end token.
  void say(std::string text) {
    engine->set_author([ids = byte_ids(text)](const engine::Request&, int) {
      return FakeEngine::Script{ids, kEndToken, {}};
    });
  }

  static std::string message(
      std::string_view method,
      std::string_view path,
      std::string_view headers,
      std::string_view body
  ) {
    return fmt::format(
        "{} {} HTTP/1.1\r\nHost: test\r\n{}Content-Length: {}\r\n\r\n{}",
        method,
        path,
        headers,
        body.size(),
        body
    );
  }
  TestResponse ask(
      std::string_view method,
      std::string_view path,
      std::string_view headers = "",
      std::string_view body = ""
  ) {
    TestClient client(server->port());
    EXPECT_TRUE(client.connected());
    client.send(message(method, path, headers, body));
    return client.read_response(method == "HEAD");
  }
  TestResponse get(std::string_view path) { return ask("GET", path); }
  TestResponse post(std::string_view path, std::string_view body) {
    return ask("POST", path, "Content-Type: application/json\r\n", body);
  }

  static bool eventually(const std::function<bool()>& condition, int ms = 20000) {
    for (int i = 0; i < ms / 5; ++i) {
      if (condition()) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return condition();
  }

  // The JSON of every `data:` line; checks the form of the stream byte by byte.
  static std::vector<std::string> events(const std::string& body) {
    std::vector<std::string> out;
    std::size_t at = 0;
    while (at < body.size()) {
      const std::size_t end = body.find("\n\n", at);
      EXPECT_NE(end, std::string::npos) << "unfinished event: " << body.substr(at);
      if (end == std::string::npos) break;
      const std::string event = body.substr(at, end - at);
      EXPECT_EQ(event.find('\n'), std::string::npos) << event;
      if (event.rfind("data: ", 0) == 0) {
        out.push_back(event.substr(6));
      } else {
        EXPECT_EQ(event.rfind(": ", 0), 0U) << event;
      }
      at = end + 2;
    }
    return out;
  }

  Config config;
  bool add_bos = false, with_template = true, strict_template = false;
  std::string template_tail;
  std::vector<std::string> more_control;
  codec::ParserChoice parsers;
  std::int64_t context = 512;
  std::optional<codec::api::ModelVersion> deepseek;
  std::unique_ptr<Server> server;
  std::shared_ptr<FakeEngine> engine;
};

}  // namespace artery::server
