#pragma once
// How fast the disk gives a file by itself, as the measure of what a store makes of it: the same
// queue, the same sizes, nothing checked or copied. The calling thread does it.

#include <cstdint>
#include <string>

#include "base/file_system.h"
#include "base/result.h"

namespace artery::kvstore {

struct RawReadPlan {
  std::int64_t offset = 0;               // multiple of 4096
  std::int64_t bytes = 0;                // 0: to the end of the file
  std::int64_t request_bytes = 1 << 20;  // multiple of 4096
  int depth = 32;
};
struct RawRead {
  std::int64_t bytes = 0;
  double seconds = 0;
  std::string io;  // as StoreStatus::io
};

// Reads in order, past the page cache where the file system can. io_uring where it is allowed, else
// threads. kInvalidArgument: sizes; kIo: what the disk said.
Result<RawRead> raw_read(FileSystem& files, const std::string& path, const RawReadPlan& plan);

}  // namespace artery::kvstore
