#pragma once
// The secret of a store's folder, the root of every chain key in it (base/chain_key.h): 32 random
// bytes in `secret`, made with the store. Without it nothing that the segments hold can be found
// again, and another one in its place would let them lie there in silence; so it is made anew only
// where nothing is lost by it. Before the store thread exists.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/file_system.h"
#include "base/result.h"

namespace artery::kvstore {

struct SecretFacts {
  bool may_make = false;               // the store is opened for writing
  std::int64_t records = 0;            // that are named with it
  std::optional<std::uint32_t> check;  // secret_check() of the right one, as the super block has it
};

// kBadFile: it is missing or damaged while records are there, or may not be made; the message says
// what to do. kIo.
Result<std::string> open_secret(
    const std::string& folder, FileSystem& files, const SecretFacts& facts
);

// CRC-32C: tells a flipped bit. It lies beside the secret, and gives away nothing that the secret's
// own file does not.
std::uint32_t secret_check(std::string_view secret);

}  // namespace artery::kvstore
