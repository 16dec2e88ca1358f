#pragma once
// What the tests of DiskStore share: a temporary folder of the machine, chains of records whose
// bytes follow from their keys, and a loader that waits. Tests only.

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <limits>
#include <memory>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "kvstore/store.h"

namespace artery::kvstore::store_testing {

constexpr std::int64_t kPageBytes = 3000;
constexpr int kRecordPages = 4;

// Only what hangs takes so long, on any machine under any load.
constexpr auto kPatience = std::chrono::seconds(60);

template <typename Condition>
bool wait_until(Condition condition) {
  const auto until = std::chrono::steady_clock::now() + kPatience;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > until) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

// In memory where the machine has a file system there: a disk that others keep busy takes seconds
// for one sync. kDisk, or TMPDIR: on a disk all the same.
class TempFolder {
 public:
  enum class Where : std::uint8_t { kAny, kDisk };
  explicit TempFolder(Where where = Where::kAny) {
    static int count = 0;
    path_ = parent(where) /
            ("artery-store-" + std::to_string(::getpid()) + "-" + std::to_string(count++));
    std::filesystem::remove_all(path_);
  }
  ~TempFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;
  std::string path() const { return path_.string(); }
  std::string file(const std::string& name) const { return (path_ / name).string(); }
  std::vector<std::string> names(const std::string& begin) const {
    std::vector<std::string> out;
    for (const auto& entry : std::filesystem::directory_iterator(path_)) {
      const std::string name = entry.path().filename().string();
      if (name.starts_with(begin)) out.push_back(name);
    }
    std::ranges::sort(out);
    return out;
  }
  std::int64_t bytes() const {
    std::int64_t sum = 0;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(path_)) {
      std::error_code gone;  // while it was counted
      const auto size = entry.is_regular_file(gone) ? entry.file_size(gone) : 0;
      if (!gone) sum += static_cast<std::int64_t>(size);
    }
    return sum;
  }

 private:
  static std::filesystem::path parent(Where where) {
    const std::filesystem::path memory = "/dev/shm";
    const bool is_told = where == Where::kDisk || std::getenv("TMPDIR") != nullptr;
    if (is_told || ::access(memory.c_str(), W_OK) != 0) {
      return std::filesystem::temp_directory_path();
    }
    std::error_code none;
    const std::filesystem::space_info space = std::filesystem::space(memory, none);
    return !none && space.available > kMemoryBytes ? memory
                                                   : std::filesystem::temp_directory_path();
  }
  static constexpr std::uintmax_t kMemoryBytes = 48 << 20;  // what a test may need, twice
  std::filesystem::path path_;
};

inline StoreConfig small_config(const std::string& folder) {
  StoreConfig config;
  config.folder = folder;
  config.bytes_max = 16 << 20;
  config.record_bytes_max = kRecordPages * kPageBytes;
  config.segment_bytes = 128 << 10;
  config.buffer_bytes = 2 << 20;
  return config;
}

inline SpaceSpec spec_of(const std::string& tenant = "") {
  return {
      .identity = "toy weights, layout 1",
      .tenant = tenant,
      .model = "toy",
      .page_bytes = kPageBytes,
      .record_pages = kRecordPages,
  };
}

// A prompt: token ids and the keys of its pages.
struct Prompt {
  Prompt(const DiskStore& store, int seed, int pages, const std::string& tenant = "") {
    for (int i = 0; i < pages * kPageTokens; ++i) ids.push_back(seed * 7919 + i);
    keys = chain_keys(chain_root(store.secret(), "toy/" + tenant), ids);
    root = chain_root(store.secret(), "toy/" + tenant);
  }
  std::vector<TokenId> ids_of(std::int64_t first, int pages) const {
    const auto from = ids.begin() + first * kPageTokens;
    return {from, from + std::ptrdiff_t{pages} * kPageTokens};
  }
  const ChainKey& end_key(std::int64_t first, int pages) const {
    return keys[static_cast<std::size_t>(first + pages - 1)];
  }
  ChainKey root{};
  std::vector<TokenId> ids;
  std::vector<ChainKey> keys;
};

inline void fill_payload(const ChainKey& key, std::span<std::byte> bytes) {
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = static_cast<std::byte>(key[i % 32] + i / 32);
  }
}
inline bool is_payload(const ChainKey& key, std::span<const std::byte> bytes) {
  std::vector<std::byte> expected(bytes.size());
  fill_payload(key, expected);
  return std::memcmp(expected.data(), bytes.data(), bytes.size()) == 0;
}

