#pragma once
// Start-up of a store's folder: super block, journal, footers and open segments, read and put
// together; nothing is written but, for a writer, leftovers of files that a crash left behind.
// Before the store thread exists; segments are read by a few threads side by side.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/file_system.h"
#include "base/result.h"
#include "kvstore/folder_format.h"
#include "kvstore/journal.h"
#include "kvstore/segment_scan.h"

namespace artery::kvstore {

struct Recovered {
  bool is_new = false;       // nothing was there
  bool has_super = false;    // a sound super block
  bool has_journal = false;  // the one that the super block names, or the latest; whole
  SuperBlock super;          // as found, or made up from what is there
  Replay replay;
  std::vector<SegmentScan> segments;       // kSealed, kOpen, kDamaged; by number
  std::vector<std::string> leftovers;      // names of our files that are of no use any more
  std::vector<std::string> unknown_files;  // not ours
  std::vector<std::string> troubles;       // sentences
  std::int64_t lost = 0, cuts = 0, versions = 0;
  SegmentId next_segment = 1;
};

// kBadFile: not a store, or of a later version; kNotFound, kIo: the folder cannot be read.
Result<Recovered> recover(const std::string& folder, FileSystem& files);

}  // namespace artery::kvstore
