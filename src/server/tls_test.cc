// TLS on a real socket: answers, streams, certificates that are exchanged, keys that do not fit,
// and clients that speak the wrong protocol.

#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rsa.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "server/certificate_testing.h"
#include "server/stream_fixture.h"

namespace artery::server {
namespace {

namespace fs = std::filesystem;

// A TLS client that takes any certificate.
class TlsClient {
 public:
  explicit TlsClient(int port, int version_max = 0) : context_(SSL_CTX_new(TLS_client_method())) {
    if (version_max != 0) SSL_CTX_set_max_proto_version(context_, version_max);
    socket_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const timeval limit{20, 0};
    ::setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    ::connect(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof(address));
    ssl_ = SSL_new(context_);
    SSL_set_fd(ssl_, socket_);
    static constexpr unsigned char kOffer[] = "\x02h2\x08http/1.1";
    SSL_set_alpn_protos(ssl_, kOffer, sizeof(kOffer) - 1);
    connected_ = SSL_connect(ssl_) == 1;
  }
  ~TlsClient() {
    SSL_free(ssl_);
    SSL_CTX_free(context_);
    ::close(socket_);
    ERR_clear_error();
  }
  TlsClient(const TlsClient&) = delete;
  TlsClient& operator=(const TlsClient&) = delete;

  bool connected() const { return connected_; }
  std::string version() const { return SSL_get_version(ssl_); }
  std::string protocol() const {
    const unsigned char* name = nullptr;
    unsigned size = 0;
    SSL_get0_alpn_selected(ssl_, &name, &size);
    return {reinterpret_cast<const char*>(name), size};
  }
  std::string server_name() const {
    X509* certificate = SSL_get1_peer_certificate(ssl_);
    char name[100] = {};
    X509_NAME_get_text_by_NID(X509_get_subject_name(certificate), NID_commonName, name, 100);
    X509_free(certificate);
    return name;
  }
  void send(std::string_view bytes) {
    SSL_write(ssl_, bytes.data(), static_cast<int>(bytes.size()));
  }
  // Everything up to `text`, or to the end of the connection.
  std::string read_until(std::string_view text) {
    std::string out;
    char byte = 0;
    while (!out.ends_with(text) && SSL_read(ssl_, &byte, 1) == 1) out += byte;
    return out;
  }
  // The server said goodbye as TLS asks, instead of just going.
  bool ended_cleanly() {
    char byte = 0;
    const int got = SSL_read(ssl_, &byte, 1);
    return got <= 0 && SSL_get_error(ssl_, got) == SSL_ERROR_ZERO_RETURN;
  }

 private:
  SSL_CTX* context_;
  SSL* ssl_ = nullptr;
  int socket_ = -1;
  bool connected_ = false;
};

class TlsTest : public StreamTest {
 protected:
  void SetUp() override {
    StreamTest::SetUp();
    std::signal(SIGPIPE, SIG_IGN);  // OpenSSL writes to a socket that the server may have closed
    folder_ = fs::temp_directory_path() / ("artery_tls_" + std::to_string(getpid()));
    fs::create_directories(folder_);
    make_certificate("first", folder_ / "cert.pem", folder_ / "key.pem");
    config.tls_cert_file = folder_ / "cert.pem";
    config.tls_key_file = folder_ / "key.pem";
  }
  void TearDown() override {
    StreamTest::TearDown();
    fs::remove_all(folder_);
  }
  void write(const std::string& name, const std::string& text) {
    std::ofstream(folder_ / name) << text;
  }

