#pragma once
// The chain of keys that names a prefix: key(page) = SHA-256(previous key || token ids as
// little-endian int32 || image digests); the root is HMAC-SHA-256(secret, namespace). One function
// computes it, once per prompt; router, prefix index and store read the same array (design, "KV").
// Pure functions, any thread.

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"

namespace artery {

using ChainKey = std::array<std::uint8_t, 32>;

constexpr int kPageTokens = 16;  // tokens in a page and in one link of the chain

// `space` holds everything that changes KV bytes or must not be shared: weights digest, numerics
// id, KV type, layout version, adapter, tenant, salt.
ChainKey chain_root(std::string_view secret, std::string_view space);

// The key after one more full page. `tokens` has exactly kPageTokens ids.
ChainKey chain_next(const ChainKey& previous, std::span<const TokenId> tokens);

// Keys of all whole pages of `tokens`; a remainder of fewer than kPageTokens ids gives no key.
std::vector<ChainKey> chain_keys(const ChainKey& root, std::span<const TokenId> tokens);

struct ChainKeyHash {
  std::size_t operator()(const ChainKey& key) const noexcept {
    std::size_t h = 0;
    for (int i = 0; i < 8; ++i) h = (h << 8) | key[static_cast<std::size_t>(i)];
    return h;  // the key is already uniform
  }
};

}  // namespace artery
