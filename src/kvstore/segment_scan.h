#pragma once
// What one segment file holds, read at start-up (and by `kv verify`): from its footer where it has
// a sound one, else from the headers of its records. Pure reads; one thread a file, any number of
// files side by side.

#include <cstdint>
#include <string>
#include <vector>

#include "base/file_system.h"
#include "base/result.h"
#include "kvstore/folder_format.h"
#include "kvstore/journal.h"

namespace artery::kvstore {

struct SegmentScan {
  enum class State : std::uint8_t {
    kSealed,   // by its footer
    kOpen,     // by the journal and by records after what the journal knows
    kDamaged,  // was sealed, or its first block is bad: by headers, wherever one is
    kEmpty,    // nothing was ever written
    kVersion,  // of another version: not ours to touch
    kLost,     // cannot be read
  };
  SegmentId id = 0;
  State state = State::kLost;
  TtlClass ttl = TtlClass::kHour;
  std::int64_t bytes = 0;           // of the file, or what it is to have
  std::int64_t sealed_s = 0;        // kSealed
  std::int64_t end = kBlock;        // of the last record
  std::uint64_t epoch = 0;          // the latest seen
  std::size_t journaled = 0;        // so many entries, from the first on, are from the journal
  std::vector<IndexEntry> entries;  // puts
  bool was_cut = false;             // kOpen: there is something after the last record
  std::string trouble;              // kDamaged, kVersion, kLost: a sentence
};

// `known`: what the journal says of it, or null.
SegmentScan scan_segment(
    FileSystem& files, const std::string& path, SegmentId id, const Replay::OfSegment* known
);

}  // namespace artery::kvstore
