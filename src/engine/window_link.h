#pragma once
// What the engine remembers of windows in the store (Config::windows_in_store): where they are kept
// and which are on their way. Plain state of the engine thread; the rules are in
// core_window_store.cc.
//
// A stored window is one or more records of a space of its own, named by the chain key of the page
// boundary that it ends at and a number; their parent is that chain key.

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/chain_key.h"
#include "engine/kv_pool.h"
#include "kvstore/record_store.h"

namespace artery::engine {

// One window on its way into RAM. Those that wait for it know its id.
struct WindowLoad {
  ChainKey key{};  // of the boundary
  std::int64_t boundary = 0;
  std::vector<PageRef> pages;  // taken when it began, first page first
  std::vector<int> records;    // pages of each
  std::size_t next = 0;        // record
  std::size_t next_page = 0;
  std::int64_t deadline_ns = 0;  // the engine's own, should the store forget its; 0: broken
  std::uint64_t safe_after = 0;  // steps up to this one may still use its pages
};

struct WindowLink {
  kvstore::RecordStore* store = nullptr;  // null: windows are kept in RAM only
  std::string identity;                   // of their space
  std::int64_t page_bytes = 0;
  int record_pages = 1;
  // Window pages beyond what running sequences can take: loads hold no more.
  std::int64_t pages_spare = 0;
  std::map<std::string, kvstore::SpaceId> spaces;  // by tenant
  std::map<kvstore::LoadId, WindowLoad> loads;

  std::int64_t pages_held() const {
    std::int64_t sum = 0;
    for (const auto& [id, load] : loads) sum += std::ssize(load.pages);
    return sum;
  }
};

// SHA-256("window" || chain key || number as 4 bytes, little-endian).
ChainKey window_record_key(const ChainKey& boundary, std::size_t number);

// Bytes of the largest record that windows of this layout make; 0: it has none. For whoever opens
// the store.
std::int64_t window_record_bytes(const model::KvLayout& layout);

}  // namespace artery::engine
