#pragma once
// Files in memory, with faults on demand: a file that cannot be opened, one that ends early. Filled
// by one thread; afterwards any thread may read.

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/file_system.h"

namespace artery::testing {

class MemFileSystem final : public FileSystem {
 public:
  // Adds or replaces a file. Mappings made before keep the old bytes.
  void add(const std::string& path, std::string bytes);
  // From now on opening `path` fails with `error`.
  void fail_open(const std::string& path, Error error);
  // From now on `path` ends after `bytes`.
  void cut(const std::string& path, std::size_t bytes);
  void remove(const std::string& path) { files_.erase(path); }

  Result<std::unique_ptr<MappedFile>> map(const std::string& path) const override;
  Result<std::string> read(const std::string& path, std::size_t bytes_max) const override;
  // Folders are what paths have before their last '/'.
  Result<std::vector<std::string>> list(const std::string& folder) const override;

 private:
  struct Entry {
    // Shared with the mappings: a file may be replaced while one is open, as on disk.
    std::shared_ptr<const std::string> bytes;
    FileStamp stamp;
  };
  Result<const Entry*> find(const std::string& path) const;
  std::map<std::string, Entry> files_;
  std::map<std::string, Error> faults_;
  std::uint64_t inodes_ = 0;
};

}  // namespace artery::testing
