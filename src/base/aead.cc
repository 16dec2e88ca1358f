#include "base/aead.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>

#include <algorithm>

#include "base/check.h"

namespace artery {
namespace {

constexpr std::size_t kStepBytes = std::size_t{1} << 30;  // lengths are ints over there

const unsigned char* in(std::span<const std::byte> bytes) {
  return reinterpret_cast<const unsigned char*>(bytes.data());
}

unsigned char* out(std::span<std::byte> bytes) {
  return reinterpret_cast<unsigned char*>(bytes.data());
}

// Gives the nonce and the associated data to a context that has its key.
void begin(EVP_CIPHER_CTX* context, const AeadNonce& nonce, std::span<const std::byte> associated) {
  int length = 0;
  bool fine = EVP_CipherInit_ex(context, nullptr, nullptr, nullptr, nonce.data(), -1) == 1;
  while (fine && !associated.empty()) {
    const auto step = associated.first(std::min(associated.size(), kStepBytes));
    fine =
        EVP_CipherUpdate(context, nullptr, &length, in(step), static_cast<int>(step.size())) == 1;
    associated = associated.subspan(step.size());
  }
  CHECK(fine, "AES-256-GCM failed in libcrypto");
}

void run(EVP_CIPHER_CTX* context, std::span<std::byte> data) {
  while (!data.empty()) {
    const auto step = data.first(std::min(data.size(), kStepBytes));
    int length = 0;
    const int fine =
        EVP_CipherUpdate(context, out(step), &length, in(step), static_cast<int>(step.size()));
    CHECK(fine == 1, "AES-256-GCM failed in libcrypto");
    CHECK(static_cast<std::size_t>(length) == step.size());
    data = data.subspan(step.size());
  }
}

}  // namespace

void Aes256Gcm::Free::operator()(evp_cipher_ctx_st* context) const {
  EVP_CIPHER_CTX_free(context);  // wipes the key schedule
}

Aes256Gcm::Context Aes256Gcm::make(const AeadKey& key, bool seals) {
  Context context(EVP_CIPHER_CTX_new());
  const bool fine =
      context != nullptr &&
      EVP_CipherInit_ex(
          context.get(), EVP_aes_256_gcm(), nullptr, key.data(), nullptr, seals ? 1 : 0
      ) == 1;
  CHECK(fine, "AES-256-GCM is not available in libcrypto");
  return context;
}

Aes256Gcm::Aes256Gcm(const AeadKey& key) : seal_(make(key, true)), open_(make(key, false)) {}

AeadTag Aes256Gcm::seal(
    const AeadNonce& nonce, std::span<const std::byte> associated, std::span<std::byte> data
) {
  begin(seal_.get(), nonce, associated);
  run(seal_.get(), data);
  AeadTag tag{};
  unsigned char rest[EVP_MAX_BLOCK_LENGTH];
  int length = 0;
  const bool fine = EVP_CipherFinal_ex(seal_.get(), rest, &length) == 1 && length == 0 &&
                    EVP_CIPHER_CTX_ctrl(
                        seal_.get(), EVP_CTRL_AEAD_GET_TAG, static_cast<int>(tag.size()), tag.data()
                    ) == 1;
  CHECK(fine, "AES-256-GCM failed in libcrypto");
  return tag;
}

bool Aes256Gcm::open(
    const AeadNonce& nonce,
    std::span<const std::byte> associated,
    std::span<std::byte> data,
    const AeadTag& tag
) {
  begin(open_.get(), nonce, associated);
  run(open_.get(), data);
  AeadTag expected = tag;
  const int set = EVP_CIPHER_CTX_ctrl(
      open_.get(), EVP_CTRL_AEAD_SET_TAG, static_cast<int>(expected.size()), expected.data()
  );
  CHECK(set == 1, "AES-256-GCM failed in libcrypto");
  unsigned char rest[EVP_MAX_BLOCK_LENGTH];
  int length = 0;
  if (EVP_CipherFinal_ex(open_.get(), rest, &length) == 1) return true;
  std::ranges::fill(data, std::byte{0});
  return false;
}

void wipe(std::span<std::uint8_t> secret) { OPENSSL_cleanse(secret.data(), secret.size()); }

}  // namespace artery
