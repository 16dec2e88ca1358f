#pragma once
// Certificates for tests of TLS. One thread.

#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rsa.h>
#include <openssl/x509.h>

#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>

namespace artery::server {

struct FileCloser {
  void operator()(std::FILE* file) const { std::fclose(file); }
};
using File = std::unique_ptr<std::FILE, FileCloser>;

// A self-signed certificate for `name` and its key, as two PEM files.
inline void make_certificate(
    const std::string& name,
    const std::filesystem::path& cert,
    const std::filesystem::path& key,
    bool elliptic = false
) {
  EVP_PKEY* pkey = elliptic ? EVP_EC_gen("P-256") : EVP_RSA_gen(2048);
  X509* x509 = X509_new();
  ASN1_INTEGER_set(X509_get_serialNumber(x509), 1);
  X509_gmtime_adj(X509_getm_notBefore(x509), 0);
  X509_gmtime_adj(X509_getm_notAfter(x509), 3600);
  X509_set_pubkey(x509, pkey);
  X509_NAME* subject = X509_get_subject_name(x509);
  X509_NAME_add_entry_by_txt(
      subject,
      "CN",
      MBSTRING_ASC,
      reinterpret_cast<const unsigned char*>(name.c_str()),
      static_cast<int>(name.size()),
      -1,
      0
  );
  X509_set_issuer_name(x509, subject);
  X509_sign(x509, pkey, EVP_sha256());
  PEM_write_X509(File(std::fopen(cert.c_str(), "w")).get(), x509);
  PEM_write_PrivateKey(
      File(std::fopen(key.c_str(), "w")).get(), pkey, nullptr, nullptr, 0, nullptr, nullptr
  );
  X509_free(x509);
  EVP_PKEY_free(pkey);
}

}  // namespace artery::server
