#include "server/http/tls.h"

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "base/file_system.h"
#include "base/log.h"

namespace artery::server::http {
namespace {

namespace ssl = boost::asio::ssl;
using boost::system::error_code;

constexpr std::size_t kPemBytesMax = 1u << 20;

Result<std::string> read_pem(std::string_view flag, const std::string& file) {
  auto text = system_file_system().read(file, kPemBytesMax);
  if (text) return text;
  return fail(Code::kBadFile, "{} {}", flag, text.error().message);  // it names the file
}

// RFC 7301: "http/1.1" out of what the client offers. A client that offers other protocols only
// goes on without one: most then speak HTTP/1.1 all the same.
int select_protocol(SSL*, const unsigned char** out, unsigned char* out_size, const unsigned char* offered, unsigned offered_size, void*) {
  constexpr std::string_view kHttp11 = "http/1.1";
  for (unsigned at = 0; at < offered_size;) {
    const unsigned size = offered[at];
    if (at + 1 + size > offered_size) break;
    const std::string_view name(reinterpret_cast<const char*>(offered + at + 1), size);
    if (name == kHttp11) {
      *out = offered + at + 1;
      *out_size = static_cast<unsigned char>(size);
      return SSL_TLSEXT_ERR_OK;
    }
    at += 1 + size;
  }
  return SSL_TLSEXT_ERR_NOACK;
}

void set_protocol(SSL_CTX* context) {
  SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION);
  // A client could make the server compute keys again and again.
  SSL_CTX_set_options(context, SSL_OP_NO_RENEGOTIATION);
  SSL_CTX_set_alpn_select_cb(context, select_protocol, nullptr);
  // Read and write buffers of connections that have nothing to say are given back.
  SSL_CTX_set_mode(context, SSL_MODE_RELEASE_BUFFERS);
}

Result<> use_key(ssl::context& context, const std::string& pem, const std::string& file) {
  bool asked_passphrase = false;
  // Before the key comes: loading it changes which certificate the context shows.
  const X509* certificate = SSL_CTX_get0_certificate(context.native_handle());
  error_code error;
  context.set_password_callback(
      [&asked_passphrase](std::size_t, ssl::context::password_purpose) {
        asked_passphrase = true;
        return std::string();
      },
      error
  );
  context.use_private_key(
      boost::asio::const_buffer(pem.data(), pem.size()), ssl::context::pem, error
  );
  // OpenSSL compares only within one kind: an EC key beside an RSA certificate loads without a
  // word, and every handshake fails.
  const bool mismatch =
      !error &&
      X509_check_private_key(certificate, SSL_CTX_get0_privatekey(context.native_handle())) != 1;
  if (!error && !mismatch) return {};
  if (asked_passphrase) {
    return fail(
        Code::kBadFile,
        "--ssl-keyfile {}: the key needs a passphrase; give a key without one (openssl pkey -in "
        "KEY -out PLAIN)",
        file
    );
  }
  const auto reason = ERR_GET_REASON(static_cast<unsigned long>(error.value()));
  if (mismatch || reason == X509_R_KEY_VALUES_MISMATCH || reason == X509_R_KEY_TYPE_MISMATCH) {
    return fail(
        Code::kBadFile,
        "--ssl-keyfile {}: the key does not belong to the certificate of --ssl-certfile",
        file
    );
  }
  return fail(
      Code::kBadFile, "--ssl-keyfile {}: not a private key in PEM form ({})", file, error.message()
  );
}

void warn_of_age(SSL_CTX* context, const std::string& file) {
  const X509* certificate = SSL_CTX_get0_certificate(context);
  if (certificate == nullptr) return;
  if (X509_cmp_current_time(X509_get0_notAfter(certificate)) < 0) {
    log_warn("--ssl-certfile {}: the certificate has expired; clients will refuse it", file);
  } else if (X509_cmp_current_time(X509_get0_notBefore(certificate)) > 0) {
    log_warn("--ssl-certfile {}: the certificate is not valid yet", file);
  }
}

}  // namespace

Result<std::shared_ptr<ssl::context>> load_tls(
    const std::string& cert_file, const std::string& key_file
) {
  const std::string certificate = TRY(read_pem("--ssl-certfile", cert_file));
  const std::string key = TRY(read_pem("--ssl-keyfile", key_file));
  auto context = std::make_shared<ssl::context>(ssl::context::tls_server);
  set_protocol(context->native_handle());
  error_code error;
  context->use_certificate_chain(
      boost::asio::const_buffer(certificate.data(), certificate.size()), error
  );
  if (error) {
    return fail(
        Code::kBadFile,
        "--ssl-certfile {}: not a certificate in PEM form ({})",
        cert_file,
        error.message()
    );
  }
  TRY(use_key(*context, key, key_file));
  warn_of_age(context->native_handle(), cert_file);
  return context;
}

}  // namespace artery::server::http
