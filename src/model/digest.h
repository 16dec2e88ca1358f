#pragma once
// The weights digest: what `system_fingerprint` and cache namespaces know a model by. Pure, any
// thread that may use the pool.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "tensor/compute_pool.h"

namespace artery::model {

constexpr std::size_t kDigestLeafBytes = std::size_t{4} << 20;

// Hex of SHA-256(SHA-256 of each leaf of 4 MiB, in order || length as little-endian uint64). The
// leaves are hashed in parallel; the result does not depend on the number of threads.
std::string tree_digest(std::span<const std::byte> bytes, tensor::ComputePool& pool);

}  // namespace artery::model
