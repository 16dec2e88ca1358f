#include "model/digest.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/hash.h"

namespace artery::model {

std::string tree_digest(std::span<const std::byte> bytes, tensor::ComputePool& pool) {
  const std::size_t leaves = (bytes.size() + kDigestLeafBytes - 1) / kDigestLeafBytes;
  const std::uint64_t length = bytes.size();
  std::vector<std::byte> nodes(leaves * sizeof(Digest) + sizeof length);
  pool.parallel_for(
      static_cast<std::int64_t>(leaves),
      1,
      [&](std::int64_t begin, std::int64_t end, int) {
        for (auto i = static_cast<std::size_t>(begin); i < static_cast<std::size_t>(end); ++i) {
          const std::size_t at = i * kDigestLeafBytes;
          const Digest leaf =
              sha256(bytes.subspan(at, std::min(kDigestLeafBytes, bytes.size() - at)));
          std::memcpy(nodes.data() + i * sizeof leaf, leaf.data(), sizeof leaf);
        }
      }
  );
  std::memcpy(nodes.data() + leaves * sizeof(Digest), &length, sizeof length);
  return hex(sha256(nodes));
}

}  // namespace artery::model
