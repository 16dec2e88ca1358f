#pragma once
// What the engine remembers of the store behind its prefix cache (kvstore/record_store.h): the
// spaces it opened, the loads under way, and per choice what was looked up, waited for and written.
// Plain state of the engine thread; the rules are in core_store.cc.

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/chain_key.h"
#include "engine/kv_pool.h"
#include "kvstore/record_store.h"

namespace artery::engine {

struct Choice;
struct RequestState;

// Of one choice.
struct StoreUse {
  // Reading: for each admission at most one load of its own.
  bool looked = false;           // known_pages and miss are of this admission
  bool decided = false;          // to load or not
  std::int64_t known_pages = 0;  // that the store had
  kvstore::MissReason miss = kvstore::MissReason::kNone;      // of the page after them
  kvstore::MissReason load_end = kvstore::MissReason::kNone;  // what kept known pages from coming
  kvstore::LoadId load = 0;                                   // it waits for this one, 0: for none
  std::size_t until = 0;                                      // another's: for so many pieces of it
  std::int64_t waits_since_ns = 0;
  std::int64_t disk_begin = 0, disk_end = 0;  // pages that its own load brought
  // Writing. Records are offered in order: whole ones up to page `whole`, then tails up to page
  // `tail` (where that is further).
  std::int64_t whole = 0, tail = 0;
  int refusals = 0;  // in a row
  std::int64_t retry_ns = 0;

  std::int64_t stored() const { return std::max(whole, tail); }
};

// One load under way, of one choice that waits.
struct StoreLoad {
  RequestState* request = nullptr;
  Choice* choice = nullptr;
  std::vector<kvstore::Extent> extents;  // one for each record wanted
  std::int64_t end_page = 0;             // pages from here on are not wanted
  std::vector<PageRef> pages;            // that its records go to, taken beforehand; last one next
  std::size_t next = 0;                  // piece
  std::int64_t deadline_ns = 0;          // the engine's own, should the store forget its
  std::uint64_t safe_after = 0;          // its pages may be in steps up to this one
};

struct StoreLink {
  std::shared_ptr<kvstore::RecordStore> store;
  std::string identity;  // of the namespace
  std::string model;
  std::int64_t page_bytes = 0;
  int record_pages = 16;
  std::map<std::string, kvstore::SpaceId> spaces;  // by tenant
  std::map<kvstore::LoadId, StoreLoad> loads;
  // Records on their way, by key: whose load, and which piece.
  std::unordered_map<ChainKey, std::pair<kvstore::LoadId, std::size_t>, ChainKeyHash> coming;
  bool more = false;  // the last poll may have left something

  kvstore::SpaceId space_of(const std::string& tenant);
};

}  // namespace artery::engine
