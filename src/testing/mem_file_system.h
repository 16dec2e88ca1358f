#pragma once
// Files in memory to read models from: a file that cannot be opened, one that ends early. Filled
// by one thread; afterwards any thread may read. What stores write to is its base.

#include <map>
#include <string>
#include <utility>

#include "testing/fault_file_system.h"

namespace artery::testing {

class MemFileSystem final : public FaultFileSystem {
 public:
  // Adds or replaces a file. Mappings made before keep the old bytes.
  void add(const std::string& path, std::string_view bytes) { put(path, bytes); }
  // From now on opening `path` fails with `error`.
  void fail_open(const std::string& path, Error error) { faults_[path] = std::move(error); }
  // From now on `path` ends after `bytes`.
  void cut(const std::string& path, std::size_t bytes) {
    cut_file(path, static_cast<std::int64_t>(bytes));
  }
  void remove(const std::string& path) { erase(path); }

  Result<std::unique_ptr<MappedFile>> map(const std::string& path) const override;
  Result<std::string> read(const std::string& path, std::size_t bytes_max) const override;

 private:
  std::map<std::string, Error> faults_;
};

}  // namespace artery::testing
