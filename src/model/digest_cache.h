#pragma once
// Weights digests of files seen before, so that a start need not hash gigabytes again. One small
// text file for each model file, named by its stamp, in a folder of the user's. A missing, foreign
// or damaged entry is a miss: it costs time, never a wrong digest. Any thread, any process.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "base/file_system.h"

namespace artery::model {

class DigestCache {
 public:
  // An empty `folder`: no cache.
  explicit DigestCache(std::string folder, const FileSystem& fs = system_file_system())
      : folder_(std::move(folder)), fs_(&fs) {}

  std::optional<std::string> find(const FileStamp& stamp) const;

  // Keeps the digest of the file that had `stamp` when it was opened. `now_ns`: the clock that
  // stamps files. A file changed within the last seconds is left out: a write that follows at once
  // could leave its stamp as it is. Of more than kEntriesMax entries the oldest go. False when
  // nothing was kept.
  bool store(const FileStamp& stamp, const std::string& digest, std::int64_t now_ns) const;

  static constexpr std::size_t kEntriesMax = 256;

 private:
  void prune() const;
  std::string path_of(const FileStamp& stamp) const;
  std::string folder_;
  const FileSystem* fs_;
};

}  // namespace artery::model
