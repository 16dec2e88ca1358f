#pragma once
// The certificate side of TLS: PEM files to a context that connections share. TLS 1.2 and 1.3 with
// OpenSSL's default ciphers; HTTP/1.1 only. Private to http/. Any thread.

#include <boost/asio/ssl/context.hpp>
#include <memory>
#include <string>

#include "base/result.h"

namespace artery::server::http {

// kBadFile names flag and file, and says what is wrong: missing, not PEM, a key that needs a
// passphrase, a key that does not belong to the certificate. An expired certificate is loaded, with
// a warning in the log.
Result<std::shared_ptr<boost::asio::ssl::context>> load_tls(
    const std::string& cert_file, const std::string& key_file
);

// The first byte of a TLS connection: a handshake record (RFC 8446 section 5.1).
constexpr unsigned char kTlsFirstByte = 0x16;

}  // namespace artery::server::http
