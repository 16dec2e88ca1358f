#pragma once
// Stores that were never computed, for measuring: a catalog of many records, and a folder with
// sealed segments that are holes but for their first block and footer. Any thread.

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/chain_key.h"
#include "base/clock.h"
#include "base/file_system.h"
#include "base/result.h"
#include "kvstore/catalog.h"

namespace artery::bench {

constexpr std::int64_t kSyntheticNow = 1'700'000'000;  // of synthetic_catalog(), unix seconds

// Space 0. `prompts`: keys of pages, whole records of 16; and other records up to `records`.
std::unique_ptr<kvstore::Catalog> synthetic_catalog(
    const ChainKey& root, std::span<const std::vector<ChainKey>> prompts, std::int64_t records
);

// Sealed segments of 256 MiB full of records of `space`, in a store's folder that nobody has open.
// The files take room for their footers only. Returns the number of records.
Result<std::int64_t> write_synthetic_segments(
    const std::string& folder,
    const kvstore::SpaceSpec& space,
    std::int64_t bytes,
    FileSystem& files,
    const Clock& clock
);

}  // namespace artery::bench
