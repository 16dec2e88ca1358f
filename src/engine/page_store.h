#pragma once
// Where computed pages are kept and found again: the first tier is the RAM prefix cache
// (engine/prefix_cache), NVMe and peers come behind the same interface. Called by the engine
// thread; load() completes asynchronously through poll(). Every failure is a miss with a counter,
// never a failed request (invariant 3).

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/chain_key.h"
#include "base/ids.h"

namespace artery::engine {

// What names a stored piece of KV. Bytes depend only on the chain key and the namespace that went
// into its root.
struct Record {
  ChainKey chain_key{};
  ChainKey parent{};
  int count = 0;                   // pages
  std::vector<TokenId> ids;        // count * kPageTokens
  std::vector<std::uint32_t> crc;  // CRC-32C of the payload's quarters; empty in RAM
};

class PageStore {
 public:
  virtual ~PageStore() = default;

  struct Match {
    std::vector<PageId>
        pages;  // pages of the longest known prefix, each with one reference for the caller
  };
  // `tokens` are compared as well as keys: a match is never by hash alone.
  virtual Match match(std::span<const ChainKey> keys, std::span<const TokenId> tokens) = 0;

  // Starts bringing the pages behind `keys` into the pool; `done(pages)` is called by poll(). The
  // RAM tier has nothing to load and calls back at once with no pages.
  virtual void load(
      std::span<const ChainKey> keys, std::function<void(std::vector<PageId>)> done
  ) = 0;

  // A whole page was computed. The store may keep a reference of its own; returns the page to use
  // from now on (an equal one already stored wins, and the offered page's reference moves to it).
  virtual PageId offer(
      const ChainKey& key, const ChainKey& parent, std::span<const TokenId> ids, PageId page
  ) = 0;

  // Gives back at least `count` unreferenced pages if it can, least recently used leaves first.
  // Returns how many.
  virtual std::int64_t reclaim(std::int64_t count) = 0;
};

}  // namespace artery::engine
