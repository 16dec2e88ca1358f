#pragma once
// Overwrites what a dropped tenant's records left in the segment files, those that the index has
// long forgotten too: every file is walked from record header to record header. Its own handles,
// any one thread, beside the store thread, which neither reads nor copies what the index has
// dropped.

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "base/file_system.h"
#include "base/result.h"
#include "kvstore/record_format.h"

namespace artery::kvstore {

struct Trace {
  ChainKey key{};
  Place place;
};

struct Traces {
  std::set<Digest> spaces;     // whose records go
  std::uint64_t before = 0;    // sequence: later records are of a tenant that has come back
  std::vector<Trace> indexed;  // what the index had of them; keys are halves
};

// Of one segment file: zeros now, and synced, encrypted ones too. kNotFound: it went meanwhile;
// kIo: something may be left.
Result<std::vector<Trace>> erase_traces(
    FileSystem& files, const std::string& path, SegmentId segment, const Traces& traces
);

}  // namespace artery::kvstore