struct Offered {
  int taken = 0, known = 0, refused = 0;
};

// Offers the whole records of a prompt, then a tail record. Waits out a full buffer.
inline Offered offer_all(
    DiskStore& store,
    SpaceId space,
    const Prompt& prompt,
    TtlClass ttl = TtlClass::kHour,
    std::int64_t until_s = 0,
    bool waits = true
) {
  Offered out;
  const auto pages = static_cast<std::int64_t>(prompt.keys.size());
  for (std::int64_t at = 0; at < pages;) {
    const int count = static_cast<int>(std::min<std::int64_t>(kRecordPages, pages - at));
    RecordFacts facts;
    facts.space = space;
    facts.ttl = ttl;
    facts.key = prompt.end_key(at, count);
    facts.parent = at == 0 ? prompt.root : prompt.keys[static_cast<std::size_t>(at - 1)];
    facts.pages = count;
    facts.guaranteed_until_s = until_s;
    const auto fill = [&](std::span<std::byte> bytes) {
      EXPECT_EQ(bytes.size(), static_cast<std::size_t>(count * kPageBytes));
      fill_payload(facts.key, bytes);
    };
    Offer offer = Offer::kRefused;
    const auto is_answered = [&] {
      offer = store.offer(facts, prompt.ids_of(at, count), fill);
      return offer != Offer::kRefused;
    };
    if (!is_answered() && waits) wait_until(is_answered);
    out.taken += offer == Offer::kTaken;
    out.known += offer == Offer::kKnown;
    out.refused += offer == Offer::kRefused;
    at += count;
  }
  return out;
}

struct Loaded {
  int pieces = 0, wrong = 0;
  bool has_ended = false;
  MissReason why = MissReason::kNone;
};

inline std::vector<Wanted> wanted_of(const Prompt& prompt, const Found& found) {
  std::vector<Wanted> wanted;
  for (const Extent& extent : found.extents) {
    wanted.push_back({
        .key = prompt.end_key(extent.first_page, extent.pages),
        .pages = extent.pages,
        .ids = prompt.ids_of(extent.first_page, extent.pages),
    });
  }
  return wanted;
}

inline Loaded wait_for(DiskStore& store, LoadId load, const std::vector<Wanted>& wanted) {
  Loaded out;
  wait_until([&] {
    store.poll(1 << 20, [&](const Piece& piece) {
      if (piece.load != load) return;
      if (!piece.payload.empty()) {
        EXPECT_EQ(piece.index, static_cast<std::size_t>(out.pieces));
        ++out.pieces;
        out.wrong += !is_payload(wanted[piece.index].key, piece.payload);
      }
      out.has_ended |= piece.is_last;
      if (piece.is_last) out.why = piece.why;
    });
    return out.has_ended;
  });
  return out;
}

constexpr std::int64_t kNoDeadline = std::numeric_limits<std::int64_t>::max();

inline Loaded load_found(
    DiskStore& store, SpaceId space, const Prompt& prompt, const Found& found
) {
  const std::vector<Wanted> wanted = wanted_of(prompt, found);
  return wait_for(store, store.load(space, wanted, kNoDeadline), wanted);
}

inline std::unique_ptr<DiskStore> open_store(
    const StoreConfig& config, const Clock& clock = system_clock()
) {
  auto store = DiskStore::open(config, system_file_system(), clock);
  EXPECT_TRUE(store) << store.error().message;
  return store ? store.take() : nullptr;
}

// The prompt is there, whole, with the right bytes.
inline void expect_whole(DiskStore& store, SpaceId space, const Prompt& prompt) {
  const Found found = store.find(space, prompt.keys);
  EXPECT_EQ(found.pages, static_cast<std::int64_t>(prompt.keys.size()));
  EXPECT_EQ(found.miss, MissReason::kNone) << name(found.miss);
  const Loaded loaded = load_found(store, space, prompt, found);
  EXPECT_EQ(loaded.pieces, static_cast<int>(found.extents.size()));
  EXPECT_EQ(loaded.wrong, 0);
  EXPECT_TRUE(loaded.has_ended);
  EXPECT_EQ(loaded.why, MissReason::kNone) << name(loaded.why);
}

}  // namespace artery::kvstore::store_testing
