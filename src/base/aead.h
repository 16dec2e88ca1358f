#pragma once
// AES-256-GCM (NIST SP 800-38D) over libcrypto, in place: what the store encrypts records and keys
// with. One object holds one key and its schedule; it is used by one thread at a time. It never
// makes nonces: no two messages of one key may have the same one.

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

struct evp_cipher_ctx_st;  // libcrypto's

namespace artery {

using AeadKey = std::array<std::uint8_t, 32>;
using AeadNonce = std::array<std::uint8_t, 12>;
using AeadTag = std::array<std::uint8_t, 16>;

class Aes256Gcm {
 public:
  explicit Aes256Gcm(const AeadKey& key);

  // Encrypts `data` in place. `associated` is covered by the tag and not encrypted. At most 64 GB
  // a message.
  AeadTag seal(
      const AeadNonce& nonce, std::span<const std::byte> associated, std::span<std::byte> data
  );
  // Decrypts in place. False: key, nonce, tag, `associated` or `data` are not those of seal();
  // `data` is zeros then.
  [[nodiscard]] bool open(
      const AeadNonce& nonce,
      std::span<const std::byte> associated,
      std::span<std::byte> data,
      const AeadTag& tag
  );

 private:
  struct Free {
    void operator()(evp_cipher_ctx_st* context) const;
  };
  using Context = std::unique_ptr<evp_cipher_ctx_st, Free>;
  static Context make(const AeadKey& key, bool seals);

  Context seal_;
  Context open_;
};

// Overwrites a secret that is not needed any more; not optimised away.
void wipe(std::span<std::uint8_t> secret);

}  // namespace artery