  fs::path folder_;
};

TEST_F(TlsTest, AnswersAndStreams) {
  start();
  say(std::string(300, 'y'));
  for (const int version : {TLS1_2_VERSION, TLS1_3_VERSION}) {
    TlsClient client(server->port(), version);
    ASSERT_TRUE(client.connected()) << version;
    EXPECT_EQ(client.protocol(), "http/1.1");
    EXPECT_EQ(client.server_name(), "first");
    for (int i = 0; i < 3; ++i) {
      client.send(
          message("POST", "/v1/completions", "", R"({"prompt":"x","max_tokens":300,"stream":true})")
      );
      EXPECT_NE(
          client.read_until("data: [DONE]\n\n\r\n0\r\n\r\n").find("200 OK"), std::string::npos
      );
    }
    client.send("GET /live HTTP/1.1\r\nConnection: close\r\n\r\n");
    EXPECT_NE(client.read_until("}").find("live"), std::string::npos);
    EXPECT_TRUE(client.ended_cleanly());
  }
  EXPECT_FALSE(TlsClient(server->port(), TLS1_1_VERSION).connected());
}

TEST_F(TlsTest, TakesLargeBodies) {
  start();
  TlsClient client(server->port());
  client.send(
      message("POST", "/tokenize", "", R"({"prompt":")" + std::string(1u << 20, 'a') + R"("})")
  );
  EXPECT_NE(client.read_until("]").find("\"count\":1048576"), std::string::npos);
}

TEST_F(TlsTest, ARefusalReachesAClientThatGoesOnSending) {
  config.body_bytes_max = 1000;
  start();
  const std::string part(100000, 'x');
  for (int i = 0; i < 5; ++i) {
    TlsClient client(server->port());
    client.send("POST /tokenize HTTP/1.1\r\nContent-Length: 4000000\r\n\r\n");
    for (int sent = 0; sent < 40; ++sent) client.send(part);
    EXPECT_NE(client.read_until("}}").find(" 413 "), std::string::npos);
  }
}

TEST_F(TlsTest, AGoneClientCancelsItsWork) {
  start();
  engine->pause(true);
  for (const bool streamed : {false, true}) {
    auto client = std::make_unique<TlsClient>(server->port());
    client->send(message(
        "POST",
        "/v1/completions",
        "",
        streamed ? R"({"prompt":"x","stream":true})" : R"({"prompt":"x"})"
    ));
    ASSERT_TRUE(eventually([&] { return engine->status().running == 1; }));
    client.reset();
    EXPECT_TRUE(eventually([&] { return engine->status().running == 0; }));
  }
}

TEST_F(TlsTest, GivesUpAClientThatNeverReads) {
  config.stall_timeout_s = 0.5;
  start();
  say(std::string(500, 'y'));
  TlsClient stalled(server->port());
  stalled.send(message(
      "POST",
      "/v1/completions",
      "",
      R"({"prompt":"x","max_tokens":500,"n":64,"logprobs":5,"stream":true})"
  ));
  const std::string line = "stream_stalls_total{engine=\"0\",model_name=\"tiny\"} 1\n";
  EXPECT_TRUE(eventually(
      [&] {
        TlsClient asking(server->port());
        asking.send("GET /metrics HTTP/1.1\r\nConnection: close\r\n\r\n");
        return asking.read_until("no such text").find(line) != std::string::npos;
      },
      20000
  ));
}

TEST_F(TlsTest, TellsPlainHttpToUseTls) {
  start();
  const TestResponse response = get("/live");
  EXPECT_EQ(response.status, 400);
  EXPECT_NE(response.error("message").find("https://"), std::string::npos);
  TestClient silent(server->port());
  silent.half_close();
  EXPECT_TRUE(silent.at_end());
  TestClient garbage(server->port());
  garbage.send(std::string_view("\x16\x03\x01\x00\x05hello", 10));  // a record, no handshake
  EXPECT_TRUE(garbage.at_end());
  EXPECT_TRUE(TlsClient(server->port()).connected());
}

TEST_F(TlsTest, ATlsClientOnAPlainPortEndsCleanly) {
  config.tls_cert_file = config.tls_key_file = "";
  start();
  EXPECT_FALSE(TlsClient(server->port()).connected());
  EXPECT_EQ(get("/live").status, 200);
}

TEST_F(TlsTest, ExchangesTheCertificate) {
  start();
  TlsClient old(server->port());
  make_certificate("second", folder_ / "cert.pem", folder_ / "key.pem");
  EXPECT_EQ(TlsClient(server->port()).server_name(), "first");
  ASSERT_TRUE(server->reload_tls());
  EXPECT_EQ(TlsClient(server->port()).server_name(), "second");
  write("cert.pem", "broken");
  EXPECT_FALSE(server->reload_tls());
  EXPECT_EQ(TlsClient(server->port()).server_name(), "second");
  // Renewed half: the new key is of another kind than the certificate still there.
  make_certificate("third", folder_ / "third.pem", folder_ / "key.pem", true);
  make_certificate("second", folder_ / "cert.pem", folder_ / "unused.pem");
  EXPECT_FALSE(server->reload_tls());
  EXPECT_EQ(TlsClient(server->port()).server_name(), "second");
  fs::copy_file(folder_ / "third.pem", folder_ / "cert.pem", fs::copy_options::overwrite_existing);
  ASSERT_TRUE(server->reload_tls());
  EXPECT_EQ(TlsClient(server->port()).server_name(), "third");
  old.send("GET /live HTTP/1.1\r\n\r\n");
  EXPECT_NE(old.read_until("}").find("live"), std::string::npos);
}

TEST_F(TlsTest, SaysWhatIsWrongWithTheFiles) {
  const auto refused = [&](const std::string& cert, const std::string& key) {
    Config wrong = config;
    wrong.tls_cert_file = cert;
    wrong.tls_key_file = key;
    const auto opened = Server::open(wrong);
    EXPECT_FALSE(opened);
    if (opened) return std::string();
    EXPECT_EQ(opened.error().code, Code::kBadFile);
    return opened.error().message;
  };
  const auto expect = [](const std::string& message, std::vector<std::string> parts) {
    for (const auto& part : parts) EXPECT_NE(message.find(part), std::string::npos) << message;
  };
  const std::string cert = folder_ / "cert.pem", key = folder_ / "key.pem";
  make_certificate("other", folder_ / "other.pem", folder_ / "other_key.pem");
  write("text", "no PEM");
  const std::string text = folder_ / "text";
  expect(refused(folder_ / "absent", key), {"--ssl-certfile", "absent"});
  expect(refused(cert, folder_ / "absent"), {"--ssl-keyfile", "absent"});
  expect(refused(text, key), {"--ssl-certfile", text, "PEM"});
  expect(refused(cert, text), {"--ssl-keyfile", text, "PEM"});
  expect(refused(key, key), {"--ssl-certfile", "certificate"});
  expect(refused(cert, folder_ / "other_key.pem"), {"--ssl-keyfile", "does not belong"});
  make_certificate("ec", folder_ / "ec.pem", folder_ / "ec_key.pem", true);
  expect(refused(cert, folder_ / "ec_key.pem"), {"--ssl-keyfile", "does not belong"});
  expect(refused(folder_ / "ec.pem", key), {"--ssl-keyfile", "does not belong"});
  EVP_PKEY* pkey = EVP_RSA_gen(2048);
  PEM_write_PrivateKey(
      File(std::fopen((folder_ / "locked.pem").c_str(), "w")).get(),
      pkey,
      EVP_aes_128_cbc(),
      reinterpret_cast<const unsigned char*>("password"),
      8,
      nullptr,
      nullptr
  );
  EVP_PKEY_free(pkey);
  expect(refused(cert, folder_ / "locked.pem"), {"--ssl-keyfile", "passphrase"});
}

}  // namespace
}  // namespace artery::server
