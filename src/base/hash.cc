#include "base/hash.h"

#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <cstring>

#include "base/chain_key.h"
#include "base/check.h"

namespace artery {

static_assert(sizeof(TokenId) == 4);

Digest sha256(std::span<const std::byte> bytes) {
  Digest out{};
  unsigned length = 0;
  const int ok = EVP_Digest(bytes.data(), bytes.size(), out.data(), &length, EVP_sha256(), nullptr);
  CHECK(ok == 1 && length == out.size(), "SHA-256 is not available in libcrypto");
  return out;
}

std::string hex(std::span<const std::uint8_t> bytes) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string out;
  out.reserve(bytes.size() * 2);
  for (std::uint8_t b : bytes) {
    out += kDigits[b >> 4];
    out += kDigits[b & 15];
  }
  return out;
}

bool parse_hex(std::string_view digits, std::span<std::uint8_t> bytes) {
  const auto nibble = [](char c) {
    if (c >= '0' && c <= '9') return c - '0';
    const int letter = c | 0x20;
    return letter >= 'a' && letter <= 'f' ? letter - 'a' + 10 : -1;
  };
  if (digits.size() != 2 * bytes.size()) return false;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    const int high = nibble(digits[2 * i]), low = nibble(digits[2 * i + 1]);
    if (high < 0 || low < 0) return false;
    bytes[i] = static_cast<std::uint8_t>(high * 16 + low);
  }
  return true;
}

ChainKey chain_root(std::string_view secret, std::string_view space) {
  ChainKey out{};
  unsigned length = 0;
  const auto* data = reinterpret_cast<const unsigned char*>(space.data());
  const auto* made = HMAC(
      EVP_sha256(),
      secret.data(),
      static_cast<int>(secret.size()),
      data,
      space.size(),
      out.data(),
      &length
  );
  CHECK(made != nullptr && length == out.size(), "HMAC-SHA-256 is not available in libcrypto");
  return out;
}

ChainKey chain_next(const ChainKey& previous, std::span<const TokenId> tokens) {
  CHECK(tokens.size() == kPageTokens);
  std::array<std::byte, 32 + kPageTokens * 4> message;
  std::memcpy(message.data(), previous.data(), 32);
  std::memcpy(message.data() + 32, tokens.data(), kPageTokens * 4);
  return sha256(message);
}

std::vector<ChainKey> chain_keys(const ChainKey& root, std::span<const TokenId> tokens) {
  std::vector<ChainKey> keys;
  keys.reserve(tokens.size() / kPageTokens);
  ChainKey key = root;
  for (std::size_t at = 0; at + kPageTokens <= tokens.size(); at += kPageTokens) {
    key = chain_next(key, tokens.subspan(at, kPageTokens));
    keys.push_back(key);
  }
  return keys;
}

}  // namespace artery
